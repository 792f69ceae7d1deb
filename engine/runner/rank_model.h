#ifndef ANNULUS_ENGINE_RUNNER_RANK_MODEL_H_
#define ANNULUS_ENGINE_RUNNER_RANK_MODEL_H_

#include <memory>
#include <vector>

#include "engine/grammar/token_trie.h"
#include "engine/model/cache_groups.h"
#include "engine/model/layer_graph.h"
#include "engine/model/model_config.h"
#include "engine/model/weights/weights.h"
#include "engine/ring/ring_shape.h"
#include "engine/sparse/assignment.h"
#include "engine/sparse/gates.h"
#include "kernels/registry.h"

namespace annulus {

// A loaded model, shared by all ranks of a process. Immutable.
struct RankModel {
  ModelConfig config;
  ModelWeights weights;                       // on the backend's first device
  std::vector<ModelWeights> further_weights;  // copies on devices 1, 2, ..
  const OpTable* ops = nullptr;
  KvPageShape page_shape;         // of a layer that has WidestAttention
  std::vector<LayerGraph> graph;  // [layer]
  std::vector<CacheGroup> groups;
  // [layer] of the keys and values that the layer attends: index into groups, and of their part in
  // a page.
  std::vector<int> group_of_layer;
  std::vector<int> index_in_group;
  int first_lean = 0;  // LastLayerWithKeys
  // [rope setting][pairs] for sequences whose RopeLength is 0.
  std::vector<std::vector<float>> inverse_frequencies;

  std::shared_ptr<const AttentionGates> gates;  // for the policy `learned`; null: none
  // The vocabulary's text, for output constraints; null: there are none.
  std::shared_ptr<const TokenTrie> tokens;

  float embedding_scale = 1;
  float layer_embedding_scale = 1;
  // For those of the layers' matrices whose dtype it needs (ActivationsOf). Expert routing always
  // takes float inputs.
  Activations activations = Activations::kFloat;

  const ModelWeights& weights_on(int device) const {
    return device == 0 ? weights : further_weights[static_cast<size_t>(device) - 1];
  }
  int layers() const { return static_cast<int>(config.layers.size()); }
  const AttentionShape& attention(int layer) const {
    return config.layers[static_cast<size_t>(layer)].attention;
  }
  AssignmentLimits assignment_limits() const {
    return {page_shape.page_tokens, layers(), page_shape.kv_heads};
  }
};

// What layers of this shape attend with.
RingShape RingShapeOf(const RankModel& model, const AttentionShape& shape);

// Computes all derived fields from the configuration.
RankModel MakeRankModel(ModelConfig config, ModelWeights weights, const OpTable& ops,
                        int page_tokens, DType kv_dtype);

// Bytes of one token's keys and values, over all layers that keep every token.
int64_t KvBytesPerToken(const RankModel& model);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_RANK_MODEL_H_
