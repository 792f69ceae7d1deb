#include "engine/runner/rank_model.h"

#include <cmath>
#include <utility>

namespace annulus {
namespace {

// As families with scaled embeddings were trained: the factor has the dtype of the embeddings.
float RoundedRoot(int32_t size, DType stored) {
  const auto root = static_cast<float>(std::sqrt(static_cast<double>(size)));
  uint32_t rounded = 0;
  float made = 0;
  ConvertFromFloat(stored, &root, &rounded, 1);
  ConvertToFloat(stored, &rounded, &made, 1);
  return made;
}

}  // namespace

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
  for (int layer = 0; layer < model.layers(); ++layer) {
    const LayerConfig& config = model.config.layers[static_cast<size_t>(layer)];
    if (config.has_own_keys()) continue;
    model.group_of_layer[layer] = model.group_of_layer[config.keys_of];
    model.index_in_group[layer] = model.index_in_group[config.keys_of];
  }
  model.first_lean = LastLayerWithKeys(model.config);
  for (const RopeConfig& rope : model.config.ropes) {
    model.inverse_frequencies.push_back(InverseFrequencies(rope));
  }
  model.embedding_scale = model.config.embedding_scale;
  const DType stored = model.weights.stored_embedding_dtype;
  if (model.config.scaled_embeddings) {
    model.embedding_scale = RoundedRoot(model.config.hidden_size, stored);
  }
  model.layer_embedding_scale =
      RoundedRoot(model.config.layer_input_size, stored) * std::sqrt(0.5f);
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
