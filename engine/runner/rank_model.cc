#include "engine/runner/rank_model.h"

#include <cmath>
#include <utility>

namespace annulus {

RankModel MakeRankModel(ModelConfig config, ModelWeights weights, const OpTable& ops,
                        int page_tokens, DType kv_dtype) {
  RankModel model;
  model.config = std::move(config);
  model.weights = std::move(weights);
  model.ops = &ops;
  const AttentionShape& shape = WidestAttention(model.config);
  model.page_shape = {page_tokens, shape.kv_heads, shape.k_dim, shape.v_dim, kv_dtype};
  model.graph = LayerGraphs(model.config);
  model.groups = CacheGroups(model.config);
  model.group_of_layer.resize(model.layers());
  model.index_in_group.resize(model.layers());
  for (size_t g = 0; g < model.groups.size(); ++g) {
    for (size_t i = 0; i < model.groups[g].layers.size(); ++i) {
      model.group_of_layer[model.groups[g].layers[i]] = static_cast<int>(g);
      model.index_in_group[model.groups[g].layers[i]] = static_cast<int>(i);
    }
  }
  for (const RopeConfig& rope : model.config.ropes) {
    model.inverse_frequencies.push_back(InverseFrequencies(rope));
  }
  model.embedding_scale = model.config.embedding_scale;
  if (model.config.scaled_embeddings) {
    const auto root = static_cast<float>(std::sqrt(static_cast<double>(model.config.hidden_size)));
    // As the family was trained: the factor has the dtype of the embeddings.
    uint32_t rounded = 0;
    ConvertFromFloat(model.weights.stored_embedding_dtype, &root, &rounded, 1);
    ConvertToFloat(model.weights.stored_embedding_dtype, &rounded, &model.embedding_scale, 1);
  }
  return model;
}

RingShape RingShapeOf(const RankModel& model, const AttentionShape& shape) {
  RingShape ring;
  ring.shape = model.page_shape;
  ring.shape.kv_heads = shape.kv_heads;
  ring.shape.k_dim = shape.k_dim;
  ring.shape.v_dim = shape.v_dim;
  ring.layer_page_bytes = model.ops->kv_page_bytes(ring.shape);
  ring.heads = shape.heads;
  ring.scale = AttentionScale(model.config, shape);
  return ring;
}

int64_t KvBytesPerToken(const RankModel& model) {
  int64_t bytes = 0;
  for (const CacheGroup& group : model.groups) {
    if (group.kind != CacheGroup::Kind::kFull) continue;
    bytes += static_cast<int64_t>(group.layers.size()) *
             static_cast<int64_t>(model.ops->kv_page_bytes(model.page_shape)) /
             model.page_shape.page_tokens;
  }
  return bytes;
}

}  // namespace annulus
