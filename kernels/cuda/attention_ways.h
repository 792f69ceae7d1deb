#ifndef ANNULUS_KERNELS_CUDA_ATTENTION_WAYS_H_
#define ANNULUS_KERNELS_CUDA_ATTENTION_WAYS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cuda/sm90/attention.h"
#include "kernels/registry.h"

namespace annulus::cuda {

// A launch of sm90/attention.h. Returns 0 or CUDA's error number.
using HopperLaunch = int (*)(StreamHandle stream, int dim, int64_t blocks,
                             const HopperAttentionArguments& arguments);

// OpTable::attention of "cuda/sm90", with units of many rows over pages of kF8E4M3 whose larger
// dimension is at most kMostFloat8Dim by `float8`, a launch like LaunchFloat8Attention.
absl::Status HopperAttentionBy(HopperLaunch float8, Stream& stream, const AttentionParams& params);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_ATTENTION_WAYS_H_
