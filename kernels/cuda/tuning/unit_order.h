#ifndef ANNULUS_KERNELS_CUDA_TUNING_UNIT_ORDER_H_
#define ANNULUS_KERNELS_CUDA_TUNING_UNIT_ORDER_H_

#include <cstdint>
#include <span>

#include "kernels/cuda/sm80/attention.h"
#include "kernels/ops/attention.h"

namespace annulus::cuda {

// How much of the L2 cache a section's keys and values may fill. The H100 and H200 have 50 MB or
// more, which queries, outputs and the blocks of the next section need too. The value is that of
// FlashAttention-3.
inline constexpr int64_t kSectionBytes = int64_t{32} << 20;

// Sorts units of many rows into the order in which they start. No result depends on the order.
//
// If `section_bytes` is 0, the longest unit starts first, so that none begins late and ends last.
// Then blocks read the keys of all kv heads at the same time: 8 heads of 131,072 tokens in bf16 are
// 537 MB, which no cache holds.
//
// Otherwise units start section by section, and within a section the longest first. A section is a
// set of pairs of an item and a kv head, whose keys and values together have at most
// `section_bytes` bytes; a pair that has more is a section of its own. Pairs with the longest units
// come first, so the op ends with short ones.
//
// The pages of `units` index the pages of their items or, if an item has lists, those lists. A
// pair's bytes are those of all pages between the first and the last that any of its units names.
// Pure. Source: FlashAttention-3, hopper/tile_scheduler.hpp, DynamicPersistentTileScheduler.
void SortUnits(const AttentionParams& params, int64_t section_bytes,
               std::span<AttentionUnit> units);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_TUNING_UNIT_ORDER_H_
