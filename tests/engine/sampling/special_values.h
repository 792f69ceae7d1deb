#ifndef ANNULUS_TESTS_ENGINE_SAMPLING_SPECIAL_VALUES_H_
#define ANNULUS_TESTS_ENGINE_SAMPLING_SPECIAL_VALUES_H_

#include <limits>

namespace annulus {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace annulus

#endif  // ANNULUS_TESTS_ENGINE_SAMPLING_SPECIAL_VALUES_H_
