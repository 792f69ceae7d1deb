#ifndef ANNULUS_KERNELS_CUDA_SM80_MANY_ROWS_TILE_H_
#define ANNULUS_KERNELS_CUDA_SM80_MANY_ROWS_TILE_H_

// A block's tile of a product of many rows (linear_many_rows.cu), over all of the depth or a part.
//
// A block of 4 warps has 64 rows by 32 * tiles outputs, a warp all rows and 8 * tiles outputs, so
// each code is widened once per block. Both sides come by asynchronous copies, 64 of depth a stage,
// three stages deep; codes stay codes in shared memory and are widened on their way to the
// registers, so a stage costs one barrier.
//
// In a stage, a step of kDepthStep of the weights stands output by output without gaps: the 8, 16
// or 32 lanes that read together read 128 neighbouring bytes, and so do the 8 that copy. Of inputs
// it has 64 bytes a row, in pieces of 16 whose places differ between pairs of rows: so ldmatrix
// meets every bank once, too.
#include "kernels/cuda/sm80/linear_weights.h"

namespace annulus::cuda::many_rows {

inline constexpr int kStep = static_cast<int>(kDepthStep);
inline constexpr int kStages = 3;
inline constexpr int kSteps = static_cast<int>(kRoundedDepth) / kStep;  // of a stage
inline constexpr int kRows = static_cast<int>(kBlockRows);
inline constexpr int kPasses = kRows / 16;
inline constexpr int kWarps = 4;
inline constexpr int kThreads = kWarps * kWarp;
static_assert(kTileOutputs == kWarps * 8);
inline constexpr int kRowBytes = kStep * 2;  // of a step of a row

// Where a piece of a step of a row stands. 16 rows on it stands 16 rows on; piece ^ 2 stands at
// ^ 32.
ANNULUS_DEVICE int InputAt(int row, int piece) {
  return row * kRowBytes + (piece ^ (row >> 1 & 3)) * 16;
}

// Where a block's rows and outputs begin. Blocks that run together take kTogether tiles of rows,
// row by row, so that what they read is in the L2 cache: 1024 rows for each reading of the weights.
struct BlockPlace {
  int64_t row;
  int64_t output;
};
// `block` counts the places.
ANNULUS_DEVICE BlockPlace PlaceOfBlock(int64_t block, int64_t rows, int64_t outputs,
                                       int64_t block_outputs) {
  constexpr int64_t kTogether = 16;
  const int64_t down = (rows + kRows - 1) / kRows;
  const int64_t across = (outputs + block_outputs - 1) / block_outputs;
  const int64_t first = block / (kTogether * across) * kTogether;
  const int64_t at = block % (kTogether * across);
  const int64_t together = Smaller(kTogether, down - first);
  return {(first + at % together) * kRows, at / together * block_outputs};
}

template <CodeForm kForm, int kTiles>
struct Shape {
  static constexpr CodeForm form = kForm;
  static constexpr int tiles = kTiles;
  static constexpr bool grouped = kForm == CodeForm::kFourBits;
  static constexpr int outputs = kWarps * 8 * kTiles;
  static constexpr int output_bytes = kStep * BitsOf(kForm) / 8;  // of a step of an output

  struct Stage {
    alignas(128) std::byte inputs[kSteps][kRows * kRowBytes];
    alignas(128) std::byte weights[kSteps][outputs][output_bytes];
  };
};

template <int kTiles>
using Sums = float[kPasses][kTiles][4];

// Stages [begin, end) of the depth.
struct StageRange {
  int begin;
  int end;
};

// What a thread copies of each stage, from stage `first` on: a piece of 16 bytes of some rows and
// of some outputs. Every 16 threads have 128 bytes of each of the two steps.
template <class S>
class Copies {
 public:
  static constexpr int kPieces = S::output_bytes / 16;  // of a step of an output
  static constexpr int kRowsAtOnce = kThreads / 16 * 2;
  static constexpr int kOutputsAtOnce = kThreads / 16 * (8 / kPieces);

  ANNULUS_DEVICE Copies(const ManyRowsArguments& a, const BlockPlace& place, int first) {
    const WeightView& w = a.linear.weight;
    const int step = ThreadIndex() / 8 % kSteps;
    row_ = ThreadIndex() / 16 * 2 + ThreadIndex() / 4 % 2;
    output_ = ThreadIndex() / 16 * (8 / kPieces) + ThreadIndex() % 8 / kPieces;
    const int before = first * kSteps + step;
    const int row_piece = before * kRowBytes + ThreadIndex() % 4 * 16;
    const int piece = before * S::output_bytes + ThreadIndex() % kPieces * 16;
    row_bytes_ = a.depth * 2;
    output_bytes_ = w.row_bytes;
    rows_ = static_cast<int>(Smaller<int64_t>(a.linear.output.rows - place.row, kRows));
    outputs_ = static_cast<int>(Smaller<int64_t>(w.out_features - place.output, S::outputs));
    input_ = a.inputs + (place.row + row_) * row_bytes_ + row_piece;
    weight_ = w.values + (place.output + output_) * output_bytes_ + piece;
    steps_ = static_cast<int>((w.in_features + kStep - 1) / kStep) - before;
  }

  // Starts the copies of the next stage.
  ANNULUS_DEVICE void Start(typename S::Stage& stage) {
    const int step = ThreadIndex() / 8 % kSteps;
    const std::byte* input = input_;
    std::byte* to = stage.inputs[step] + InputAt(row_, ThreadIndex() % 4);
#pragma unroll
    for (int n = 0; n < kRows / kRowsAtOnce; ++n) {
      AsyncCopy16(to, input, row_ + n * kRowsAtOnce < rows_);
      input += kRowsAtOnce * row_bytes_;
      to += kRowsAtOnce * kRowBytes;
    }
    const std::byte* weight = weight_;
    to = &stage.weights[step][0][0] + output_ * S::output_bytes + ThreadIndex() % kPieces * 16;
#pragma unroll
    for (int n = 0; n < S::outputs; n += kOutputsAtOnce) {
      if (S::outputs < kOutputsAtOnce && output_ >= S::outputs) break;
      AsyncCopy16(to, weight, output_ + n < outputs_ && steps_ > 0);
      weight += kOutputsAtOnce * output_bytes_;
      to += kOutputsAtOnce * S::output_bytes;
    }
    input_ += kSteps * kRowBytes;
    weight_ += kSteps * S::output_bytes;
    steps_ -= kSteps;
  }

 private:
  const std::byte* input_;
  const std::byte* weight_;
  int64_t row_bytes_;
  int64_t output_bytes_;
  int row_;
  int output_;
  int rows_;
  int outputs_;
  int steps_;  // of the weights, from weight_ on
};

// The scales of 4-bit codes from stage `first` on: lane i has those of the warp's output i, fetched
// a stage ahead.
class GroupScales {
 public:
  ANNULUS_DEVICE GroupScales(const WeightView& w, int64_t first_output, int outputs, int first)
      : shift_(w.dtype == DType::kI4G32 ? 5 : 6), depth_(first * kSteps * kStep) {
    const int64_t output = first_output + Lane();
    if (Lane() >= outputs || output >= w.out_features) return;
    scales_ = reinterpret_cast<const uint16_t*>(w.scales + output * w.scale_bytes);
    end_ = static_cast<int>(w.in_features);
    Fetch();
  }

  // Gives those of the stage, and asks for the next stage's.
  ANNULUS_DEVICE void Next(float (&scales)[kSteps]) {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) scales[s] = WidenBFloat16(next_[s]);
    Fetch();
  }

 private:
  ANNULUS_DEVICE void Fetch() {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      next_[s] = depth_ < end_ ? scales_[depth_ >> shift_] : 0;
      depth_ += kStep;
    }
  }

  const uint16_t* scales_ = nullptr;
  const int shift_;  // log2 of a group's weights
  int depth_;
  int end_ = 0;
  uint32_t next_[kSteps] = {};
};

// A step's weights of a warp: of 8 outputs each; of 4-bit codes the scales of the lane's two
// columns.
template <int kTiles>
struct StepWeights {
  uint32_t pairs[kTiles][4];
  float scales[kTiles][2];
};

// `scale`: of 4-bit codes, of the warp's output `lane`.
template <class S>
ANNULUS_DEVICE void LoadStep(DType dtype, const typename S::Stage& stage, int step, float scale,
                             StepWeights<S::tiles>& weights) {
#pragma unroll
  for (int n = 0; n < S::tiles; ++n) {
    const int output = (WarpIndex() * S::tiles + n) * 8 + Lane() / 4;
    WidenEight<S::form>(dtype, &stage.weights[step][output][Lane() % 4 * BitsOf(S::form)],
                        weights.pairs[n]);
    if constexpr (S::grouped) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        weights.scales[n][e] = ShuffleFrom(scale, 8 * n + Lane() % 4 * 2 + e);
      }
    }
  }
}

// sums += 16 rows of a step, whose inputs for the step's two products are `a`, times its weights.
template <class S>
ANNULUS_DEVICE void MultiplyPass(const uint32_t (&a)[2][4], const StepWeights<S::tiles>& weights,
                                 float (&sums)[S::tiles][4]) {
  float products[S::tiles][4] = {};
#pragma unroll
  for (int k = 0; k < 2; ++k) {
#pragma unroll
    for (int n = 0; n < S::tiles; ++n) {
      MultiplyAdd(BFloat16{}, S::grouped ? products[n] : sums[n], a[k], weights.pairs[n][2 * k],
                  weights.pairs[n][2 * k + 1]);
    }
  }
  if constexpr (S::grouped) {
#pragma unroll
    for (int n = 0; n < S::tiles; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) AddScaled(products[n][e], weights.scales[n][e % 2], sums[n][e]);
    }
  }
}

// sums += a step's inputs times its weights; the second half of the rows where `all`.
template <class S>
ANNULUS_DEVICE void MultiplyStep(const typename S::Stage& stage, int step, bool all,
                                 const StepWeights<S::tiles>& weights, Sums<S::tiles>& sums) {
  constexpr int kHalf = kPasses / 2;
  const int own = InputAt(Lane() % 16, Lane() / 16);
#pragma unroll
  for (int half = 0; half < kPasses; half += kHalf) {
    if (half > 0 && !all) break;
    uint32_t rows[kHalf][2][4];
#pragma unroll
    for (int i = 0; i < 2 * kHalf; ++i) {
      LoadMatrices(rows[i / 2][i % 2],
                   stage.inputs[step] + (own ^ 32 * (i % 2)) + 16 * (half + i / 2) * kRowBytes);
    }
#pragma unroll
    for (int i = 0; i < kHalf; ++i) MultiplyPass<S>(rows[i], weights, sums[half + i]);
  }
}

// totals += sums, which become 0.
template <int kTiles>
ANNULUS_DEVICE void EndPart(Sums<kTiles>& sums, Sums<kTiles>& totals) {
#pragma unroll
  for (int i = 0; i < kPasses; ++i) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        totals[i][n][e] += sums[i][n][e];
        sums[i][n][e] = 0;
      }
    }
  }
}

template <int kTiles>
ANNULUS_DEVICE void StoreTile(const LinearArguments& a, const BlockPlace& place,
                              const Sums<kTiles>& totals) {
  const bool grouped = IsFourBit(a.weight.dtype);
  const int64_t first_row = place.row + Lane() / 4;
  float input_scales[2 * kPasses];  // of the lane's rows, 8 apart
#pragma unroll
  for (int r = 0; r < 2 * kPasses; ++r) {
    const int64_t row = first_row + 8 * r;
    input_scales[r] = row < a.output.rows ? InputScale(a, row) : 0;
  }
#pragma unroll
  for (int c = 0; c < 2 * kTiles; ++c) {
    const int64_t column =
        place.output + (WarpIndex() * kTiles + c / 2) * 8 + Lane() % 4 * 2 + c % 2;
    if (column >= a.weight.out_features) break;
    const float scale = grouped ? 1 : LoadScale(a.weight, column, 0);
#pragma unroll
    for (int r = 0; r < 2 * kPasses; ++r) {
      const int64_t row = first_row + 8 * r;
      if (row >= a.output.rows) break;
      const float total = totals[r / 2][c / 2][r % 2 * 2 + c % 2];
      StoreOutput(a, row, column, total * input_scales[r] * scale);
    }
  }
}

// The stages of one of the kDepthParts parts of the depth, in order; the last ones may be empty.
ANNULUS_DEVICE int StagesOfPart(const ManyRowsArguments& a) {
  return static_cast<int>(PartDepth(a.linear.weight.in_features) / kRoundedDepth);
}

// totals += the products over `range`, which begins with a part, one part's sums after the other.
template <CodeForm kForm, int kTiles>
ANNULUS_DEVICE void MultiplyTile(const ManyRowsArguments& a, const BlockPlace& place,
                                 const StageRange& range, Sums<kTiles>& totals) {
  using S = Shape<kForm, kTiles>;
  auto* const stages = reinterpret_cast<typename S::Stage*>(SharedMemory());
  const WeightView& w = a.linear.weight;
  const bool all = a.linear.output.rows - place.row > kRows / 2;
  Copies<S> copies(a, place, range.begin);
  GroupScales scales(w, place.output + WarpIndex() * 8 * kTiles, S::grouped ? 8 * kTiles : 0,
                     range.begin);
  const auto start = [&](int stage, int slot) {
    if (stage < range.end) copies.Start(stages[slot]);
    AsyncCommit();
  };
  for (int slot = 0; slot < kStages - 1; ++slot) start(range.begin + slot, slot);
  const int part = StagesOfPart(a);
  int part_end = range.begin + part;
  Sums<kTiles> sums = {};
  int slot = 0;
  for (int stage = range.begin; stage < range.end; ++stage) {
    if (stage == part_end) {
      EndPart<kTiles>(sums, totals);
      part_end += part;
    }
    float stage_scales[kSteps] = {};
    if constexpr (S::grouped) scales.Next(stage_scales);
    AsyncWait<kStages - 2>();
    SyncThreads();  // all see this stage, and all have read the one before, which is filled anew
    start(stage + kStages - 1, slot == 0 ? kStages - 1 : slot - 1);
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      StepWeights<kTiles> weights;
      LoadStep<S>(w.dtype, stages[slot], s, stage_scales[s], weights);
      MultiplyStep<S>(stages[slot], s, all, weights, sums);
    }
    slot = slot + 1 == kStages ? 0 : slot + 1;
  }
  EndPart<kTiles>(sums, totals);
}

// MultiplyTile for the weights' form.
template <int kTiles>
ANNULUS_DEVICE void MultiplyForms(const ManyRowsArguments& a, const BlockPlace& place,
                                  const StageRange& range, Sums<kTiles>& totals) {
  switch (FormOf(a.linear.weight.dtype)) {
    case CodeForm::kFourBits:
      return MultiplyTile<CodeForm::kFourBits, kTiles>(a, place, range, totals);
    case CodeForm::kInt8:
      return MultiplyTile<CodeForm::kInt8, kTiles>(a, place, range, totals);
    case CodeForm::kFloat8:
      return MultiplyTile<CodeForm::kFloat8, kTiles>(a, place, range, totals);
    case CodeForm::kBFloat16:
      return MultiplyTile<CodeForm::kBFloat16, kTiles>(a, place, range, totals);
  }
}

}  // namespace annulus::cuda::many_rows

#endif  // ANNULUS_KERNELS_CUDA_SM80_MANY_ROWS_TILE_H_
