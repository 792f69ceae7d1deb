#ifndef ANNULUS_KERNELS_CUDA_SM80_SAMPLING_H_
#define ANNULUS_KERNELS_CUDA_SM80_SAMPLING_H_

#include <cstdint>

#include "kernels/cuda/common/stream_handle.h"
#include "kernels/ops/sampling.h"

namespace annulus::cuda {

// The op of kernels/ops/sampling.h, with one block per row. `rows` and `tokens` have logits.rows
// entries. All pointers, including those inside rows, are addresses that the device can reach.
// Returns 0 or CUDA's error number.
struct SampleArguments {
  MatrixView logits;
  const SampleRow* rows;
  int32_t* tokens;
};
int LaunchSample(StreamHandle stream, const SampleArguments& arguments);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM80_SAMPLING_H_
