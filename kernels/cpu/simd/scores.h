#ifndef ANNULUS_KERNELS_CPU_SIMD_SCORES_H_
#define ANNULUS_KERNELS_CPU_SIMD_SCORES_H_

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kernels/base/exp_of_negative.h"
#include "kernels/cpu/host/cpu_stream.h"
#include "kernels/cpu/simd/dot_kernels.h"
#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/page_layout.h"
#include "kernels/ops/block_scores.h"

// What the two implementations of block scores share.

namespace annulus::cpu {

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
