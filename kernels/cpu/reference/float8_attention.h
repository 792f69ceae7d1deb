#ifndef ANNULUS_KERNELS_CPU_REFERENCE_FLOAT8_ATTENTION_H_
#define ANNULUS_KERNELS_CPU_REFERENCE_FLOAT8_ATTENTION_H_

#include "absl/status/status.h"
#include "kernels/registry.h"

// Attention that multiplies in fp8_e4m3, in scalars: it rounds where sm90/float8_attention.h does,
// which computes the same with tensor cores. Source: FlashAttention-3 (Shah et al. 2024, arXiv
// 2407.08608), section 3.3, but for where scales come from.

namespace annulus::reference {

inline constexpr int kFloat8Tile = 128;    // slots
inline constexpr int kFloat8Headroom = 8;  // a tile's largest weight is 2^8; e4m3 ends at 448
inline constexpr int kFloat8Depth = 32;    // of one product

// kernels/ops/attention.h over pages of kF8E4M3 and items without branches; everything else is
// Attention. Both read the pages of "cpu/reference".
//
// Keys and values are codes already. The rest is rounded so:
// - The query of a row and head becomes codes with one scale (RoundToFloat8). If it has an infinity
//   or NaN, its output is NaN.
// - A score is a float32 sum of products of codes, kFloat8Depth at a time, times the query's scale.
// - A row takes the slots of its pages in tiles of kFloat8Tile, from the first page of its list on;
//   slots without a key count as slots. In a tile, whose largest score is m (in units of log 2), a
//   weight is 2^(score - m + kFloat8Headroom): the shift is of this row and tile alone.
// - A weight is rounded to e4m3 where it multiplies values, and not where weights are summed. The
//   largest is exact. Others have an error of at most 2^-4 of their own or 2^-18 of the largest,
//   whichever is more. Below that 2^-18 they count in the sum alone.
// - A tile's output is a sum of its own, which is then added to the row's in float32, times 2^(m -
//   base): the tensor cores of 9.0 keep about 14 bits of a sum (DeepSeek-AI 2024, arXiv 2412.19437,
//   section 3.3.2), so none may go on for longer than a tile. Here all sums are float32.
//
// With d the largest error of a row's scores, which e4m3 queries cause, and n its keys, an output
// is off by at most V (e^(2 d) - 1 + 2^-4 + n 2^-18) if no value exceeds V. A score's error is at
// most scale * sum(key * (2^-4 query + 2^-10 query_scale)), all positive.
//
// A row's bits depend neither on other rows nor on threads, but on which page its list begins with.
absl::Status Float8Attention(Stream& stream, const AttentionParams& params);

// `table` with Float8Attention, named after it ("..-fp8"), and with all ops of the reference that
// read or write pages. Not row_invariant: lists begin where a chunk's plan says.
OpTable WithFloat8Attention(const OpTable& table);

}  // namespace annulus::reference

#endif  // ANNULUS_KERNELS_CPU_REFERENCE_FLOAT8_ATTENTION_H_
