// Reference of the ops on several residuals of a row.
#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/reference/reference.h"
#include "kernels/ops/checks.h"

namespace annulus::reference {
namespace {

float Factor(const StreamFactors& factors, int64_t row, int64_t which) {
  const int64_t count = factors.logits.cols;
  float sum = 0;
  for (int64_t k = 0; k < count; ++k) {
    sum += factors.weights[which * count + k] * std::tanh(factors.logits.row(row)[k]);
  }
  return sum;
}

float MeanSquare(const float* row, int64_t cols) {
  float sum = 0;
  for (int64_t i = 0; i < cols; ++i) sum += row[i] * row[i];
  return sum / static_cast<float>(cols);
}

}  // namespace

absl::Status PredictStreams(Stream&, const PredictStreamsParams& params) {
  CheckPredictStreams(params);
  const int64_t count = params.factors.logits.cols;
  const int64_t hidden = params.output.cols;
  for (int64_t r = 0; r < params.output.rows; ++r) {
    float* const streams = params.streams.row(r);
    for (int64_t c = 0; c < hidden; ++c) {
      std::array<float, kMostStreams> before{};
      for (int64_t i = 0; i < count; ++i) before[i] = streams[i * hidden + c];
      for (int64_t j = 0; j < count; ++j) {
        float sum = before[j];
        for (int64_t i = 0; i < count; ++i) {
          sum += Factor(params.factors, r, j * count + i) * before[i];
        }
        streams[j * hidden + c] = sum;
      }
      params.output.row(r)[c] = streams[params.active * hidden + c];
    }
  }
  return absl::OkStatus();
}

absl::Status CorrectStreams(Stream&, const CorrectStreamsParams& params) {
  CheckCorrectStreams(params);
  const int64_t count = params.factors.logits.cols;
  const int64_t hidden = params.output.cols;
  for (int64_t r = 0; r < params.output.rows; ++r) {
    float* const streams = params.streams.row(r);
    for (int64_t c = 0; c < hidden; ++c) {
      const float change = params.computed.row(r)[c] - streams[params.active * hidden + c];
      for (int64_t i = 0; i < count; ++i) {
        streams[i * hidden + c] += (1 + Factor(params.factors, r, i)) * change;
      }
      const float scale = params.scale == nullptr ? 1 : params.scale[c];
      params.output.row(r)[c] = streams[params.active * hidden + c] * scale;
    }
  }
  return absl::OkStatus();
}

absl::Status MatchMagnitude(Stream&, const MatchMagnitudeParams& params) {
  CheckMatchMagnitude(params);
  const int64_t cols = params.output.cols;
  for (int64_t r = 0; r < params.output.rows; ++r) {
    const float own = std::max(MeanSquare(params.input.row(r), cols), params.floor);
    const float factor = std::sqrt(MeanSquare(params.like.row(r), cols)) / std::sqrt(own);
    for (int64_t i = 0; i < cols; ++i) {
      float& output = params.output.row(r)[i];
      output = params.input.row(r)[i] * factor + (params.accumulate ? output : 0);
    }
  }
  return absl::OkStatus();
}

absl::Status CutOff(Stream&, const CutOffParams& params) {
  CheckCutOff(params);
  const auto count = static_cast<float>(params.values.cols);
  for (int64_t r = 0; r < params.values.rows; ++r) {
    float* const x = params.values.row(r);
    float mean = 0;
    for (int64_t i = 0; i < params.values.cols; ++i) mean += x[i];
    mean /= count;
    float squares = 0;
    for (int64_t i = 0; i < params.values.cols; ++i) squares += (x[i] - mean) * (x[i] - mean);
    const float cutoff = mean + params.deviations * std::sqrt(squares / count);
    for (int64_t i = 0; i < params.values.cols; ++i) x[i] = std::max(0.0f, x[i] - cutoff);
  }
  return absl::OkStatus();
}

}  // namespace annulus::reference
