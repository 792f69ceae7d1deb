// Prefill attention by clusters of two blocks that copy their tiles once: which units are pairs,
// that the emulation knows such copies, and that bits stay.
#include "kernels/cuda/sm90/attention_pairs.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/sanitizers.h"
#include "kernels/cuda/common/multicast.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/trial.h"
#include "kernels/cuda/tuning/unit_pairs.h"
#include "tests/kernels/cpu/attention_fixture.h"
#include "tests/kernels/cuda/wide_attention.h"

namespace annulus::cuda {
namespace {

using testing::AttentionResult;
using testing::Problem;

AttentionUnit UnitOf(int32_t item, int32_t kv_head, int32_t row_begin, int32_t page_begin,
                     int32_t page_end) {
  return {item, kv_head, row_begin, 128, page_begin, page_end, -1, -1};
}

TEST(PairUnitsTest, NeighboursOfOneHeadThatBeginWithTheSamePage) {
  const std::vector<AttentionUnit> units = {UnitOf(0, 0, 512, 0, 9), UnitOf(0, 1, 512, 0, 9),
                                            UnitOf(0, 0, 384, 0, 8), UnitOf(1, 0, 384, 0, 8),
                                            UnitOf(0, 1, 384, 0, 8), UnitOf(0, 0, 256, 0, 7),
                                            UnitOf(0, 0, 128, 3, 7), UnitOf(0, 0, 0, 0, 5)};
  const std::vector<AttentionUnit> paired = PairUnits(units);
  std::vector<std::vector<int32_t>> seen;
  for (const AttentionUnit& unit : paired) {
    seen.push_back({unit.item, unit.kv_head, unit.row_begin, unit.row_count});
  }
  EXPECT_THAT(seen, ::testing::ElementsAre(std::vector{0, 0, 512, 128}, std::vector{0, 0, 384, 128},
                                           std::vector{0, 1, 512, 128}, std::vector{0, 1, 384, 128},
                                           std::vector{1, 0, 384, 128}, std::vector{1, 0, 384, 0},
                                           std::vector{0, 0, 256, 128}, std::vector{0, 0, 0, 128},
                                           std::vector{0, 0, 128, 128}, std::vector{0, 0, 128, 0}));
  EXPECT_TRUE(PairUnits({}).empty());
}

TEST(PairUnitsTest, PairsServeBf16OfSomeDimensionsWithoutAWindow) {
  AttentionParams params;
  params.shape = {64, 2, 128, 128, DType::kBF16};
  PrefillPath path;
  EXPECT_FALSE(PairsServe(params, path)) << "sm80/";
  path.hopper = true;
  EXPECT_TRUE(PairsServe(params, path));
  params.window = 500;
  EXPECT_FALSE(PairsServe(params, path));
  params.window = 0;
  for (const DType dtype : {DType::kF16, DType::kI8, DType::kF8E4M3}) {
    params.shape.dtype = dtype;
    EXPECT_FALSE(PairsServe(params, path)) << DTypeName(dtype);
  }
  params.shape.dtype = DType::kBF16;
  for (const auto& [k_dim, v_dim, served] :
       {std::tuple(64, 64, false), {64, 65, true}, {128, 16, true}, {129, 16, false}}) {
    params.shape.k_dim = k_dim;
    params.shape.v_dim = v_dim;
    EXPECT_EQ(PairsServe(params, path), served) << k_dim << " " << v_dim;
  }
}

// A box of 8 rows of 64 columns.
class BoxesOfRows {
 public:
  BoxesOfRows() {
    for (size_t i = 0; i < values_.size(); ++i) values_[i] = static_cast<uint16_t>(i + 1);
    PagesTensor tensor;
    tensor.base = reinterpret_cast<const std::byte*>(values_.data());
    tensor.columns = 64;
    tensor.rows = 16;
    tensor.pages = 1;
    tensor.row_bytes = 128;
    tensor.page_stride = 2048;
    tensor.box_rows = 8;
    map_ = EncodeTensorMap(tensor).value();
  }
  const TensorMap& map() const { return map_; }
  static constexpr int kBytes = 1024;

 private:
  std::vector<uint16_t> values_ = std::vector<uint16_t>(16 * 64);
  TensorMap map_;
};

PhaseBarrier& BarrierAt(int bytes) {
  return *reinterpret_cast<PhaseBarrier*>(SharedMemory() + bytes);
}
uint16_t FirstOf(int box) {
  return reinterpret_cast<const uint16_t*>(SharedMemory() + box * BoxesOfRows::kBytes)[0];
}

TEST(MulticastTest, EachBlockCopiesHalfForBoth) {
  const BoxesOfRows boxes;
  int blocks = 0;
  RunClusters({.x = 6, .threads = 32, .shared_bytes = 2 * BoxesOfRows::kBytes + 8}, 2, [&] {
    PhaseBarrier& full = BarrierAt(2 * BoxesOfRows::kBytes);
    if (Lane() == 0) InitPhaseBarrier(full, 1);
    SyncCluster();
    const int own = ClusterRank();
    if (Lane() == 0) {
      CopyBoxToBlocks<2>(SharedMemory() + own * BoxesOfRows::kBytes, boxes.map(), full, 0, 8 * own,
                         0);
      // In every second cluster the other block has copied before this one expects it.
      ArriveExpecting(full, 2 * BoxesOfRows::kBytes);
      EXPECT_EQ(FirstOf(own), 0xffff) << "too early";
    }
    SyncWarp();
    WaitForPhase(full, 0);
    EXPECT_EQ(FirstOf(0), 1);
    EXPECT_EQ(FirstOf(1), 8 * 64 + 1);
    SyncCluster();
    if (Lane() == 0) ++blocks;
  });
  EXPECT_EQ(blocks, 6);
}

TEST(MulticastTest, ThreadsArriveAtBarriersOfOtherBlocks) {
  RunClusters({.x = 4, .threads = 32, .shared_bytes = 16}, 2, [] {
    PhaseBarrier& barrier = BarrierAt(0);
    auto* const told = reinterpret_cast<int*>(SharedMemory() + 8);
    if (Lane() == 0) InitPhaseBarrier(barrier, 2);
    SyncCluster();
    if (Lane() < 2) {
      if (Lane() != ClusterRank()) *InBlock(told, Lane()) = 7;
      ArriveIn(barrier, Lane());
    }
    WaitForClusterPhase(barrier, 0);
    EXPECT_EQ(*told, 7);
    SyncCluster();
  });
}

TEST(MulticastDeathTest, FindsBlocksThatAreNotThere) {
  const BoxesOfRows boxes;
  const Grid grid{.x = 2, .threads = 32, .shared_bytes = 2 * BoxesOfRows::kBytes + 8};
  const auto barrier = []() -> PhaseBarrier& {
    PhaseBarrier& own = BarrierAt(2 * BoxesOfRows::kBytes);
    if (Lane() == 0) InitPhaseBarrier(own, 1);
    SyncWarp();
    return own;
  };
  EXPECT_DEATH(
      RunClusters(grid, 1,
                  [&] { CopyBoxToBlocks<2>(SharedMemory(), boxes.map(), barrier(), 0, 0, 0); }),
      "a copy to 2 of 1");
  EXPECT_DEATH(RunClusters(grid, 2,
                           [&] {
                             PhaseBarrier& own = barrier();
                             if (ClusterRank() == 0) return;
                             ArriveIn(own, 0);
                           }),
               "block 0 of the cluster has ended");
}

int launches = 0;
int LaunchCounted(StreamHandle stream, int64_t clusters,
                  const PairedAttentionArguments& arguments) {
  ++launches;
  return LaunchPairedAttention(stream, clusters, arguments);
}
OpTable Pairs() {
  OpTable table = HopperOps();
  table.attention = [](Stream& stream, const AttentionParams& params) {
    return PairedHopperAttention(stream, params, LaunchCounted);
  };
  return table;
}

// Whether units are divided among parts depends on how many there are: the emulated GPU holds 8
// blocks.
void ExpectSameBits(const Problem& problem, const BlockLists& blocks = {}) {
  SCOPED_TRACE(problem.name);
  launches = 0;
  const AttentionResult pairs = testing::Attend(Pairs(), problem, 1, blocks);
  EXPECT_EQ(launches, 1);
  EXPECT_TRUE(pairs == testing::Attend(HopperOps(), problem, 1, blocks));
}

Problem PairedProblem(int page_tokens, int dim, int32_t first, int32_t rows) {
  Problem problem = testing::WideProblem(DType::kBF16, page_tokens, dim);
  problem.positions = testing::Consecutive(first, rows);
  return problem;
}

// Units that are parts of the pages, and an odd number of them.
TEST(PairedAttentionTest, PartsHaveTheSameBits) {
  for (const int page_tokens : {16, 64, 112, 256}) {
    if (kSanitized && page_tokens != 64) continue;
    Problem problem = PairedProblem(page_tokens, page_tokens == 64 ? 128 : 72, 560, 130);
    if (page_tokens == 112) problem.shape.v_dim = 120;
    if (page_tokens == 256) problem.soft_cap = 2;
    testing::FillProblem(problem, static_cast<uint32_t>(page_tokens));
    ExpectSameBits(problem);
  }
}

// Whole units, whose rows see from one tile on to all of them, some more than their partner.
TEST(PairedAttentionTest, CausalUnitsHaveTheSameBits) {
  for (const int dim : {128, 96}) {
    if (kSanitized && dim != 96) continue;
    Problem problem = PairedProblem(dim == 128 ? 64 : 16, dim, 0, kSanitized ? 290 : 690);
    testing::FillProblem(problem, static_cast<uint32_t>(dim));
    problem.page_present[3] = false;
    ExpectSameBits(problem);
  }
}

TEST(PairedAttentionTest, ValuesThatAreNotFiniteReachTheSameRows) {
  Problem problem = PairedProblem(64, 128, 400, 300);
  testing::FillProblem(problem, 5);
  problem.v.row(410)[3] = std::numeric_limits<float>::infinity();
  problem.v.row(650)[100] = std::nanf("");
  ExpectSameBits(problem);
}

TEST(PairedAttentionTest, ListsOfBlocksHaveTheSameBits) {
  Problem problem = PairedProblem(64, 128, 0, 690);
  testing::FillProblem(problem, 8);
  const std::vector<int32_t> rows = {0, 128, 300, 690};
  const std::vector<int32_t> offsets = {0, 2, 5, 11};
  const std::vector<int32_t> pages = {0, 1, 0, 2, 4, 0, 3, 5, 8, 9, 10};
  ExpectSameBits(problem, {false, 1, rows, offsets, pages});
}

TEST(PairedAttentionTest, StatesThatMergeHaveTheSameBits) {
  Problem problem = PairedProblem(64, 96, 300, 300);
  testing::FillProblem(problem, 9);
  const OpTable tables[] = {HopperOps(), Pairs()};
  EXPECT_TRUE(testing::AttendInTwo(tables[0], problem, 1, /*apart=*/false) ==
              testing::AttendInTwo(tables[1], problem, 1, /*apart=*/false));
}

// The layers of a step find what the first of them has placed, and count anew.
TEST(PairedAttentionTest, LaterLayersTakeTheirOwnPairs) {
  Problem problem = PairedProblem(64, 96, 0, 300);
  testing::FillProblem(problem, 10);
  const AttentionResult expected = testing::Attend(HopperOps(), problem, 1);
  const testing::PagedSequence pages(HopperOps(), problem);
  const auto stream = testing::MakeStream(HopperOps(), 1);
  for (int layer = 0; layer < 3; ++layer) {
    AttentionResult result(problem);
    const AttentionItem item = testing::MakeItem(problem, pages, 0, problem.rows(), result);
    ASSERT_TRUE(Pairs().attention(*stream, testing::MakeParams(problem, {&item, 1})).ok());
    ASSERT_TRUE(stream->Synchronize().ok());
    EXPECT_TRUE(result == expected) << layer;
  }
}

TEST(PairedAttentionTest, OthersGoWhereTheyAlwaysWent) {
  Problem problem = PairedProblem(64, 128, 560, 40);
  problem.window = 300;
  testing::FillProblem(problem, 11);
  launches = 0;
  EXPECT_TRUE(testing::Attend(Pairs(), problem, 1) == testing::Attend(HopperOps(), problem, 1));
  EXPECT_EQ(launches, 0);
  EXPECT_EQ(PairsTrialOf(HopperOps())->name, "cuda/sm90-trial-pairs");
  EXPECT_FALSE(PairsTrialOf(Ops()).has_value());
}

}  // namespace
}  // namespace annulus::cuda
