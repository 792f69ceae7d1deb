#ifndef ANNULUS_ENGINE_MODEL_CACHE_GROUPS_H_
#define ANNULUS_ENGINE_MODEL_CACHE_GROUPS_H_

#include <cstdint>
#include <vector>

#include "engine/model/model_config.h"

namespace annulus {

// Layers that share page tables for their keys and values, all of one shape. A page holds
// `page_tokens` tokens of every layer in the group.
struct CacheGroup {
  enum class Kind : uint8_t {
    kFull,    // keeps every token of the sequence
    kWindow,  // keeps the last `window` positions and the chunk being computed
  };
  Kind kind = Kind::kFull;
  int32_t window = 0;           // tokens, > 0 for kWindow
  std::vector<int32_t> layers;  // ascending
};

// Assigns every layer that has keys of its own to exactly one group. Pages have the same size in
// every group, so one pool serves all; each group has as many layers of its window and shape as
// fit. Of all sizes that leaves least of a page empty in groups without a window, then least in all
// groups; of equal ones it is the largest. So where all layers have one shape, all groups have the
// same number of layers: the greatest number that divides the layer count of each distinct window.
// Groups are ordered by first layer.
std::vector<CacheGroup> CacheGroups(const ModelConfig& config);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_CACHE_GROUPS_H_
