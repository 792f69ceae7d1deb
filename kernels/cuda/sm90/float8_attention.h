#ifndef ANNULUS_KERNELS_CUDA_SM90_FLOAT8_ATTENTION_H_
#define ANNULUS_KERNELS_CUDA_SM90_FLOAT8_ATTENTION_H_

#include "kernels/cuda/sm90/attention.h"

// Prefill attention of compute capability 9.0 that multiplies e4m3 by e4m3, at twice the rate of 16
// bits, instead of widening the codes of pages. On trial: see trial.h.

namespace annulus::cuda {

inline constexpr int kMostFloat8Dim = 128;

// The launch of attention.h for pages of kF8E4M3 whose larger dimension `dim` is at most
// kMostFloat8Dim. What it rounds, and the bound of its error: see
// kernels/cpu/reference/float8_attention.h, which it follows with tensor cores, except that
// - tiles begin at the unit's first box, not at the row's first page. It is the same unless a
//   window or a plan that divides keys lets a unit begin further on. Then other weights meet other
//   shifts, with errors of the same bound;
// - a score and a tile's output are sums of at most 128 products in about 14 bits: a part in 2^13
//   of the sum of their magnitudes;
// - a row that sees one key gets exactly its value.
// Bits depend on the plan, as in attention.h, so no row-invariant table may have it. Returns 0 or
// CUDA's error number.
int LaunchFloat8Attention(StreamHandle stream, int dim, int64_t blocks,
                          const HopperAttentionArguments& arguments);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM90_FLOAT8_ATTENTION_H_
