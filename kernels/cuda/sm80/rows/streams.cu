// Ops on several residuals of a row (kernels/ops/streams.h), and the table of rotary angles. An
// argument selects which of them a launch computes, so they are one kernel: few families run the
// former, and the latter runs once a step. Compiled without contraction of products and sums, so
// that a kernel gives the bits that its formula gives. A row's bits depend on that row and the
// shapes alone.
//
// Bound by memory. For each row, in float32, with n streams of h columns, or c columns:
//
//   op               elements read    written    operations
//   predict_streams  n h              (n + 1) h  2 n^2 h
//   correct_streams  (n + 1) h        (n + 1) h  (3 n + 2) h
//   match_magnitude  2 c, or 3 c      c          5 c, or 6 c to accumulate
//   cut_off          c                c          6 c
//
// What a block reads a second time comes from a cache. Each block also makes the factors of its
// row, with 2 n^3 operations (2 n^2 to correct) and a hyperbolic tangent for every two of them. In
// Gemma 3n E4B, n is 4, h is 2048 and a gate has c = 16384: for each row predict_streams moves 72
// KiB, correct_streams 80, match_magnitude 24 or 32, cut_off 128.
#include <cmath>

#include "kernels/cuda/common/device.h"
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/sm80/rows/row_blocks.h"
#include "kernels/cuda/sm80/rows/streams.h"

namespace annulus::cuda {
namespace {

static_assert(kMostStreams * kMostStreams <= kRowThreads, "a thread makes one factor at most");

// The first `needed` factors of a row, in shared memory, for all threads of the block. Requires
// that nobody uses the shared memory.
ANNULUS_DEVICE const float* FactorsOf(const StreamFactors& a, int64_t row, int needed) {
  auto* const factors = reinterpret_cast<float*>(SharedMemory());
  const int count = static_cast<int>(a.logits.cols);
  const float* const logits = a.logits.row(row);
  const int own = ThreadIndex();
  if (own < needed) {
    float sum = 0;
    for (int k = 0; k < count; ++k) sum += a.weights[own * count + k] * tanhf(logits[k]);
    factors[own] = sum;
  }
  SyncThreads();
  return factors;
}

// One column of all streams, in registers: those from `count` on are 0.
struct StreamColumn {
  float values[kMostStreams];
};

ANNULUS_DEVICE StreamColumn LoadColumn(const float* first, int count, int64_t hidden) {
  StreamColumn column;
#pragma unroll
  for (int i = 0; i < kMostStreams; ++i) {
    column.values[i] = i < count ? first[i * hidden] : 0;
  }
  return column;
}

ANNULUS_DEVICE void Predict(const PredictStreamsParams& a) {
  const int count = static_cast<int>(a.factors.logits.cols);
  const int64_t hidden = a.output.cols;
  const RowPart part = PartOfRow(hidden);
  const float* const factors = FactorsOf(a.factors, part.row, count * count);
  for (int64_t c = part.begin; c < part.end; c += kRowThreads) {
    float* const streams = a.streams.row(part.row) + c;
    const StreamColumn before = LoadColumn(streams, count, hidden);
    for (int j = 0; j < count; ++j) {
      float sum = streams[j * hidden];  // read again: registers have no index
#pragma unroll
      for (int i = 0; i < kMostStreams; ++i) {
        if (i < count) sum += factors[j * count + i] * before.values[i];
      }
      streams[j * hidden] = sum;
      if (j == a.active) a.output.row(part.row)[c] = sum;
    }
  }
}

ANNULUS_DEVICE void Correct(const CorrectStreamsParams& a) {
  const int count = static_cast<int>(a.factors.logits.cols);
  const int64_t hidden = a.output.cols;
  const RowPart part = PartOfRow(hidden);
  const float* const factors = FactorsOf(a.factors, part.row, count);
  for (int64_t c = part.begin; c < part.end; c += kRowThreads) {
    float* const streams = a.streams.row(part.row) + c;
    const StreamColumn before = LoadColumn(streams, count, hidden);
    const float change = a.computed.row(part.row)[c] - streams[a.active * hidden];
#pragma unroll
    for (int i = 0; i < kMostStreams; ++i) {
      if (i < count) {
        const float corrected = before.values[i] + (1 + factors[i]) * change;
        streams[i * hidden] = corrected;
        if (i == a.active) {
          a.output.row(part.row)[c] = a.scale == nullptr ? corrected : corrected * a.scale[c];
        }
      }
    }
  }
}

// The mean of term(x) over a row, for all threads of the block. The order of the sum depends on
// `cols` alone. Requires that nobody uses the shared memory.
template <class Term>
ANNULUS_DEVICE float MeanOfRow(const float* row, int64_t cols, const Term& term) {
  float sum = 0;
  for (int64_t i = ThreadIndex(); i < cols; i += kRowThreads) sum += term(row[i]);
  return SumOfBlock(sum) / static_cast<float>(cols);
}

// A thread writes only elements that no other one reads, so the output may be the input.
ANNULUS_DEVICE void MatchRow(const MatchMagnitudeParams& a) {
  const auto square = [](float x) { return x * x; };
  const int64_t cols = a.output.cols;
  const float* const input = a.input.row(BlockX());
  const float own = MeanOfRow(input, cols, square);
  SyncThreads();
  const float wanted = MeanOfRow(a.like.row(BlockX()), cols, square);
  const float factor = sqrtf(wanted) / sqrtf(Larger(own, a.floor));
  float* const output = a.output.row(BlockX());
  for (int64_t i = ThreadIndex(); i < cols; i += kRowThreads) {
    const float value = input[i] * factor;
    output[i] = a.accumulate ? output[i] + value : value;
  }
}

ANNULUS_DEVICE void CutOffRow(const CutOffParams& a) {
  float* const x = a.values.row(BlockX());
  const int64_t cols = a.values.cols;
  const float mean = MeanOfRow(x, cols, [](float value) { return value; });
  SyncThreads();
  const float variance =
      MeanOfRow(x, cols, [mean](float value) { return (value - mean) * (value - mean); });
  const float cutoff = mean + a.deviations * sqrtf(variance);
  for (int64_t i = ThreadIndex(); i < cols; i += kRowThreads) x[i] = Larger(0.0f, x[i] - cutoff);
}

ANNULUS_DEVICE void TabulateAngles(const RopeTableArguments& a) {
  const RowPart part = PartOfRow(a.cosine.cols);
  for (int64_t i = part.begin; i < part.end; i += kRowThreads) {
    const double angle = static_cast<double>(a.inverse_frequencies[i]) * a.positions[part.row];
    a.cosine.row(part.row)[i] = static_cast<float>(cos(angle) * a.scale);
    a.sine.row(part.row)[i] = static_cast<float>(sin(angle) * a.scale);
  }
}

// One of five: the one whose output is there.
struct StreamsArguments {
  RopeTableArguments angles = {};
  PredictStreamsParams predict = {};
  CorrectStreamsParams correct = {};
  MatchMagnitudeParams match = {};
  CutOffParams cut = {};
};

ANNULUS_KERNEL(kRowThreads, 4) StreamsKernel(ANNULUS_ARGUMENT StreamsArguments a) {
  if (a.angles.cosine.data != nullptr) {
    TabulateAngles(a.angles);
  } else if (a.predict.output.data != nullptr) {
    Predict(a.predict);
  } else if (a.correct.output.data != nullptr) {
    Correct(a.correct);
  } else if (a.match.output.data != nullptr) {
    MatchRow(a.match);
  } else {
    CutOffRow(a.cut);
  }
}

// Blocks for parts of rows, each with room for `factors` factors.
Grid GridOfFactors(int64_t rows, int64_t hidden, int64_t factors) {
  Grid grid = GridOfRows(rows, hidden);
  grid.shared_bytes = static_cast<size_t>(factors) * sizeof(float);
  return grid;
}

}  // namespace

int LaunchPredictStreams(StreamHandle stream, const PredictStreamsParams& arguments) {
  const int64_t count = arguments.factors.logits.cols;
  return Launch<StreamsKernel>(
      stream, GridOfFactors(arguments.output.rows, arguments.output.cols, count * count),
      StreamsArguments{.predict = arguments});
}
int LaunchCorrectStreams(StreamHandle stream, const CorrectStreamsParams& arguments) {
  const int64_t count = arguments.factors.logits.cols;
  return Launch<StreamsKernel>(stream,
                               GridOfFactors(arguments.output.rows, arguments.output.cols, count),
                               StreamsArguments{.correct = arguments});
}
int LaunchMatchMagnitude(StreamHandle stream, const MatchMagnitudeParams& arguments) {
  return Launch<StreamsKernel>(stream, GridOfWholeRows(arguments.output.rows),
                               StreamsArguments{.match = arguments});
}
int LaunchCutOff(StreamHandle stream, const CutOffParams& arguments) {
  return Launch<StreamsKernel>(stream, GridOfWholeRows(arguments.values.rows),
                               StreamsArguments{.cut = arguments});
}
int LaunchRopeTable(StreamHandle stream, const RopeTableArguments& arguments) {
  return Launch<StreamsKernel>(stream, GridOfRows(arguments.cosine.rows, arguments.cosine.cols),
                               StreamsArguments{.angles = arguments});
}

}  // namespace annulus::cuda
