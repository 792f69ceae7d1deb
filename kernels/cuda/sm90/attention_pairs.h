#ifndef ANNULUS_KERNELS_CUDA_SM90_ATTENTION_PAIRS_H_
#define ANNULUS_KERNELS_CUDA_SM90_ATTENTION_PAIRS_H_

#include <cstdint>

#include "kernels/cuda/sm90/attention.h"

namespace annulus::cuda {

// LaunchHopperAttentionBf16 by clusters of two blocks, bit for bit. A cluster computes a pair of
// units at a time, one in each block. The blocks copy the same tiles of keys and values, half of
// each, and every copy goes to both: so the L2 cache is read once for 256 rows instead of 128. The
// cluster that is done first takes the next pair, from a counter in device memory. On trial: see
// trial.h.
struct PairedAttentionArguments {
  // Units come in pairs: 2 p and 2 p + 1 are of one item and kv head, and begin with the same page
  // (tuning/unit_pairs.h). A unit without rows takes part in the copies alone.
  HopperAttentionArguments hopper;
  int32_t* next;  // 0 before the launch
};
// The larger of k_dim and v_dim that this serves, at least and at most; and only without a window.
inline constexpr int kLeastPairedDim = 65;
inline constexpr int kMostPairedDim = 128;
inline constexpr int kPairBlocks = 2;
// Returns 0 or CUDA's error number.
using PairedAttentionLaunch = int (*)(StreamHandle stream, int64_t clusters,
                                      const PairedAttentionArguments& arguments);
int LaunchPairedAttention(StreamHandle stream, int64_t clusters,
                          const PairedAttentionArguments& arguments);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM90_ATTENTION_PAIRS_H_
