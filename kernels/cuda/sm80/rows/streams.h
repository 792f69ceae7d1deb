#ifndef ANNULUS_KERNELS_CUDA_SM80_ROWS_STREAMS_H_
#define ANNULUS_KERNELS_CUDA_SM80_ROWS_STREAMS_H_

#include <cstdint>

#include "kernels/base/tensor_view.h"
#include "kernels/cuda/common/stream_handle.h"
#include "kernels/ops/streams.h"

// Launches of the ops on several residuals of a row, and of the table of rotary angles, which
// shares their kernel. The op of the same name in kernels/ops/ says what each computes. All
// pointers are device addresses. Each function returns 0 or CUDA's error number.

namespace annulus::cuda {

int LaunchPredictStreams(StreamHandle stream, const PredictStreamsParams& arguments);
int LaunchCorrectStreams(StreamHandle stream, const CorrectStreamsParams& arguments);
int LaunchMatchMagnitude(StreamHandle stream, const MatchMagnitudeParams& arguments);
int LaunchCutOff(StreamHandle stream, const CutOffParams& arguments);

struct RopeTableArguments {
  const int32_t* positions;          // [rows]
  const float* inverse_frequencies;  // [pairs]
  float scale;
  MatrixView cosine;  // [rows, pairs]
  MatrixView sine;    // [rows, pairs]
};
int LaunchRopeTable(StreamHandle stream, const RopeTableArguments& arguments);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM80_ROWS_STREAMS_H_
