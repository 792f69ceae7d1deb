// Products of few rows with packed weights by tensor cores, as decoding makes them: their time is
// that of reading the weights once. A block has all rows and takes groups of 8 * tiles outputs, one
// after the other; its warps share the depth, one part each, and their sums meet at the end in the
// order of linear_weights.h. So a row has the bits that linear_many_rows.cu gives it.
//
// A warp's weights pass through a ring in shared memory (weight_stream.h) and are widened on their
// way to the registers. Inputs: few_rows_inputs.h. Compiled without contraction.
#include <type_traits>

#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/sm80/few_rows_inputs.h"
#include "kernels/cuda/sm80/few_rows_work.h"
#include "kernels/cuda/sm80/weight_stream.h"

namespace annulus::cuda {
namespace {

constexpr int kRows = static_cast<int>(kFewRows);
constexpr int kThreads = kDepthParts * kWarp;

// Shared memory: a ring for every warp, then the inputs of every warp (unused by more than 8 rows),
// then BlockRows.
constexpr int RingBytes(int tiles) { return StreamStages(tiles) * 8 * tiles * 128; }

// The scales of 4-bit codes, a stage ahead: lane i has those of outputs i, i + 32 .. of the group,
// for each unit those of both steps in one word.
template <int kTiles>
class StageScales {
 public:
  static constexpr int kUnits = 4;  // of a stage
  static constexpr int kOwn = (8 * kTiles + kWarp - 1) / kWarp;

  ANNULUS_DEVICE StageScales(const WeightView& w, const Part& part, int stages)
      : weight_(w),
        begin_(static_cast<int>(part.begin)),
        stages_(stages),
        output_(static_cast<int>(BlockX()) * 8 * kTiles + Lane()) {
    Ask();
  }

  ANNULUS_DEVICE void Next() {
#pragma unroll
    for (int r = 0; r < kOwn; ++r) {
#pragma unroll
      for (int u = 0; u < kUnits; ++u) now_[r][u] = next_[r][u];
    }
    if (++stage_ == stages_) {
      stage_ = 0;
      output_ += static_cast<int>(GridX()) * 8 * kTiles;
    }
    Ask();
  }

  // Those of both steps of a unit, of output g of a tile.
  ANNULUS_DEVICE uint32_t Of(int unit, int tile) const {
    return ShuffleFrom(now_[tile / 4][unit], tile % 4 * 8 + Lane() / 4);
  }

 private:
  ANNULUS_DEVICE void Ask() {
    const bool thirty_two = weight_.dtype == DType::kI4G32;
    const int first = static_cast<int>(Unhoisted(static_cast<uint32_t>(output_)));
#pragma unroll
    for (int r = 0; r < kOwn; ++r) {
      const int64_t output = first + r * kWarp;
      const bool exists = Lane() + r * kWarp < 8 * kTiles && output < weight_.out_features;
      const auto* const scales =
          reinterpret_cast<const uint16_t*>(weight_.scales + output * weight_.scale_bytes);
#pragma unroll
      for (int u = 0; u < kUnits; ++u) {
        const int depth = begin_ + (stage_ * kUnits + u) * kUnit;
        uint32_t low = 0;
        uint32_t high = 0;
        if (exists && depth < weight_.in_features) {
          low = scales[depth / (thirty_two ? kStep : kUnit)];
          high = low;
          if (thirty_two) {
            high = depth + kStep < weight_.in_features ? scales[depth / kStep + 1] : 0;
          }
        }
        next_[r][u] = low | high << 16;
      }
    }
  }

  const WeightView& weight_;
  const int begin_;  // of the part
  const int stages_;
  int output_;  // of this lane, the first
  int stage_ = 0;
  uint32_t now_[kOwn][kUnits];
  uint32_t next_[kOwn][kUnits];
};

// Of weights without groups.
struct NoScales {
  ANNULUS_DEVICE NoScales(const WeightView&, const Part&, int) {}
};

// The sums of a warp: of 8 rows (1: 16 rows) and two tiles of outputs. Element e belongs to row 2t
// + e % 2 and output g of tile e / 2.
template <int kHalves, int kTiles>
using Sums = float[kHalves][(kTiles + 1) / 2][4];

template <CodeForm kForm, int kTiles>
ANNULUS_DEVICE void LoadCodes(const std::byte* slot, int step, EightCodes<kForm> (&codes)[kTiles]) {
  const int g = Lane() / 4;
  const int at = step * (kStep * BitsOf(kForm) / 8) + Lane() % 4 * BitsOf(kForm);
  const std::byte* const own = slot + g * 128 + PlaceOfPiece(g, at / 16) * 16 + at % 16;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) codes[n] = LoadEight<kForm>(own + n * 8 * 128);
}

// One step of a warp: sums += its products. Weights are the first factor, so that one instruction
// multiplies two tiles of outputs by 8 rows. `scales`: of 4-bit codes, of output g of each tile.
template <CodeForm kForm, int kHalves, int kTiles>
ANNULUS_DEVICE void MultiplyStep(DType dtype, const EightCodes<kForm> (&codes)[kTiles],
                                 const Bytes16 (&rows)[kHalves], const float (&scales)[kTiles],
                                 Sums<kHalves, kTiles>& sums) {
  constexpr int kPairs = (kTiles + 1) / 2;
  uint32_t a[kPairs][2][4] = {};
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    uint32_t pairs[4];
    WidenEight<kForm>(dtype, codes[n], pairs);
#pragma unroll
    for (int p = 0; p < 4; ++p) a[n / 2][p / 2][p % 2 * 2 + n % 2] = pairs[p];
  }
#pragma unroll
  for (int h = 0; h < kHalves; ++h) {
    const uint32_t(&b)[4] = rows[h].words;
    if constexpr (kForm == CodeForm::kFourBits) {
      float products[kPairs][4];
#pragma unroll
      for (int m = 0; m < kPairs; ++m) Multiply(BFloat16{}, products[m], a[m][0], b[0], b[1]);
#pragma unroll
      for (int m = 0; m < kPairs; ++m) MultiplyAdd(BFloat16{}, products[m], a[m][1], b[2], b[3]);
#pragma unroll
      for (int i = 0; i < 2 * kTiles; ++i) {
        AddScaled(products[i / 4][i % 4], scales[i / 2], sums[h][i / 4][i % 4]);
      }
    } else {
#pragma unroll
      for (int m = 0; m < kPairs; ++m) MultiplyAdd(BFloat16{}, sums[h][m], a[m][0], b[0], b[1]);
#pragma unroll
      for (int m = 0; m < kPairs; ++m) MultiplyAdd(BFloat16{}, sums[h][m], a[m][1], b[2], b[3]);
    }
  }
}

// The sums of all warps' parts, in their order, to the output. A thread has one column.
template <int kTiles>
class GroupEnd {
 public:
  static constexpr int kOutputs = 8 * kTiles;
  static constexpr int kColumns = kOutputs > 32 ? 64 : 32;

  ANNULUS_DEVICE GroupEnd(const Work& work, int group)
      : work_(work), column_(group * kOutputs + Column()) {
    const LinearArguments& linear = work.linear;
    own_ = Column() < kOutputs && column_ < linear.weight.out_features && Row() < work.rows;
    if (own_ && !IsFourBit(linear.weight.dtype)) scale_ = LoadScale(linear.weight, column_, 0);
  }

  // `slot` is the same place of every warp's ring; its stage has been read.
  template <int kHalves>
  ANNULUS_DEVICE void Store(const Sums<kHalves, kTiles>& sums, int slot) const {
    float* const own = PartialSums(WarpIndex(), slot);
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
#pragma unroll
      for (int i = 0; i < 2 * kTiles; ++i) {
        own[(8 * h + Lane() % 4 * 2 + i % 2) * kOutputs + 8 * (i / 2) + Lane() / 4] =
            sums[h][i / 4][i % 4];
      }
    }
    SyncThreads();
    if (own_) {
      for (int row = Row(); row < work_.rows; row += kThreads / kColumns) {
        float total = 0;
#pragma unroll
        for (int part = 0; part < kDepthParts; ++part) {
          total += PartialSums(part, slot)[row * kOutputs + Column()];
        }
        const float input_scale = InputScale(work_.linear, work_.Input(row));
        StoreOutput(work_.linear, work_.Output(row), column_, total * input_scale * scale_);
      }
    }
    SyncThreads();
  }

 private:
  ANNULUS_DEVICE static int Column() { return ThreadIndex() % kColumns; }
  ANNULUS_DEVICE static int Row() { return ThreadIndex() / kColumns; }
  ANNULUS_DEVICE static float* PartialSums(int part, int slot) {
    return reinterpret_cast<float*>(SharedMemory() + part * RingBytes(kTiles) + slot);
  }

  const Work& work_;
  const int column_;
  bool own_;
  float scale_ = 1;
};
static_assert(kRows * static_cast<int>(sizeof(float)) <= 128);  // a slot holds the partial sums

// A stage of a warp: sums += its products.
template <CodeForm kForm, int kHalves, int kTiles, class Inputs, class Scales>
ANNULUS_DEVICE void MultiplyStage(DType dtype, const std::byte* slot, int first_unit,
                                  Inputs& inputs, const Scales& scales,
                                  Sums<kHalves, kTiles>& sums) {
  constexpr int kSteps = 128 * 8 / BitsOf(kForm) / kStep;
  EightCodes<kForm> codes[2][kTiles];
  LoadCodes<kForm, kTiles>(slot, 0, codes[0]);
#pragma unroll
  for (int u = 0; u < kSteps / 2; ++u) {
    const int unit = first_unit + u;
    if (unit >= inputs.units()) break;
    inputs.Take(unit);
    uint32_t both[kTiles] = {};
    if constexpr (kForm == CodeForm::kFourBits) {
#pragma unroll
      for (int n = 0; n < kTiles; ++n) both[n] = scales.Of(u, n);
    }
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const int step = 2 * u + s;
      Bytes16 rows[kHalves];
      inputs.Load(unit, s, rows);
      if (step + 1 < kSteps) LoadCodes<kForm, kTiles>(slot, step + 1, codes[(step + 1) % 2]);
      float own_scales[kTiles];
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        own_scales[n] = FloatOf(s == 0 ? both[n] << 16 : both[n] & 0xffff0000u);
      }
      MultiplyStep<kForm, kHalves, kTiles>(dtype, codes[step % 2], rows, own_scales, sums);
    }
  }
}

template <CodeForm kForm, int kHalves, int kTiles>
ANNULUS_DEVICE void MultiplyGroups(const Work& work) {
  constexpr int kBits = BitsOf(kForm);
  using Stream = WeightStream<kBits, kTiles>;
  static_assert(Stream::kBytes == RingBytes(kTiles));
  constexpr bool kFourBit = kForm == CodeForm::kFourBits;
  constexpr int kStageDepth = Stream::kStageBytes * 8 / kBits;
  const WeightView& w = work.linear.weight;
  const Part part = PartOfWarp(w.in_features);
  const int stages = static_cast<int>((PartDepth(w.in_features) + kStageDepth - 1) / kStageDepth);
  Stream stream(w, part, stages);
  std::conditional_t<kHalves == 1, ChunkInputs<kFourBit>, RowInputs<kFourBit>> inputs(
      work, part, SharedMemory() + kDepthParts * Stream::kBytes + WarpIndex() * kInputBytes);
  std::conditional_t<kFourBit, StageScales<kTiles>, NoScales> scales(w, part, stages);
  const int groups = static_cast<int>((w.out_features + 8 * kTiles - 1) / (8 * kTiles));
  int used = 0;  // stages
  for (int group = static_cast<int>(BlockX()); group < groups; group += static_cast<int>(GridX())) {
    const GroupEnd<kTiles> end(work, group);
    Sums<kHalves, kTiles> sums = {};
    for (int stage = 0; stage < stages; ++stage) {
      const std::byte* const slot = stream.Next();
      if constexpr (kFourBit) scales.Next();
      MultiplyStage<kForm, kHalves, kTiles>(w.dtype, slot, stage * (kStageDepth / kUnit), inputs,
                                            scales, sums);
    }
    used += stages;
    SyncWarp();
    end.template Store<kHalves>(sums, (used - 1) % Stream::kStages * Stream::kSlotBytes);
  }
  AsyncWait<0>();
}

template <CodeForm kForm, int kHalves>
ANNULUS_DEVICE void MultiplyRows(const Work& work) {
  switch (work.tiles) {
    case 1:
      return MultiplyGroups<kForm, kHalves, 1>(work);
    case 2:
      return MultiplyGroups<kForm, kHalves, 2>(work);
    default:
      return MultiplyGroups<kForm, kHalves, 4>(work);
  }
}

template <CodeForm kForm>
ANNULUS_DEVICE void MultiplyForm(const Work& work) {
  if (work.rows > 8) {
    MultiplyRows<kForm, 2>(work);
  } else {
    MultiplyRows<kForm, 1>(work);
  }
}

ANNULUS_KERNEL(kThreads, kFewRowsBlocks)
FewRowsTensorKernel(ANNULUS_ARGUMENT FewRowsArguments a) {
  const Work work = WorkOfBlock(a, kDepthParts * (RingBytes(a.tiles) + kInputBytes));
  if (work.rows == 0) return;
  switch (FormOf(work.linear.weight.dtype)) {
    case CodeForm::kFourBits:
      return MultiplyForm<CodeForm::kFourBits>(work);
    case CodeForm::kInt8:
      return MultiplyForm<CodeForm::kInt8>(work);
    case CodeForm::kFloat8:
      return MultiplyForm<CodeForm::kFloat8>(work);
    case CodeForm::kBFloat16:
      return MultiplyForm<CodeForm::kBFloat16>(work);
  }
}

}  // namespace

size_t FewRowsTensorBytes(int tiles) {
  return static_cast<size_t>(kDepthParts * (RingBytes(tiles) + kInputBytes)) + sizeof(BlockRows);
}

int LaunchFewRowsTensor(StreamHandle stream, const FewRowsArguments& arguments) {
  const Grid grid{.x = arguments.linear.input.rows > 0 ? arguments.blocks : 0,
                  .y = arguments.choices.experts == nullptr ? 1 : arguments.linear.output.rows,
                  .threads = kThreads,
                  .shared_bytes = FewRowsTensorBytes(arguments.tiles)};
  return Launch<FewRowsTensorKernel>(stream, grid, arguments);
}

}  // namespace annulus::cuda
