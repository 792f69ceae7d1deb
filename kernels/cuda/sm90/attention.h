#ifndef ANNULUS_KERNELS_CUDA_SM90_ATTENTION_H_
#define ANNULUS_KERNELS_CUDA_SM90_ATTENTION_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/common/tensor_map.h"
#include "kernels/cuda/sm80/attention.h"

// Launches of prefill attention that use the bulk copies (TMA) and warpgroup products (wgmma) of
// compute capability 9.0. For units of up to kHopperRows rows over pages of 16- or 8-bit values,
// with k_dim and v_dim up to 256, without dilated branches; sm80/ does everything else.

namespace annulus::cuda {

// Rows per unit, for every head dimension.
inline constexpr int kHopperRows = 128;
// Slots per tile. With 256 columns this is how many fit: queries and two tiles each of keys and
// values in shared memory; scores, weights and the output in a thread's registers.
constexpr int HopperKeys(int dim) { return dim > 128 ? 64 : 128; }

// Pages are read as tensors [pages][kv_heads * page_tokens][dim]. Page p starts at first_page + (p
// << page_shift); see tuning/attention_path.h.
struct HopperAttentionArguments {
  AttentionArguments attention;
  int64_t units;  // number of attention.units, all of the prefill shape
  const std::byte* first_page;
  int page_shift;
  int box_slots;    // slots that one copy moves: divides page_tokens and HopperKeys
  int whole_boxes;  // boxes that a unit leaves out at its beginning are a multiple of this
  TensorMap keys;
  TensorMap values;
};

// `dim` is the larger of k_dim and v_dim, at most 256. `blocks` is the size of the grid; each block
// computes one unit after the other. Returns 0 or CUDA's error number.
int LaunchHopperAttentionBf16(StreamHandle stream, int dim, int64_t blocks,
                              const HopperAttentionArguments& arguments);
int LaunchHopperAttentionF16(StreamHandle stream, int dim, int64_t blocks,
                             const HopperAttentionArguments& arguments);
// For int8, which is multiplied as bf16, and e4m3 and e5m2, as f16.
int LaunchHopperAttentionNarrow(StreamHandle stream, int dim, int64_t blocks,
                                const HopperAttentionArguments& arguments);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM90_ATTENTION_H_
