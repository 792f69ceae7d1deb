// Ops on several residuals of a row, of the SIMD path: made of the tables' kernels for rows, a few
// columns at a time, so that what a column needs stays in the first-level cache.
#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/simd/ops.h"
#include "kernels/ops/checks.h"

namespace annulus::cpu {
namespace {

constexpr int64_t kColumns = 256;

using Block = std::array<float, kColumns>;

// All factors of a row.
template <size_t kFactors>
std::array<float, kFactors> FactorsOf(const StreamFactors& factors, int64_t row, int64_t needed) {
  const int64_t count = factors.logits.cols;
  std::array<float, kMostStreams> inputs{};
  for (int64_t k = 0; k < count; ++k) inputs[k] = std::tanh(factors.logits.row(row)[k]);
  std::array<float, kFactors> made{};
  for (int64_t n = 0; n < needed; ++n) {
    float sum = 0;
    for (int64_t k = 0; k < count; ++k) sum += factors.weights[n * count + k] * inputs[k];
    made[n] = sum;
  }
  return made;
}

void PredictRow(const SimdKernels& isa, const PredictStreamsParams& params, int64_t row) {
  const int64_t count = params.factors.logits.cols;
  const int64_t hidden = params.output.cols;
  const auto factors = FactorsOf<kMostStreams * kMostStreams>(params.factors, row, count * count);
  float* const streams = params.streams.row(row);
  std::array<Block, kMostStreams> before;
  for (int64_t first = 0; first < hidden; first += kColumns) {
    const int64_t columns = std::min(kColumns, hidden - first);
    for (int64_t i = 0; i < count; ++i) {
      std::copy_n(streams + i * hidden + first, columns, before[i].data());
    }
    for (int64_t j = 0; j < count; ++j) {
      for (int64_t i = 0; i < count; ++i) {
        isa.add_scaled_row(before[i].data(), factors[j * count + i], streams + j * hidden + first,
                           columns);
      }
    }
  }
  std::copy_n(streams + params.active * hidden, hidden, params.output.row(row));
}

void CorrectRow(const SimdKernels& isa, const CorrectStreamsParams& params, int64_t row) {
  const int64_t count = params.factors.logits.cols;
  const int64_t hidden = params.output.cols;
  const auto factors = FactorsOf<kMostStreams>(params.factors, row, count);
  float* const streams = params.streams.row(row);
  const float* const active = streams + params.active * hidden;
  float* const output = params.output.row(row);
  Block change;
  for (int64_t first = 0; first < hidden; first += kColumns) {
    const int64_t columns = std::min(kColumns, hidden - first);
    std::copy_n(params.computed.row(row) + first, columns, change.data());
    isa.add_scaled_row(active + first, -1, change.data(), columns);
    for (int64_t i = 0; i < count; ++i) {
      isa.add_scaled_row(change.data(), 1 + factors[i], streams + i * hidden + first, columns);
    }
  }
  if (params.scale == nullptr) {
    std::copy_n(active, hidden, output);
  } else {
    for (int64_t c = 0; c < hidden; ++c) output[c] = active[c] * params.scale[c];
  }
}

// The sum of term(x) over a row, in an order that depends only on its length.
template <class Term>
float SumOver(const float* row, int64_t cols, const Term& term) {
  constexpr int64_t kLanes = 16;
  std::array<float, kLanes> sums{};
  int64_t i = 0;
  for (; i + kLanes <= cols; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) sums[lane] += term(row[i + lane]);
  }
  for (int64_t lane = 0; i + lane < cols; ++lane) sums[lane] += term(row[i + lane]);
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t lane = 0; lane < width; ++lane) sums[lane] += sums[lane + width];
  }
  return sums[0];
}

float MeanSquare(const float* row, int64_t cols) {
  return SumOver(row, cols, [](float x) { return x * x; }) / static_cast<float>(cols);
}

void CutOffRow(float* row, int64_t cols, float deviations) {
  const auto count = static_cast<float>(cols);
  const float mean = SumOver(row, cols, [](float x) { return x; }) / count;
  const float squares = SumOver(row, cols, [mean](float x) { return (x - mean) * (x - mean); });
  const float cutoff = mean + deviations * std::sqrt(squares / count);
  for (int64_t i = 0; i < cols; ++i) row[i] = std::max(0.0f, row[i] - cutoff);
}

}  // namespace

absl::Status PredictStreams(const SimdKernels& isa, CpuStream& stream,
                            const PredictStreamsParams& params) {
  CheckPredictStreams(params);
  const int64_t cost = 2 * params.streams.cols * params.factors.logits.cols;
  stream.ParallelRows(params.output.rows, cost, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) PredictRow(isa, params, r);
  });
  return absl::OkStatus();
}

absl::Status CorrectStreams(const SimdKernels& isa, CpuStream& stream,
                            const CorrectStreamsParams& params) {
  CheckCorrectStreams(params);
  stream.ParallelRows(params.output.rows, 3 * params.streams.cols, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) CorrectRow(isa, params, r);
  });
  return absl::OkStatus();
}

absl::Status MatchMagnitude(const SimdKernels& isa, CpuStream& stream,
                            const MatchMagnitudeParams& params) {
  CheckMatchMagnitude(params);
  const int64_t cols = params.output.cols;
  stream.ParallelRows(params.output.rows, 4 * cols, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* const input = params.input.row(r);
      float* const output = params.output.row(r);
      const float own = std::max(MeanSquare(input, cols), params.floor);
      const float factor = std::sqrt(MeanSquare(params.like.row(r), cols)) / std::sqrt(own);
      if (params.accumulate) {
        isa.add_scaled_row(input, factor, output, cols);
      } else {
        for (int64_t i = 0; i < cols; ++i) output[i] = input[i] * factor;
      }
    }
  });
  return absl::OkStatus();
}

absl::Status CutOff(CpuStream& stream, const CutOffParams& params) {
  CheckCutOff(params);
  const int64_t cols = params.values.cols;
  stream.ParallelRows(params.values.rows, 4 * cols, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) CutOffRow(params.values.row(r), cols, params.deviations);
  });
  return absl::OkStatus();
}

}  // namespace annulus::cpu
