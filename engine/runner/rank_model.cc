#include "engine/runner/rank_model.h"

#include <utility>

namespace annulus {

RankModel MakeRankModel(ModelConfig config, ModelWeights weights, const OpTable& ops,
                        int page_tokens, DType kv_dtype) {
  RankModel model;
  model.config = std::move(config);
  model.weights = std::move(weights);
  model.ops = &ops;
  model.page_shape = {page_tokens, model.config.kv_heads, model.config.head_dim,
                      model.config.head_dim, kv_dtype};
  model.groups = CacheGroups(model.config);
  model.group_of_layer.resize(model.layers());
  model.index_in_group.resize(model.layers());
  for (size_t g = 0; g < model.groups.size(); ++g) {
    for (size_t i = 0; i < model.groups[g].layers.size(); ++i) {
      model.group_of_layer[model.groups[g].layers[i]] = static_cast<int>(g);
      model.index_in_group[model.groups[g].layers[i]] = static_cast<int>(i);
    }
  }
  model.inverse_frequencies = InverseFrequencies(model.config.rope);
  return model;
}

}  // namespace annulus
