#ifndef ANNULUS_KERNELS_OPS_STREAMS_H_
#define ANNULUS_KERNELS_OPS_STREAMS_H_

#include "kernels/base/tensor_view.h"

// Ops of models that keep several residuals of a row, its streams, of which layers compute one:
// alternating updates, AltUp (Baykal et al. 2023), as Gemma 3n has them. A row of streams is
// [count, hidden]. Every op computes a row by itself, in an order that depends only on the shapes.

namespace annulus {

inline constexpr int kMostStreams = 8;

// What a router's logits make of a row's streams: a factor is
//   factor(n) = sum_k weights[n, k] * tanh(logits[r, k])
struct StreamFactors {
  ConstMatrixView logits;          // [rows, count], count from 1 to kMostStreams
  const float* weights = nullptr;  // [factors, count]
};

// Before a layer, which computes stream `active`:
//   streams[r, j, :] += sum_i factor(j * count + i) * streams[r, i, :], of the values before
//   output[r, :] = streams[r, active, :]
struct PredictStreamsParams {
  StreamFactors factors;  // [count * count, count]
  int active = 0;
  MatrixView streams;  // [rows, count * hidden]
  MatrixView output;   // [rows, hidden]; must not overlap streams
};

// After it, where it gave `computed`:
//   streams[r, i, :] += (1 + factor(i)) * (computed[r, :] - streams[r, active, :]), of the values
//   before
//   output[r, :] = streams[r, active, :] * scale
struct CorrectStreamsParams {
  StreamFactors factors;  // [count, count]
  int active = 0;
  ConstMatrixView computed;      // [rows, hidden]; must not overlap the others
  const float* scale = nullptr;  // [hidden], or null: 1
  MatrixView streams;            // [rows, count * hidden]
  MatrixView output;             // [rows, hidden]; must not overlap streams
};

// output[r, :] (+)= input[r, :] * sqrt(mean_i(like[r, i]^2) / max(mean_i(input[r, i]^2), floor)):
// gives a row the magnitude of another. With `accumulate` it is added. The output may be the input.
struct MatchMagnitudeParams {
  ConstMatrixView input;  // [rows, cols]
  ConstMatrixView like;   // [rows, cols]
  float floor = 0;        // > 0
  MatrixView output;      // [rows, cols]
  bool accumulate = false;
};

// values[r, i] = max(0, values[r, i] - cutoff), where cutoff = mean_i(values[r, i]) + deviations *
// the standard deviation of the row (of the whole row, not of a sample). If a row were normally
// distributed, a known part of it would stay (You et al. 2025, "Spark Transformer", section 3).
struct CutOffParams {
  MatrixView values;  // [rows, cols], cols >= 1
  float deviations = 0;
};

}  // namespace annulus

#endif  // ANNULUS_KERNELS_OPS_STREAMS_H_
