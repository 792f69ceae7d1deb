// See few_rows_cluster.h. What a warp computes is few_rows/tile.h. Compiled without contraction.
//
// Shared memory: a ring of weights for every warp, then the block's inputs, [step][row][kStep] in
// bf16 for 8 rows or 16, then the sums of some groups, [group][row][8 * tiles outputs], padded so
// that the 8 rows of a fragment meet other banks. Copies of weights do not stop where groups end,
// nor while sums are added.
#include <type_traits>

#include "kernels/cuda/common/cluster.h"
#include "kernels/cuda/common/overlap.h"
#include "kernels/cuda/sm80/few_rows/tile.h"
#include "kernels/cuda/sm90/few_rows_cluster.h"

namespace annulus::cuda {
namespace {

using namespace few_rows;

constexpr int kThreads = kStripeWarps * kWarp;
constexpr int kMostStages = 8;  // of a ring whose groups have one tile
constexpr int kRingBytes = kMostStages * 8 * 128;

constexpr int SumsStride(int tiles) { return 8 * tiles + 4; }
// The rows that inputs and sums have room for.
constexpr int RowRoom(int64_t rows) { return rows > 8 ? 16 : 8; }

// Bytes of a part of one row, rounded.
constexpr int64_t InputBytes(int64_t in_features) { return PartDepth(in_features) * 2; }

// The groups of the block's cluster.
struct Stripe {
  int begin;
  int end;
};
ANNULUS_DEVICE Stripe StripeOfCluster(const FewRowsClusterArguments& a) {
  const int64_t outputs = 8 * a.stripes.tiles;
  const int64_t groups = (a.linear.weight.out_features + outputs - 1) / outputs;
  const int64_t cluster = BlockX() / kDepthParts;
  return {static_cast<int>(cluster * groups / a.stripes.clusters),
          static_cast<int>((cluster + 1) * groups / a.stripes.clusters)};
}

// The warps of a block take the groups of a stripe by turns.
struct StripeWalk {
  int first;
  int64_t end;  // output

  ANNULUS_DEVICE int First() const { return first; }
  ANNULUS_DEVICE static int Step() { return kStripeWarps; }
  ANNULUS_DEVICE int64_t End(const WeightView&) const { return end; }
};

// Inputs that all warps of the block read: see few_rows/inputs.h.
template <int kHalves>
class SharedInputs {
 public:
  ANNULUS_DEVICE SharedInputs(const Part& part, std::byte* memory)
      : memory_(memory), units_(static_cast<int>((part.end - part.begin + kUnit - 1) / kUnit)) {}

  // All threads of the block write them.
  template <bool kFourBit>
  ANNULUS_DEVICE void Write(const ConstMatrixView& input, const Part& part) const {
    const bool aligned = HasAlignedFours(input);
    const int end = static_cast<int>(Smaller(part.end, input.cols));
    for (int i = ThreadIndex(); i < units_ * 2 * kStepBytes16; i += kThreads) {
      const int row = i / 4 % (8 * kHalves);
      const int at = static_cast<int>(part.begin) + i / kStepBytes16 * kStep + i % 4 * 8;
      EightInputs eight{};
#pragma unroll
      for (int f = 0; f < 2; ++f) {
        const int from = at + 4 * f;
        if (row >= input.rows || from >= end) continue;
        eight.fours[f] = LoadFour(input.row(row) + from, end - from, aligned);
      }
      reinterpret_cast<Bytes16*>(memory_)[i] = RoundedPairs<kFourBit>(eight);
    }
  }

  ANNULUS_DEVICE int units() const { return units_; }
  ANNULUS_DEVICE void Take(int /*unit*/) const {}
  ANNULUS_DEVICE void Load(int unit, int s, Bytes16 (&rows)[kHalves]) const {
    const Bytes16* const step =
        reinterpret_cast<const Bytes16*>(memory_) + (2 * unit + s) * kStepBytes16 + Lane();
#pragma unroll
    for (int h = 0; h < kHalves; ++h) rows[h] = step[h * kWarp];
  }

 private:
  static constexpr int kStepBytes16 = kHalves * 8 * kStepBytes / 16;  // of a step, in 16 bytes
  static_assert(8 * kStepBytes == kWarp * 16);  // of 8 rows, a piece for every lane

  std::byte* const memory_;
  const int units_;
};

// A warp's sums of a group, to the block's shared memory.
template <int kHalves, int kTiles>
ANNULUS_DEVICE void LeaveSums(const Sums<kHalves, kTiles>& sums, float* group) {
  float* const own = group + Lane() % 4 * 2 * SumsStride(kTiles) + Lane() / 4;
#pragma unroll
  for (int h = 0; h < kHalves; ++h) {
#pragma unroll
    for (int i = 0; i < 2 * kTiles; ++i) {
      own[(8 * h + i % 2) * SumsStride(kTiles) + 8 * (i / 2)] = sums[h][i / 4][i % 4];
    }
  }
}

// Adds up the parts of this block's share of `groups` groups, in order, and writes it. `sums`: of
// the first of them, which is group `first` of all.
template <int kHalves, int kTiles>
ANNULUS_DEVICE void StoreGroups(const LinearArguments& a, int first, int groups, float* sums) {
  constexpr int kOutputs = 8 * kTiles;
  const bool grouped = IsFourBit(a.weight.dtype);
  const int columns = groups * kOutputs;
  const int count = static_cast<int>(a.output.rows) * columns;
  for (int i = ClusterRank() * kThreads + ThreadIndex(); i < count; i += kDepthParts * kThreads) {
    const int row = i / columns;
    const int at = i % columns;
    const int64_t column = int64_t{first} * kOutputs + at;
    if (column >= a.weight.out_features) continue;
    float* const own =
        sums + (at / kOutputs * 8 * kHalves + row) * SumsStride(kTiles) + at % kOutputs;
    float total = 0;
#pragma unroll
    for (int part = 0; part < kDepthParts; ++part) total += *InBlock(own, part);
    const float scale = grouped ? 1 : LoadScale(a.weight, column, 0);
    StoreOutput(a, row, column, total * InputScale(a, row) * scale);
  }
}

template <CodeForm kForm, int kHalves, int kTiles>
ANNULUS_DEVICE void MultiplyStripe(const FewRowsClusterArguments& a) {
  constexpr int kBits = BitsOf(kForm);
  using Stream = WeightStream<kBits, kTiles, kMostStages / kTiles, StripeWalk>;
  static_assert(Stream::kBytes == kRingBytes);
  constexpr bool kFourBit = kForm == CodeForm::kFourBits;
  constexpr int kStageDepth = Stream::kStageBytes * 8 / kBits;
  constexpr int kGroupSums = 8 * kHalves * SumsStride(kTiles);
  const WeightView& w = a.linear.weight;
  const Part part = PartOf(ClusterRank(), w.in_features);
  const int stages = static_cast<int>((PartDepth(w.in_features) + kStageDepth - 1) / kStageDepth);
  const Stripe stripe = StripeOfCluster(a);
  const StripeWalk walk{stripe.begin + WarpIndex(),
                        Smaller(int64_t{stripe.end} * 8 * kTiles, w.out_features)};
  Stream stream(w, part, stages, walk);
  std::conditional_t<kFourBit, StageScales<kTiles, StripeWalk, true>, NoScales> scales(
      w, part, stages, walk);
  WaitForEarlier();  // weights are on their way
  std::byte* const memory = SharedMemory() + kStripeWarps * kRingBytes;
  SharedInputs<kHalves> inputs(part, memory);
  inputs.template Write<kFourBit>(a.linear.input, part);
  auto* const sums = reinterpret_cast<float*>(memory + InputBytes(w.in_features) * 8 * kHalves);
  SyncThreads();
  for (int first = stripe.begin; first < stripe.end; first += a.stripes.groups) {
    const int groups = Smaller(a.stripes.groups, stripe.end - first);
    for (int group = WarpIndex(); group < groups; group += kStripeWarps) {
      Sums<kHalves, kTiles> own = {};
      for (int stage = 0; stage < stages; ++stage) {
        const std::byte* const slot = stream.Next();
        if constexpr (kFourBit) scales.Next();
        MultiplyStage<kForm, kHalves, kTiles>(w.dtype, slot, stage * (kStageDepth / kUnit), inputs,
                                              scales, own);
      }
      LeaveSums<kHalves, kTiles>(own, sums + group * kGroupSums);
    }
    SyncCluster();
    StoreGroups<kHalves, kTiles>(a.linear, first, groups, sums);
    SyncCluster();  // no block writes other sums, or ends, while another one reads these
  }
  AsyncWait<0>();
}

struct StripeOfBlock {
  const FewRowsClusterArguments& arguments;

  template <CodeForm kForm, int kHalves, int kTiles>
  ANNULUS_DEVICE void Run() const {
    MultiplyStripe<kForm, kHalves, kTiles>(arguments);
  }
};

ANNULUS_CLUSTER_KERNEL(kDepthParts, kThreads, 1)
FewRowsClusterKernel(ANNULUS_ARGUMENT FewRowsClusterArguments a) {
  LetNextBegin();
  RunShape(a.linear.weight.dtype, static_cast<int>(a.linear.output.rows), a.stripes.tiles,
           StripeOfBlock{a});
}

}  // namespace

size_t FewRowsClusterBytes(int64_t rows, int64_t in_features, int tiles, int64_t groups) {
  const auto sums = static_cast<int64_t>(SumsStride(tiles) * sizeof(float)) * groups;
  return static_cast<size_t>(kStripeWarps * kRingBytes +
                             RowRoom(rows) * (InputBytes(in_features) + sums));
}

int LaunchFewRowsCluster(StreamHandle stream, const FewRowsClusterArguments& arguments) {
  const LinearArguments& linear = arguments.linear;
  const FewRowsStripes& stripes = arguments.stripes;
  const Grid grid{.x = linear.output.rows > 0 ? int64_t{stripes.clusters} * kDepthParts : 0,
                  .threads = kThreads,
                  .shared_bytes = FewRowsClusterBytes(linear.output.rows, linear.weight.in_features,
                                                      stripes.tiles, stripes.groups)};
  return LaunchInClusters<FewRowsClusterKernel, kDepthParts>(stream, Overlapping(stream, grid),
                                                             arguments);
}

}  // namespace annulus::cuda
