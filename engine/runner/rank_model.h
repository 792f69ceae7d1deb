#ifndef ANNULUS_ENGINE_RUNNER_RANK_MODEL_H_
#define ANNULUS_ENGINE_RUNNER_RANK_MODEL_H_

#include <memory>
#include <vector>

#include "engine/model/cache_groups.h"
#include "engine/model/model_config.h"
#include "engine/model/weights.h"
#include "engine/sparse/gates.h"
#include "kernels/registry.h"

namespace annulus {

// A loaded model as all ranks of a process share it. Immutable.
struct RankModel {
  ModelConfig config;
  ModelWeights weights;                       // on the backend's first device
  std::vector<ModelWeights> further_weights;  // the same on devices 1, 2, ..
  const OpTable* ops = nullptr;
  KvPageShape page_shape;  // of one layer
  std::vector<CacheGroup> groups;
  std::vector<int> group_of_layer;  // [layer] index into groups
  std::vector<int> index_in_group;  // [layer] place of the layer inside a page
  // [rope setting][pairs], of sequences whose RopeLength is 0.
  std::vector<std::vector<float>> inverse_frequencies;

  std::shared_ptr<const AttentionGates> gates;  // of the policy learned; null: none

  float embedding_scale = 1;
  // Of the layers' matrices that are kI8, the choice of experts left out.
  Activations activations = Activations::kFloat;

  const ModelWeights& weights_on(int device) const {
    return device == 0 ? weights : further_weights[static_cast<size_t>(device) - 1];
  }
  int layers() const { return static_cast<int>(config.layers.size()); }
  int query_columns() const { return config.heads * config.head_dim; }
  int kv_columns() const { return config.kv_heads * config.head_dim; }
};

// Fills everything that follows from the configuration.
RankModel MakeRankModel(ModelConfig config, ModelWeights weights, const OpTable& ops,
                        int page_tokens, DType kv_dtype);

// Bytes of a token's keys and values in all layers that keep every token.
int64_t KvBytesPerToken(const RankModel& model);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_RANK_MODEL_H_
