#ifndef ANNULUS_KERNELS_BASE_EXP_OF_NEGATIVE_H_
#define ANNULUS_KERNELS_BASE_EXP_OF_NEGATIVE_H_

#include <algorithm>
#include <bit>
#include <cstdint>

namespace annulus {

// exp(x) for x <= 0, with a relative error of up to 3e-6 + 2e-7 * |x|; 0 below -87. Uses plain
// operations only, so that the compiler can vectorise loops.
inline float ExpOfNegative(float x) {
  const float t = std::max(x, -88.0f) * 1.44269504f;
  const float shifted = t + 0x1.8p23f;
  const float f = t - (shifted - 0x1.8p23f);
  float p = 1.33335581e-3f;
  p = p * f + 9.61812910e-3f;
  p = p * f + 5.55041087e-2f;
  p = p * f + 2.40226507e-1f;
  p = p * f + 6.93147181e-1f;
  p = p * f + 1.0f;
  const uint32_t exponent = std::bit_cast<uint32_t>(shifted) << 23;
  return x < -87.0f ? 0.0f : std::bit_cast<float>(std::bit_cast<uint32_t>(p) + exponent);
}

}  // namespace annulus

#endif  // ANNULUS_KERNELS_BASE_EXP_OF_NEGATIVE_H_
