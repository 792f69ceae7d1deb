#ifndef ANNULUS_KERNELS_CPU_SIMD_SCORES_H_
#define ANNULUS_KERNELS_CPU_SIMD_SCORES_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kernels/cpu/host/cpu_stream.h"
#include "kernels/cpu/simd/dot_kernels.h"
#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/page_layout.h"
#include "kernels/ops/block_scores.h"

// What the two implementations of block scores share.

namespace annulus::cpu {

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

// Reads the scales of `count` int8 keys of a head, starting at `slot`.
inline void ReadScales(const PageLayout& layout, const KvPageView& page, int head, int slot,
                       int count, float* scales) {
  const int64_t at = layout.k_scales(head) + slot * int64_t{sizeof(BFloat16)};
  ConvertToFloat(DType::kBF16, page.data + at, scales, count);
}

// BlockScores with stride 8 or 16 over paired bf16 pages, as matrix products: a page stores 16 keys
// as one row of 16 * k_dim numbers, and the queries that meet them are packed in the same order.
absl::Status BlockScoresByProducts(const DotKernels& dot, const SimdKernels& isa, CpuStream& stream,
                                   const BlockScoresParams& params);

}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_SIMD_SCORES_H_
