#ifndef ANNULUS_KERNELS_CPU_ISA_NARROW_KEYS_H_
#define ANNULUS_KERNELS_CPU_ISA_NARROW_KEYS_H_

#include <cstdint>

#include "kernels/cpu/simd/kernels.h"

// Widens keys and values of the 8-bit types to float32, exactly, so that attention works on float32
// pages. This takes one pass per query block, and all rows of the block share its cost.

namespace annulus::cpu {
namespace {  // internal linkage on purpose: see simd/kernels.h

inline float WidenScale(Bf16 scale) {
  float wide;
  const uint32_t bits = static_cast<uint32_t>(scale.bits) << 16;
  __builtin_memcpy(&wide, &bits, sizeof(wide));
  return wide;
}

// from[c] * scales[c % 16] for `count` elements, a multiple of 16.
template <class V, class T>
void WidenArray(const T* from, const float* scales, float* to, int64_t count) {
  for (int64_t c = 0; c < count; c += kPanel) {
    for (int lane = 0; lane < kPanel; lane += V::kLanes) {
      V::Store(to + c + lane, V::Mul(V::Load(from + c + lane), V::Load(scales + lane)));
    }
  }
}

template <class V, class T>
void WidenKeys(const NarrowKeys& keys) {
  constexpr bool kScaled = __is_same(T, int8_t);
  alignas(64) float scales[kPanel];
  for (int lane = 0; lane < kPanel; ++lane) scales[lane] = 1;
  for (int slot = keys.begin; slot < keys.end; slot += kPanel) {
    if (kScaled) {
      for (int s = 0; s < kPanel; ++s) scales[s] = WidenScale(keys.k_scales[slot + s]);
    }
    WidenArray<V>(static_cast<const T*>(keys.k) + int64_t{slot} * keys.k_dim, scales,
                  static_cast<float*>(keys.wide_k) + int64_t{slot - keys.begin} * keys.k_dim,
                  int64_t{kPanel} * keys.k_dim);
  }
  for (int slot = keys.begin; slot < keys.end; ++slot) {
    if (kScaled) {
      for (int s = 0; s < kPanel; ++s) scales[s] = WidenScale(keys.v_scales[slot]);
    }
    WidenArray<V>(static_cast<const T*>(keys.v) + int64_t{slot} * keys.v_stride, scales,
                  static_cast<float*>(keys.wide_v) + int64_t{slot - keys.begin} * keys.v_stride,
                  keys.v_stride);
  }
}

}  // namespace
}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_ISA_NARROW_KEYS_H_
