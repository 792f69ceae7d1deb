#ifndef ANNULUS_KERNELS_CUDA_SM80_SAMPLING_H_
#define ANNULUS_KERNELS_CUDA_SM80_SAMPLING_H_

#include <cstdint>

#include "kernels/cuda/common/stream_handle.h"
#include "kernels/ops/sampling.h"

namespace annulus::cuda {

// kernels/ops/sampling.h, one block for each row. `rows` and `tokens` are of logits.rows; all
// pointers, those inside of rows too, are addresses that the device reaches. Returns 0 or the
// number of CUDA's error.
struct SampleArguments {
  MatrixView logits;
  const SampleRow* rows;
  int32_t* tokens;
};
int LaunchSample(StreamHandle stream, const SampleArguments& arguments);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM80_SAMPLING_H_
