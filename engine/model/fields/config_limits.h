#ifndef ANNULUS_ENGINE_MODEL_FIELDS_CONFIG_LIMITS_H_
#define ANNULUS_ENGINE_MODEL_FIELDS_CONFIG_LIMITS_H_

#include <cstdint>
#include <limits>

namespace annulus {

// Upper limits for fields of config.json.
constexpr int64_t kMostContext = std::numeric_limits<int32_t>::max();  // tokens
constexpr int64_t kMostIntermediate = 1 << 20;                         // columns of one block
constexpr int64_t kMostLayers = 1024;
constexpr int64_t kMostHeads = 1024;
constexpr int64_t kMostHeadDim = 512;
constexpr int64_t kMostVocabulary = 1 << 24;

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_FIELDS_CONFIG_LIMITS_H_
