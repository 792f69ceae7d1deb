// See linear_warpgroups.h. What a warp streams and how it widens: few_rows/. Compiled without
// contraction.
//
// Shared memory: a ring of weights for every warp; then the block's inputs in panels of 64 of depth
// (hopper.h), each [row][64] in bf16, in the order of linear_weights.h; then the sums of some
// tiles, [tile][row][64 outputs], whose places are exchanged so that a fragment meets every bank
// once. Copies of weights do not stop where tiles end, nor while sums are added.
#include <type_traits>

#include "kernels/cuda/common/cluster.h"
#include "kernels/cuda/common/hopper.h"
#include "kernels/cuda/common/wgmma.h"
#include "kernels/cuda/common/wgmma_rows.h"
#include "kernels/cuda/sm80/few_rows/tile.h"
#include "kernels/cuda/sm90/linear_warpgroups.h"

namespace annulus::cuda {
namespace {

using namespace few_rows;

constexpr int kThreads = kWarpgroups * kWarpgroup;
constexpr int kWarpsOfTile = kWarpgroup / kWarp;
constexpr int kWarpTiles = 2;  // of 8 outputs: a warp's part of a tile
constexpr int kTileWidth = static_cast<int>(kWarpgroupOutputs);
static_assert(kTileWidth == kWarpsOfTile * kWarpTiles * 8);
constexpr int kRingStages = 4;
constexpr int kRingsBytes = kThreads / kWarp * kRingStages * 8 * kWarpTiles * 128;

// Tiles of a product, or of all of a launch.
struct Tiles {
  int begin;
  int end;
};

ANNULUS_DEVICE int TilesOf(const LinearArguments& a) {
  return static_cast<int>(WarpgroupTiles(a.weight.out_features));
}
ANNULUS_DEVICE int TilesOfRows(const WarpgroupArguments& a) {
  return (static_cast<int>(a.products[0].output.rows) + a.shape.rows - 1) / a.shape.rows;
}

// Those of the block's cluster, of all.
ANNULUS_DEVICE Tiles StripeOfCluster(const WarpgroupArguments& a) {
  int64_t all = 0;
  for (int i = 0; i < a.count; ++i) all += TilesOf(a.products[i]);
  const int64_t stripe = BlockX() / kDepthParts / TilesOfRows(a);
  return {static_cast<int>(stripe * all / a.shape.clusters),
          static_cast<int>((stripe + 1) * all / a.shape.clusters)};
}

// A warp's 16 outputs of every kWarpgroups-th tile.
struct TileWalk {
  int first;
  int64_t end;  // output

  ANNULUS_DEVICE int First() const { return first; }
  ANNULUS_DEVICE static int Step() { return kWarpgroups * kWarpsOfTile; }
  ANNULUS_DEVICE int64_t End(const WeightView&) const { return end; }
};

// The block's part of `kRows` rows of inputs.
template <int kRows>
class PanelInputs {
 public:
  // `first`: row. `memory`: a multiple of 1024.
  ANNULUS_DEVICE PanelInputs(int first, const Part& part, std::byte* memory)
      : first_(first),
        begin_(static_cast<int>(part.begin)),
        end_(static_cast<int>(part.end)),
        memory_(memory) {}

  ANNULUS_DEVICE int first_row() const { return first_; }
  ANNULUS_DEVICE int units() const { return (end_ - begin_ + kUnit - 1) / kUnit; }
  ANNULUS_DEVICE uint64_t Panel(int unit) const {
    return FurtherMatrix(PanelMatrix(memory_, kOnePanel), unit * kRows * kPanelRowBytes);
  }

  // All threads of the block write them, the first time, for all warps.
  template <bool kFourBit>
  ANNULUS_DEVICE void WriteOnce(const ConstMatrixView& input) {
    if (written_) return;
    written_ = true;
    const int places = units() * 2 * kRows * 4;
    for (int first = ThreadIndex(); first < places; first += kAtOnce * kThreads) {
      EightInputs eights[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) eights[i] = Load(input, first + i * kThreads);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int place = first + i * kThreads;
        if (place < places) Store(place, RoundedPairs<kFourBit>(eights[i]));
      }
    }
    FenceSharedForEngines();
    SyncThreads();
  }

 private:
  static constexpr int kAtOnce = 4;  // loads of a thread

  // Elements 8t .. 8t + 7 of a step of a row; place = (step * kRows + row) * 4 + t.
  ANNULUS_DEVICE EightInputs Load(const ConstMatrixView& input, int place) const {
    const int row = first_ + place / 4 % kRows;
    const int at = begin_ + place / (4 * kRows) * kStep + place % 4 * 8;
    const int end = Smaller(end_, static_cast<int>(input.cols));
    const bool aligned = HasAlignedFours(input);
    EightInputs eight{};
#pragma unroll
    for (int f = 0; f < 2; ++f) {
      const int from = at + 4 * f;
      if (row >= input.rows || from >= end) continue;
      eight.fours[f] = LoadFour(input.row(row) + from, end - from, aligned);
    }
    return eight;
  }

  ANNULUS_DEVICE void Store(int place, const Bytes16& pairs) const {
    const int row = place / 4 % kRows;
    const int step = place / (4 * kRows);
    std::byte* const panel = memory_ + step / 2 * kRows * kPanelRowBytes;
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      std::byte* const chunk = panel + PanelOffset(row, step % 2 * 4 + p);
      reinterpret_cast<uint32_t*>(chunk)[place % 4] = pairs.words[p];
    }
  }

  const int first_;
  const int begin_;  // of the part
  const int end_;
  std::byte* const memory_;
  bool written_ = false;
};

// A thread's sums of a tile: as wgmma.h says, with rows of inputs as columns.
template <int kRows>
using TileSums = float[kRows / 2];
// A warp's weights of a unit: for both steps, the operands of two products each.
using UnitWeights = uint32_t[2][2][4];

// The operands of a step's two products: in pairs, of output g and g + 8.
template <CodeForm kForm>
ANNULUS_DEVICE void WidenStep(DType dtype, const EightCodes<kForm> (&codes)[kWarpTiles],
                              uint32_t (&a)[2][4]) {
#pragma unroll
  for (int n = 0; n < kWarpTiles; ++n) {
    uint32_t pairs[4];
    WidenEight<kForm>(dtype, codes[n], pairs);
#pragma unroll
    for (int p = 0; p < 4; ++p) a[p / 2][p % 2 * 2 + n] = pairs[p];
  }
}

// Starts sums += a unit's products, whose operands are in `weights` until they end. Those of the
// unit before end here; this unit's codes come meanwhile.
template <CodeForm kForm, int kRows>
ANNULUS_DEVICE void StartUnit(DType dtype, const EightCodes<kForm> (&codes)[2][kWarpTiles],
                              uint64_t panel, UnitWeights& weights, TileSums<kRows>& sums) {
  WgmmaWait<0>();
  SettleRegisters(sums);
#pragma unroll
  for (int s = 0; s < 2; ++s) WidenStep<kForm>(dtype, codes[s], weights[s]);
  WgmmaFence();
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    MultiplyByRows(BFloat16{}, sums, weights[k / 2][k % 2], FurtherMatrix(panel, 32 * k), true);
  }
  WgmmaCommit();
}

// sums += a unit's products of 4-bit codes times their scales; `scales`: of output g and g + 8,
// those of both steps in a word.
template <CodeForm kForm, int kRows>
ANNULUS_DEVICE void AddScaledUnit(DType dtype, const EightCodes<kForm> (&codes)[2][kWarpTiles],
                                  uint64_t panel, const uint32_t (&scales)[kWarpTiles],
                                  UnitWeights& weights, TileSums<kRows>& sums) {
#pragma unroll
  for (int s = 0; s < 2; ++s) {
    WidenStep<kForm>(dtype, codes[s], weights[s]);
    TileSums<kRows> products = {};
    WgmmaFence();
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      MultiplyByRows(BFloat16{}, products, weights[s][k], FurtherMatrix(panel, 64 * s + 32 * k),
                     k > 0);
    }
    WgmmaCommit();
    WgmmaWait<0>();
    SettleRegisters(products);
#pragma unroll
    for (int i = 0; i < kRows / 2; ++i) {
      const uint32_t both = scales[i / 2 % 2];
      AddScaled(products[i], FloatOf(s == 0 ? both << 16 : both & 0xffff0000u), sums[i]);
    }
  }
}

// sums += a stage's products; the last of them may go on.
template <CodeForm kForm, int kRows, class Scales>
ANNULUS_DEVICE void MultiplyTileStage(DType dtype, const std::byte* slot, int first_unit,
                                      const PanelInputs<kRows>& inputs, const Scales& scales,
                                      UnitWeights& weights, TileSums<kRows>& sums) {
  constexpr int kUnits = 128 * 8 / BitsOf(kForm) / kUnit;
#pragma unroll
  for (int u = 0; u < kUnits; ++u) {
    const int unit = first_unit + u;
    if (unit >= inputs.units()) break;
    EightCodes<kForm> codes[2][kWarpTiles];
#pragma unroll
    for (int s = 0; s < 2; ++s) LoadCodes<kForm, kWarpTiles>(slot, 2 * u + s, codes[s]);
    if constexpr (kForm == CodeForm::kFourBits) {
      const uint32_t own[kWarpTiles] = {scales.Of(u, 0), scales.Of(u, 1)};
      AddScaledUnit<kForm, kRows>(dtype, codes, inputs.Panel(unit), own, weights, sums);
    } else {
      StartUnit<kForm, kRows>(dtype, codes, inputs.Panel(unit), weights, sums);
    }
  }
}

ANNULUS_DEVICE int SumAt(int row, int output) {
  return row * kTileWidth + (output ^ row / 2 % 4 * 8);
}

// A thread's sums, to the block's shared memory.
template <int kRows>
ANNULUS_DEVICE void LeaveTile(const TileSums<kRows>& sums, float* tile) {
  const int row = Lane() % 4 * 2;  // SumAt exchanges the same in rows 1, 8, 9, 16 .. on
  const int output = WarpIndex() % kWarpsOfTile * 16 + Lane() / 4;
  float* const own[2] = {tile + SumAt(row, output), tile + SumAt(row, output + 8)};
#pragma unroll
  for (int i = 0; i < kRows / 2; ++i) {
    own[i / 2 % 2][(i / 4 * 8 + i % 2) * kTileWidth] = sums[i];
  }
}

// The sum of the parts of 4 neighbouring outputs, in order.
ANNULUS_DEVICE FourFloats AddParts(float* own) {
  FourFloats total{};
#pragma unroll
  for (int part = 0; part < kDepthParts; ++part) {
    const FourFloats sums = *InBlock(reinterpret_cast<FourFloats*>(own), part);
#pragma unroll
    for (int e = 0; e < 4; ++e) total.values[e] += sums.values[e];
  }
  return total;
}

// Adds up the parts of this block's share of `count` tiles, from tile `first` of the product on,
// and writes it. `sums`: of the first of them.
template <int kRows>
ANNULUS_DEVICE void StoreTiles(const LinearArguments& a, int first_row, int first, int count,
                               float* sums) {
  constexpr int kFours = kTileWidth / 4;
  const bool grouped = IsFourBit(a.weight.dtype);
  const int rows = Smaller(kRows, static_cast<int>(a.output.rows) - first_row);
  const int fours = count * rows * kFours;
  for (int i = ClusterRank() * kThreads + ThreadIndex(); i < fours; i += kDepthParts * kThreads) {
    const int row = i / kFours % rows;
    const int tile = i / kFours / rows;
    const int output = i % kFours * 4;
    const FourFloats total = AddParts(sums + tile * kRows * kTileWidth + SumAt(row, output));
    const float input_scale = InputScale(a, first_row + row);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int64_t column = int64_t{first + tile} * kTileWidth + output + e;
      if (column >= a.weight.out_features) break;
      const float scale = grouped ? 1 : LoadScale(a.weight, column, 0);
      StoreOutput(a, first_row + row, column, total.values[e] * input_scale * scale);
    }
  }
}

// The tiles of one product. All blocks of the cluster have the same ones.
template <CodeForm kForm, int kRows>
ANNULUS_DEVICE void MultiplyTiles(const LinearArguments& a, const Tiles& tiles, int held,
                                  PanelInputs<kRows>& inputs, float* sums) {
  constexpr int kBits = BitsOf(kForm);
  using Stream = WeightStream<kBits, kWarpTiles, kRingStages, TileWalk>;
  static_assert(Stream::kBytes * (kThreads / kWarp) == kRingsBytes);
  constexpr bool kFourBit = kForm == CodeForm::kFourBits;
  constexpr int kStageDepth = Stream::kStageBytes * 8 / kBits;
  const WeightView& w = a.weight;
  const Part part = PartOf(ClusterRank(), w.in_features);
  const int stages = static_cast<int>((PartDepth(w.in_features) + kStageDepth - 1) / kStageDepth);
  const int warpgroup = WarpIndex() / kWarpsOfTile;
  const TileWalk walk{(tiles.begin + warpgroup) * kWarpsOfTile + WarpIndex() % kWarpsOfTile,
                      Smaller(int64_t{tiles.end} * kTileWidth, w.out_features)};
  Stream stream(w, part, stages, walk);
  std::conditional_t<kFourBit, StageScales<kWarpTiles, TileWalk, true>, NoScales> scales(
      w, part, stages, walk);
  inputs.template WriteOnce<kFourBit>(a.input);
  for (int first = tiles.begin; first < tiles.end; first += held) {
    const int count = Smaller(held, tiles.end - first);
    for (int tile = warpgroup; tile < count; tile += kWarpgroups) {
      TileSums<kRows> own = {};
      UnitWeights weights;
      for (int stage = 0; stage < stages; ++stage) {
        const std::byte* const slot = stream.Next();
        if constexpr (kFourBit) scales.Next();
        MultiplyTileStage<kForm, kRows>(w.dtype, slot, stage * (kStageDepth / kUnit), inputs,
                                        scales, weights, own);
      }
      WgmmaWait<0>();
      SettleRegisters(own);
      LeaveTile<kRows>(own, sums + tile * kRows * kTileWidth);
    }
    SyncCluster();
    StoreTiles<kRows>(a, inputs.first_row(), first, count, sums);
    SyncCluster();  // no block writes other sums, or ends, while another one reads these
  }
  AsyncWait<0>();
}

template <CodeForm kForm, int kRows>
ANNULUS_DEVICE void MultiplyTogether(const WarpgroupArguments& a) {
  const int64_t in_features = a.products[0].weight.in_features;
  std::byte* const memory = SharedMemory() + kRingsBytes;
  PanelInputs<kRows> inputs(static_cast<int>(BlockX() / kDepthParts % TilesOfRows(a)) * kRows,
                            PartOf(ClusterRank(), in_features), memory);
  auto* const sums = reinterpret_cast<float*>(memory + PartDepth(in_features) * 2 * kRows);
  Tiles stripe = StripeOfCluster(a);
  for (int i = 0; i < a.count; ++i) {
    const int tiles = TilesOf(a.products[i]);
    const Tiles own = {Larger(stripe.begin, 0), Smaller(stripe.end, tiles)};
    if (own.begin < own.end) {
      MultiplyTiles<kForm, kRows>(a.products[i], own, a.shape.held, inputs, sums);
    }
    stripe = {stripe.begin - tiles, stripe.end - tiles};
  }
}

template <CodeForm kForm>
ANNULUS_DEVICE void MultiplyForm(const WarpgroupArguments& a) {
  if (a.shape.rows == 32) {
    MultiplyTogether<kForm, 32>(a);
  } else {
    MultiplyTogether<kForm, kMostTileRows>(a);
  }
}
static_assert(kMostTileRows == 64);

ANNULUS_CLUSTER_KERNEL(kDepthParts, kThreads, 2)
LinearWarpgroupsKernel(ANNULUS_ARGUMENT WarpgroupArguments a) {
  switch (FormOf(a.products[0].weight.dtype)) {
    case CodeForm::kFourBits:
      return MultiplyForm<CodeForm::kFourBits>(a);
    case CodeForm::kInt8:
      return MultiplyForm<CodeForm::kInt8>(a);
    case CodeForm::kFloat8:
      return MultiplyForm<CodeForm::kFloat8>(a);
    case CodeForm::kBFloat16:
      return MultiplyForm<CodeForm::kBFloat16>(a);
  }
}

}  // namespace

size_t WarpgroupBytes(int rows, int64_t in_features, int held) {
  const auto sums = static_cast<int64_t>(kTileWidth * sizeof(float)) * held;
  return static_cast<size_t>(kRingsBytes + rows * (PartDepth(in_features) * 2 + sums));
}

int LaunchLinearWarpgroups(StreamHandle stream, const WarpgroupArguments& arguments) {
  const WarpgroupShape& shape = arguments.shape;
  const int64_t down = (arguments.products[0].output.rows + shape.rows - 1) / shape.rows;
  const Grid grid{.x = down * shape.clusters * kDepthParts,
                  .threads = kThreads,
                  .shared_bytes = WarpgroupBytes(
                      shape.rows, arguments.products[0].weight.in_features, shape.held)};
  return LaunchInClusters<LinearWarpgroupsKernel, kDepthParts>(stream, grid, arguments);
}

}  // namespace annulus::cuda
