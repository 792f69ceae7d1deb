#ifndef ANNULUS_ENGINE_MODEL_FIELDS_CONFIG_LIMITS_H_
#define ANNULUS_ENGINE_MODEL_FIELDS_CONFIG_LIMITS_H_

#include <cstdint>
#include <limits>

namespace annulus {

// Upper limits for fields of config.json.
constexpr int64_t kMostContext = std::numeric_limits<int32_t>::max();  // tokens
constexpr int64_t kMostIntermediate = 1 << 20;                         // columns of one expert
constexpr int64_t kMostLayers = 1024;

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_FIELDS_CONFIG_LIMITS_H_
