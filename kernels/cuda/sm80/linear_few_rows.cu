// Products of few rows with packed weights by tensor cores, as decoding makes them: their time is
// that of reading the weights once. A block has all rows and takes groups of 8 * tiles outputs, one
// after the other; its warps share the depth, one part each, and their sums meet at the end in the
// order of linear_weights.h. So a row has the bits that linear_many_rows.cu gives it.
//
// A warp's weights pass through a ring in shared memory (few_rows/weight_stream.h) and are widened
// on their way to the registers. Compiled without contraction.
#include <type_traits>

#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/common/overlap.h"
#include "kernels/cuda/sm80/few_rows/tile.h"

namespace annulus::cuda {
namespace {

using namespace few_rows;

constexpr int kRows = static_cast<int>(kFewRows);
constexpr int kThreads = kDepthParts * kWarp;

// Shared memory: a ring for every warp, then the inputs of every warp (unused by more than 8 rows),
// then BlockRows. Rings have so few stages that two blocks fit on a multiprocessor.
constexpr int StreamStages(int tiles) { return 10 / tiles; }
constexpr int RingBytes(int tiles) { return StreamStages(tiles) * 8 * tiles * 128; }

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

template <CodeForm kForm, int kHalves, int kTiles>
ANNULUS_DEVICE void MultiplyGroups(const Work& work) {
  constexpr int kBits = BitsOf(kForm);
  using Stream = WeightStream<kBits, kTiles, StreamStages(kTiles), GridWalk>;
  static_assert(Stream::kBytes == RingBytes(kTiles));
  constexpr bool kFourBit = kForm == CodeForm::kFourBits;
  constexpr int kStageDepth = Stream::kStageBytes * 8 / kBits;
  const WeightView& w = work.linear.weight;
  const Part part = PartOfWarp(w.in_features);
  const int stages = static_cast<int>((PartDepth(w.in_features) + kStageDepth - 1) / kStageDepth);
  Stream stream(w, part, stages, GridWalk{});
  std::conditional_t<kFourBit, StageScales<kTiles, GridWalk, false>, NoScales> scales(
      w, part, stages, GridWalk{});
  WaitForEarlier();  // weights are on their way
  std::conditional_t<kHalves == 1, ChunkInputs<kFourBit>, RowInputs<kFourBit>> inputs(
      work, part, SharedMemory() + kDepthParts * Stream::kBytes + WarpIndex() * kInputBytes);
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

struct GroupsOfBlock {
  const Work& work;

  template <CodeForm kForm, int kHalves, int kTiles>
  ANNULUS_DEVICE void Run() const {
    MultiplyGroups<kForm, kHalves, kTiles>(work);
  }
};

ANNULUS_KERNEL(kThreads, kFewRowsBlocks)
FewRowsTensorKernel(ANNULUS_ARGUMENT FewRowsArguments a) {
  LetNextBegin();
  if (a.choices.experts != nullptr) WaitForEarlier();  // which weights they are is input, too
  const Work work = WorkOfBlock(a, kDepthParts * (RingBytes(a.tiles) + kInputBytes));
  if (work.rows == 0) return;
  RunShape(work.linear.weight.dtype, work.rows, work.tiles, GroupsOfBlock{work});
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
  return Launch<FewRowsTensorKernel>(stream, Overlapping(stream, grid), arguments);
}

}  // namespace annulus::cuda
