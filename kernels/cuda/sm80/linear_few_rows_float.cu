// Products of few rows with packed weights in float32, as linear_few_rows.cu makes them in bf16. A
// block has all rows and 8 * tiles outputs; its warps share the depth, one part each, and their
// sums meet at the end in the order of linear_weights.h. So a row has the bits that linear.cu gives
// it.
//
// A warp's weights pass through a ring in shared memory (few_rows/weight_ring.h). Inputs are
// fetched into registers one chunk ahead, and pass through shared memory to the lanes that multiply
// them. Compiled without contraction.
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/sm80/few_rows/weight_ring.h"
#include "kernels/cuda/sm80/few_rows/work.h"

namespace annulus::cuda {
namespace {

constexpr int kRows = static_cast<int>(kFewRows);
constexpr int kStep = static_cast<int>(kDepthStep);
constexpr int kThreads = kDepthParts * kWarp;
constexpr int kChunkSteps = 2;  // steps whose inputs are fetched at once

// Shared memory: a ring for every warp, over which the parts' sums are written at the end
// ([part][row][output]), then the inputs of every warp, then BlockRows.
struct FloatInputs {
  float values[kChunkSteps][kRows][kStep];
};
static_assert(WeightRing::Bytes(1) >= kRows * 8 * static_cast<int>(sizeof(float)));

ANNULUS_DEVICE FloatInputs& InputsOfWarp(int tiles) {
  return reinterpret_cast<FloatInputs*>(SharedMemory() +
                                        kDepthParts * WeightRing::Bytes(tiles))[WarpIndex()];
}

// Inputs of a chunk in registers: the lane has one element of every step.
struct Chunk {
  float values[kRows][kChunkSteps];
};

ANNULUS_DEVICE void LoadChunk(const Work& work, int64_t depth, Chunk& chunk) {
  const ConstMatrixView& input = work.linear.input;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (r >= work.rows) break;
    const float* const row = input.row(work.Input(r));
#pragma unroll
    for (int s = 0; s < kChunkSteps; ++s) {
      const int64_t at = depth + s * kStep + Lane();
      chunk.values[r][s] = at < input.cols ? row[at] : 0;
    }
  }
}

// To the warp's shared memory: element `lane` of a step at `place`.
ANNULUS_DEVICE void StoreChunk(const Chunk& chunk, int rows, int place, FloatInputs& inputs) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (r >= rows) break;
#pragma unroll
    for (int s = 0; s < kChunkSteps; ++s) inputs.values[s][r][place] = chunk.values[r][s];
  }
}

// The sums of all warps' parts, in their order, to the output. Before: every warp has written its
// own to PartialSums.
ANNULUS_DEVICE float* PartialSums(int part, int row, int tiles) {
  return reinterpret_cast<float*>(SharedMemory()) + (part * kRows + row) * 8 * tiles;
}
ANNULUS_DEVICE void StoreSums(const Work& work) {
  SyncThreads();
  const LinearArguments& linear = work.linear;
  const int outputs = 8 * work.tiles;
  for (int i = ThreadIndex(); i < work.rows * outputs; i += kThreads) {
    const int row = i / outputs;
    const int64_t column = BlockX() * outputs + i % outputs;
    if (column >= linear.weight.out_features) continue;
    float total = 0;
    for (int part = 0; part < kDepthParts; ++part) {
      total += PartialSums(part, row, work.tiles)[i % outputs];
    }
    StoreOutput(linear, work.Output(row), column, total);
  }
}

using FloatSums = float[kMostTilesFloat][kRows];

// 8 neighbouring weights in float32 out of the ring.
template <int kBits>
ANNULUS_DEVICE void LoadWeights(const WeightRing& ring, int stage, int output, int at,
                                float (&weights)[8]) {
  if constexpr (kBits == 32) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Bytes16 loaded =
          *reinterpret_cast<const Bytes16*>(BytesOf(ring, stage, output, at + 16 * half));
#pragma unroll
      for (int i = 0; i < 4; ++i) weights[4 * half + i] = FloatOf(loaded.words[i]);
    }
  } else {
    const Bytes16 loaded = *reinterpret_cast<const Bytes16*>(BytesOf(ring, stage, output, at));
#pragma unroll
    for (int i = 0; i < 8; ++i) weights[i] = WidenHalf(loaded.words[i / 2] >> 16 * (i % 2));
  }
}

template <int kBits>
ANNULUS_DEVICE void MultiplyStep(const Work& work, const WeightRing& ring, int step,
                                 const FloatInputs& inputs, FloatSums& sums) {
  constexpr int kStageSteps = WeightRing::kStageBytes * 8 / kBits / kStep;
  const int at = step % kStageSteps * (kStep * kBits / 8) + Lane() % 4 * kBits;
  float weights[kMostTilesFloat][8];
#pragma unroll
  for (int n = 0; n < kMostTilesFloat; ++n) {
    if (n >= work.tiles) break;
    LoadWeights<kBits>(ring, step / kStageSteps, 8 * n + Lane() / 4, at, weights[n]);
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (r >= work.rows) break;
    const float* const row = &inputs.values[step % kChunkSteps][r][Lane() % 4 * 8];
    const Bytes16 halves[2] = {reinterpret_cast<const Bytes16*>(row)[0],
                               reinterpret_cast<const Bytes16*>(row)[1]};
#pragma unroll
    for (int n = 0; n < kMostTilesFloat; ++n) {
      if (n >= work.tiles) break;
#pragma unroll
      for (int i = 0; i < 8; ++i) sums[n][r] += FloatOf(halves[i / 4].words[i % 4]) * weights[n][i];
    }
  }
}

template <int kBits>
ANNULUS_DEVICE void MultiplyPart(const Work& work, FloatSums& sums) {
  constexpr int kStageSteps = WeightRing::kStageBytes * 8 / kBits / kStep;
  const LinearArguments& linear = work.linear;
  const Part part = PartOfWarp(linear.weight.in_features);
  const WeightRing ring = RingOfWarp<kBits>(linear.weight, part, work.tiles);
  FloatInputs& inputs = InputsOfWarp(work.tiles);
  Chunk chunk;
  FetchFirst(ring);
  LoadChunk(work, part.begin, chunk);
  const int steps = static_cast<int>((part.end - part.begin) / kStep);
  for (int first = 0; first < steps; first += kChunkSteps) {
    SyncWarp();  // the chunk before has been read
    StoreChunk(chunk, work.rows, Lane(), inputs);
    SyncWarp();
    LoadChunk(work, part.begin + (first + kChunkSteps) * kStep, chunk);
    for (int step = first; step < Smaller(first + kChunkSteps, steps); ++step) {
      if (step % kStageSteps == 0) NextStage(ring, step / kStageSteps);
      MultiplyStep<kBits>(work, ring, step, inputs, sums);
    }
  }
  AsyncWait<0>();
}

ANNULUS_KERNEL(kThreads, 1)
FewRowsFloatKernel(ANNULUS_ARGUMENT FewRowsArguments a) {
  const Work work = WorkOfBlock(
      a, kDepthParts * (WeightRing::Bytes(a.tiles) + static_cast<int>(sizeof(FloatInputs))));
  if (work.rows == 0) return;
  FloatSums sums = {};
  if (work.linear.weight.dtype == DType::kF32) {
    MultiplyPart<32>(work, sums);
  } else {
    MultiplyPart<16>(work, sums);
  }
  SyncThreads();  // rings have been read
#pragma unroll
  for (int n = 0; n < kMostTilesFloat; ++n) {
    if (n >= work.tiles) break;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r >= work.rows) break;
      float sum = sums[n][r];
      sum += ShuffleXor(sum, 1);
      sum += ShuffleXor(sum, 2);
      if (Lane() % 4 == 0) PartialSums(WarpIndex(), r, work.tiles)[8 * n + Lane() / 4] = sum;
    }
  }
  StoreSums(work);
}

}  // namespace

size_t FewRowsFloatBytes(int tiles) {
  return kDepthParts * (static_cast<size_t>(WeightRing::Bytes(tiles)) + sizeof(FloatInputs)) +
         sizeof(BlockRows);
}

int LaunchFewRowsFloat(StreamHandle stream, const FewRowsArguments& arguments) {
  const Grid grid{.x = arguments.linear.input.rows > 0 ? arguments.blocks : 0,
                  .y = arguments.choices.experts == nullptr ? 1 : arguments.linear.output.rows,
                  .threads = kThreads,
                  .shared_bytes = FewRowsFloatBytes(arguments.tiles)};
  return Launch<FewRowsFloatKernel>(stream, grid, arguments);
}

}  // namespace annulus::cuda
