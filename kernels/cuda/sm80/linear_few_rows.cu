// Products of few rows with packed weights, as decoding makes them: their time is that of reading
// the weights once. A block has all rows and 8 * tiles outputs; its warps share the depth, one part
// each, and their sums meet at the end in the order of linear_weights.h. So a row has the bits that
// the kernels of linear.cu and linear_many_rows.cu give it.
//
// A warp's weights pass through a ring in shared memory (weight_ring.h). Codes are widened on their
// way to the registers. Inputs are fetched into registers one chunk ahead, and pass through shared
// memory to the lanes that multiply them. Compiled without contraction.
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/sm80/few_rows_work.h"
#include "kernels/cuda/sm80/weight_ring.h"

namespace annulus::cuda {
namespace {

constexpr int kRows = static_cast<int>(kFewRows);
constexpr int kStep = static_cast<int>(kDepthStep);
constexpr int kThreads = kDepthParts * kWarp;
constexpr int kChunkSteps = 2;  // steps whose inputs are fetched at once

// Shared memory: a ring for every warp, over which the parts' sums are written at the end
// ([part][row][output]), then the inputs of every warp, then BlockRows.
template <class Element>
struct ChunkInputs {
  Element values[kChunkSteps][kRows][kStep];
};
using TensorInputs = ChunkInputs<uint16_t>;
using FloatInputs = ChunkInputs<float>;
static_assert(WeightRing::Bytes(1) >= kRows * 8 * static_cast<int>(sizeof(float)));

template <class Inputs>
ANNULUS_DEVICE Inputs& InputsOfWarp(int tiles) {
  return reinterpret_cast<Inputs*>(SharedMemory() +
                                   kDepthParts * WeightRing::Bytes(tiles))[WarpIndex()];
}

template <class Inputs>
ANNULUS_DEVICE Work TakeUpWork(const FewRowsArguments& a) {
  return WorkOfBlock(a,
                     kDepthParts * (WeightRing::Bytes(a.tiles) + static_cast<int>(sizeof(Inputs))));
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
ANNULUS_DEVICE void StoreChunk(const Chunk& chunk, int rows, int place, TensorInputs& inputs) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (r >= rows) break;
#pragma unroll
    for (int s = 0; s < kChunkSteps; ++s) {
      inputs.values[s][r][place] =
          static_cast<uint16_t>(Pack(BFloat16{}, chunk.values[r][s], 0.0f));
    }
  }
}
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
  const bool grouped = IsFourBit(linear.weight.dtype);
  for (int i = ThreadIndex(); i < work.rows * outputs; i += kThreads) {
    const int row = i / outputs;
    const int64_t column = BlockX() * outputs + i % outputs;
    if (column >= linear.weight.out_features) continue;
    float total = 0;
    for (int part = 0; part < kDepthParts; ++part) {
      total += PartialSums(part, row, work.tiles)[i % outputs];
    }
    const float scale = grouped ? 1 : LoadScale(linear.weight, column, 0);
    const float input_scale = InputScale(linear, work.Input(row));
    StoreOutput(linear, work.Output(row), column, total * input_scale * scale);
  }
}

// The scales of the next chunk's steps, of output `lane` of the block.
ANNULUS_DEVICE void LoadScales(const WeightView& w, int tiles, int64_t depth,
                               float (&scales)[kChunkSteps]) {
  const int64_t output = BlockX() * 8 * tiles + Lane();
#pragma unroll
  for (int s = 0; s < kChunkSteps; ++s) {
    const int64_t at = depth + s * kStep;
    const bool present = Lane() < 8 * tiles && output < w.out_features && at < w.in_features;
    scales[s] = present ? LoadScale(w, output, at) : 0;
  }
}

// This lane's operands of the two products of a step of the chunk: rows g and g + 8, elements 8t ..
// 8t + 7.
ANNULUS_DEVICE void LoadRows(const TensorInputs& inputs, int step, int rows, uint32_t (&a)[2][4]) {
  const int g = Lane() / 4;
  Bytes16 low{};
  Bytes16 high{};
  const auto& values = inputs.values[step];
  if (g < rows) low = *reinterpret_cast<const Bytes16*>(&values[g][Lane() % 4 * 8]);
  if (g + 8 < rows) high = *reinterpret_cast<const Bytes16*>(&values[g + 8][Lane() % 4 * 8]);
#pragma unroll
  for (int p = 0; p < 4; ++p) {
    a[p / 2][p % 2 * 2] = low.words[p];
    a[p / 2][p % 2 * 2 + 1] = high.words[p];
  }
}

using TensorSums = float[kMostTilesTensor][4];

// One step of a warp: sums += its products. `scale`: of 4-bit codes, of output `lane`.
template <CodeForm kForm>
ANNULUS_DEVICE void MultiplyStep(const Work& work, const WeightRing& ring, int step,
                                 const uint32_t (&a)[2][4], float scale, TensorSums& sums) {
  constexpr int kBits = BitsOf(kForm);
  constexpr int kStageSteps = WeightRing::kStageBytes * 8 / kBits / kStep;
  const int at = step % kStageSteps * (kStep * kBits / 8) + Lane() % 4 * kBits;
#pragma unroll
  for (int n = 0; n < kMostTilesTensor; ++n) {
    if (n >= work.tiles) break;
    uint32_t b[4];
    WidenEight<kForm>(work.linear.weight.dtype,
                      BytesOf(ring, step / kStageSteps, 8 * n + Lane() / 4, at), b);
    if constexpr (kForm == CodeForm::kFourBits) {
      float products[4] = {};
      MultiplyAdd(BFloat16{}, products, a[0], b[0], b[1]);
      MultiplyAdd(BFloat16{}, products, a[1], b[2], b[3]);
      const float even = ShuffleFrom(scale, 8 * n + Lane() % 4 * 2);
      const float odd = ShuffleFrom(scale, 8 * n + Lane() % 4 * 2 + 1);
#pragma unroll
      for (int e = 0; e < 4; ++e) AddScaled(products[e], e % 2 == 0 ? even : odd, sums[n][e]);
    } else {
      MultiplyAdd(BFloat16{}, sums[n], a[0], b[0], b[1]);
      MultiplyAdd(BFloat16{}, sums[n], a[1], b[2], b[3]);
    }
  }
}

template <CodeForm kForm>
ANNULUS_DEVICE void MultiplyPart(const Work& work, TensorSums& sums) {
  constexpr int kBits = BitsOf(kForm);
  constexpr int kStageSteps = WeightRing::kStageBytes * 8 / kBits / kStep;
  const LinearArguments& linear = work.linear;
  const Part part = PartOfWarp(linear.weight.in_features);
  const WeightRing ring = RingOfWarp<kBits>(linear.weight, part, work.tiles);
  TensorInputs& inputs = InputsOfWarp<TensorInputs>(work.tiles);
  const int eighth = Lane() % 8;
  const int place = kForm == CodeForm::kFourBits ? Lane() - eighth + eighth % 4 * 2 + eighth / 4
                                                 : Lane();  // see LowOfPair
  Chunk chunk;
  float scales[kChunkSteps] = {};
  float next_scales[kChunkSteps] = {};
  FetchFirst(ring);
  LoadChunk(work, part.begin, chunk);
  if constexpr (kForm == CodeForm::kFourBits)
    LoadScales(linear.weight, work.tiles, part.begin, next_scales);
  const int steps = static_cast<int>((part.end - part.begin) / kStep);
  for (int first = 0; first < steps; first += kChunkSteps) {
    SyncWarp();  // the chunk before has been read
    StoreChunk(chunk, work.rows, place, inputs);
    SyncWarp();
    const int64_t next = part.begin + (first + kChunkSteps) * kStep;
    LoadChunk(work, next, chunk);
    if constexpr (kForm == CodeForm::kFourBits) {
#pragma unroll
      for (int s = 0; s < kChunkSteps; ++s) scales[s] = next_scales[s];
      LoadScales(linear.weight, work.tiles, next, next_scales);
    }
#pragma unroll
    for (int s = 0; s < kChunkSteps; ++s) {
      const int step = first + s;
      if (step >= steps) break;
      if (step % kStageSteps == 0) NextStage(ring, step / kStageSteps);
      uint32_t a[2][4];
      LoadRows(inputs, s, work.rows, a);
      MultiplyStep<kForm>(work, ring, step, a, scales[s], sums);
    }
  }
  AsyncWait<0>();
}

ANNULUS_KERNEL(kThreads, 2)
FewRowsTensorKernel(ANNULUS_ARGUMENT FewRowsArguments a) {
  const Work work = TakeUpWork<TensorInputs>(a);
  if (work.rows == 0) return;
  TensorSums sums = {};
  switch (FormOf(work.linear.weight.dtype)) {
    case CodeForm::kFourBits:
      MultiplyPart<CodeForm::kFourBits>(work, sums);
      break;
    case CodeForm::kInt8:
      MultiplyPart<CodeForm::kInt8>(work, sums);
      break;
    case CodeForm::kFloat8:
      MultiplyPart<CodeForm::kFloat8>(work, sums);
      break;
    case CodeForm::kBFloat16:
      MultiplyPart<CodeForm::kBFloat16>(work, sums);
      break;
  }
  SyncThreads();  // rings have been read
#pragma unroll
  for (int n = 0; n < kMostTilesTensor; ++n) {
    if (n >= work.tiles) break;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      PartialSums(WarpIndex(), Lane() / 4 + e / 2 * 8, work.tiles)[8 * n + Lane() % 4 * 2 + e % 2] =
          sums[n][e];
    }
  }
  StoreSums(work);
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
  FloatInputs& inputs = InputsOfWarp<FloatInputs>(work.tiles);
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
  const Work work = TakeUpWork<FloatInputs>(a);
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

template <class Inputs>
size_t SharedBytes(int tiles) {
  return kDepthParts * (static_cast<size_t>(WeightRing::Bytes(tiles)) + sizeof(Inputs)) +
         sizeof(BlockRows);
}

Grid GridOf(const FewRowsArguments& arguments, size_t shared_bytes) {
  const int64_t outputs = 8 * arguments.tiles;
  const int64_t blocks = (arguments.linear.weight.out_features + outputs - 1) / outputs;
  return {.x = arguments.linear.input.rows > 0 ? blocks : 0,
          .y = arguments.choices.experts == nullptr ? 1 : arguments.linear.output.rows,
          .threads = kThreads,
          .shared_bytes = shared_bytes};
}

}  // namespace

size_t FewRowsTensorBytes(int tiles) { return SharedBytes<TensorInputs>(tiles); }
size_t FewRowsFloatBytes(int tiles) { return SharedBytes<FloatInputs>(tiles); }

int LaunchFewRowsTensor(StreamHandle stream, const FewRowsArguments& arguments) {
  const Grid grid = GridOf(arguments, FewRowsTensorBytes(arguments.tiles));
  return Launch<FewRowsTensorKernel>(stream, grid, arguments);
}
int LaunchFewRowsFloat(StreamHandle stream, const FewRowsArguments& arguments) {
  const Grid grid = GridOf(arguments, FewRowsFloatBytes(arguments.tiles));
  return Launch<FewRowsFloatKernel>(stream, grid, arguments);
}

}  // namespace annulus::cuda
