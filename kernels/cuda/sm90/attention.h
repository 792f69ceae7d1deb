#ifndef ANNULUS_KERNELS_CUDA_SM90_ATTENTION_H_
#define ANNULUS_KERNELS_CUDA_SM90_ATTENTION_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/common/tensor_map.h"
#include "kernels/cuda/sm80/attention.h"

// Launches of prefill attention by the engines of compute capability 9.0: units of many rows over
// pages of 16 or 8 bits, k_dim and v_dim up to 256, no dilated branches. All else is sm80/'s.

namespace annulus::cuda {

// The rows of a unit, whatever the head dimension.
inline constexpr int kHopperRows = 128;
// Slots of a tile: of 256 columns so many that queries and two tiles each of keys and values fit in
// shared memory, and scores, weights and an output of 256 columns in a thread's registers.
constexpr int HopperKeys(int dim) { return dim > 128 ? 64 : 128; }

// Pages are read as tensors [pages][kv_heads * page_tokens][dim]: page p starts at first_page +
// (p << page_shift), see tuning/attention_path.h.
struct HopperAttentionArguments {
  AttentionArguments attention;
  int64_t units;  // of attention.units, those of the prefill shape
  const std::byte* first_page;
  int page_shift;
  int box_slots;  // of a page that one copy moves: divides page_tokens and HopperKeys
  TensorMap keys;
  TensorMap values;
};

// `dim`: the larger of k_dim and v_dim, at most 256. `blocks`: of the grid, each of which computes
// one unit after the other. 0 or the number of CUDA's error.
int LaunchHopperAttentionBf16(StreamHandle stream, int dim, int64_t blocks,
                              const HopperAttentionArguments& arguments);
int LaunchHopperAttentionF16(StreamHandle stream, int dim, int64_t blocks,
                             const HopperAttentionArguments& arguments);
// int8, e4m3 and e5m2, which are multiplied as bf16.
int LaunchHopperAttentionNarrow(StreamHandle stream, int dim, int64_t blocks,
                                const HopperAttentionArguments& arguments);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM90_ATTENTION_H_
