#include <algorithm>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/cpu/attention_fixture.h"
#include "tests/support/thinned.h"

namespace annulus::testing {
namespace {

using DilatedAttentionTest = EveryTable;

struct Dilated {
  Problem problem;
  std::vector<DilatedBranch> branches;

  int Times(int64_t row, int head, int64_t key) const {
    int times = 0;
    for (const DilatedBranch& branch : branches) {
      times += branch.Keeps(head, problem.positions[row], key) ? 1 : 0;
    }
    return times;
  }
  AttentionResult Expected() const {
    return DenseAttention(
        problem, [this](int64_t row, int head, int64_t key) { return Times(row, head, key); });
  }
  AttentionResult Attend(const OpTable& table, int threads) const {
    return testing::Attend(table, problem, threads, {}, branches);
  }
};

// Segments of a few pages, rates that are no powers of two, heads that no branch gives a row, gaps
// between pages, rows that are not neighbours, a first branch that leaves most rows empty.
Dilated RandomDilated(uint32_t seed) {
  std::mt19937 random(seed);
  const auto draw = [&](int low, int high) {
    return low + static_cast<int>(random() % (high - low + 1));
  };
  Dilated dilated;
  Problem& problem = dilated.problem;
  const int page_tokens[] = {16, 48, 64};
  problem.shape.page_tokens = page_tokens[random() % 3];
  problem.shape.kv_heads = draw(1, 3);
  problem.shape.k_dim = draw(1, 70);
  problem.shape.v_dim = draw(1, 70);
  problem.shape.dtype = kKvDTypes[random() % 6];
  problem.group = draw(1, 4);
  problem.soft_cap = random() % 3 ? 0 : 2.0f;
  problem.begin = int64_t{problem.shape.page_tokens} * draw(0, 5);
  problem.end = problem.begin + draw(1, 400);
  const int64_t pages =
      (problem.end - problem.begin + problem.shape.page_tokens - 1) / problem.shape.page_tokens;
  for (int64_t p = 0; p < pages; ++p) problem.page_present.push_back(random() % 4 != 0);
  for (int64_t i = problem.begin; i < problem.end + 20; ++i) {
    if (random() % 5 < 2) problem.positions.push_back(static_cast<int32_t>(i));
  }
  FillProblem(problem, seed);
  const int branches = draw(1, 3);
  for (int b = 0; b < branches; ++b) {
    const int rates[] = {1, 2, 3, 4, 8, 16};
    const int rate = rates[random() % 6];
    // A common multiple of the page and of every rate above.
    dilated.branches.push_back({problem.shape.page_tokens * 3 * draw(1, 4), rate});
  }
  return dilated;
}

TEST_P(DilatedAttentionTest, EqualsTheSumOverBranches) {
  for (uint32_t seed = 500; seed < (IsEmulated(table()) ? 510 : 540); ++seed) {
    const Dilated dilated = RandomDilated(seed);
    SCOPED_TRACE(dilated.problem.name);
    ExpectNear(dilated.problem, dilated.Attend(table(), 2), dilated.Expected());
    if (HasFatalFailure()) return;
  }
}

TEST_P(DilatedAttentionTest, SubtreesMergeToTheWhole) {
  if (!table().row_invariant) GTEST_SKIP() << table().name << " sums in an order of its own";
  const std::vector<uint32_t> seeds = SeedsFrom(570, IsEmulated(table()) ? 4 : 15);
  for (const uint32_t seed : ThinnedIfSanitized(seeds, 5)) {
    const Dilated dilated = RandomDilated(seed);
    SCOPED_TRACE(dilated.problem.name);
    ExpectSubtreesMergeToTheWhole(table(), dilated.problem, dilated.branches);
  }
}

TEST_P(DilatedAttentionTest, MergesIntoTheStateOfOtherKeys) {
  for (uint32_t seed = 550; seed < (IsEmulated(table()) ? 555 : 570); ++seed) {
    const Dilated dilated = RandomDilated(seed);
    SCOPED_TRACE(dilated.problem.name);
    ExpectMerges(table(), dilated.problem, 2, dilated.branches);
    if (HasFatalFailure()) return;
  }
}

// Segments longer than what is copied at a time.
TEST_P(DilatedAttentionTest, LongSegments) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI8}) {
    if (IsEmulated(table()) && dtype == DType::kI8) continue;
    Dilated dilated;
    Problem& problem = dilated.problem;
    problem.shape = {.page_tokens = 64, .kv_heads = 2, .k_dim = 24, .v_dim = 20, .dtype = dtype};
    problem.group = 2;
    problem.end = 9000;
    problem.positions = {0, 1, 4095, 4096, 4097, 8191, 8192, 8193, 8194, 8999};
    FillProblem(problem, 540);
    dilated.branches = {{2048, 1}, {4096, 2}, {16384, 4}};
    SCOPED_TRACE(problem.name);
    ExpectNear(problem, dilated.Attend(table(), 2), dilated.Expected());
    if (HasFatalFailure()) return;
  }
}

// A row's bits do not depend on the rows beside it nor on the number of threads, where the table
// says so.
TEST_P(DilatedAttentionTest, RowsAloneHaveTheSameBits) {
  for (uint32_t seed = 550; seed < (IsEmulated(table()) ? 552 : 556); ++seed) {
    const Dilated dilated = RandomDilated(seed);
    SCOPED_TRACE(dilated.problem.name);
    const AttentionResult whole = dilated.Attend(table(), 3);
    const PagedSequence pages(table(), dilated.problem);
    AttentionResult alone(dilated.problem);
    for (int64_t r = 0; r < dilated.problem.rows(); ++r) {
      AttentionItem item = MakeItem(dilated.problem, pages, r, 1, alone);
      item.branches = dilated.branches;
      ASSERT_TRUE(
          table().attention(*MakeStream(table(), 1), MakeParams(dilated.problem, {&item, 1})).ok());
    }
    if (table().row_invariant) {
      EXPECT_TRUE(whole == alone);
    } else {
      alone.weight_error = whole.weight_error;
      alone.rounded_operands = whole.rounded_operands;
      ExpectNear(dilated.problem, alone, whole);
    }
  }
}

// One branch of rate 1 whose segment holds everything is attention without branches.
TEST_P(DilatedAttentionTest, OneWideBranchOfRate1IsDense) {
  for (uint32_t seed = 560; seed < 564; ++seed) {
    Dilated dilated = RandomDilated(seed);
    SCOPED_TRACE(dilated.problem.name);
    dilated.branches = {{dilated.problem.shape.page_tokens * 1000, 1}};
    const AttentionResult one = dilated.Attend(table(), 2);
    const AttentionResult dense = Attend(table(), dilated.problem, 2);
    if (table().name.starts_with("cuda/sm90")) {  // other kernels
      ExpectNear(dilated.problem, one, dense);
    } else {
      EXPECT_TRUE(one == dense);
    }
  }
}

ANNULUS_FOR_EVERY_ORDER(DilatedAttentionTest);

}  // namespace
}  // namespace annulus::testing
