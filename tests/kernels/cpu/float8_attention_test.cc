// Attention in fp8_e4m3 against attention that rounds nothing.
#include "tests/kernels/cpu/float8_attention.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "gtest/gtest.h"

namespace annulus::testing {
namespace {

// Rows of the whole sequence and of its end, over pages of every size, with masks and soft caps.
std::vector<Problem> Float8Problems() {
  std::vector<Problem> problems;
  uint32_t seed = 40;
  for (const int page_tokens : {16, 48, 64, 256}) {
    for (const int dim : {16, 64, 96}) {
      Problem problem;
      problem.shape = {.page_tokens = page_tokens,
                       .kv_heads = 2,
                       .k_dim = dim,
                       .v_dim = dim == 96 ? 40 : dim,
                       .dtype = DType::kF8E4M3};
      problem.group = 1 + seed % 3;
      problem.end = dim == 16 ? 20 : 300;
      problem.positions = dim == 16 ? Consecutive(0, 20) : Consecutive(270, 9);
      problem.window = seed % 4 == 0 ? 70 : 0;
      problem.soft_cap = seed % 5 == 0 ? 3 : 0;
      FillProblem(problem, seed++);
      if (page_tokens == 48) problem.page_present[0] = false;
      problems.push_back(std::move(problem));
    }
  }
  return problems;
}

TEST(Float8AttentionTest, RoundsWeightsAsPromised) {
  for (Problem& problem : Float8Problems()) {
    SCOPED_TRACE(problem.name);
    RoundQueries(problem);
    ExpectWithinFloat8(problem, AttendInFloat8(problem), /*rounded=*/true);
  }
}

TEST(Float8AttentionTest, RoundsQueriesAsPromised) {
  for (const Problem& problem : Float8Problems()) {
    SCOPED_TRACE(problem.name);
    ExpectWithinFloat8(problem, AttendInFloat8(problem), /*rounded=*/false);
  }
}

// What it rounds shows: these are no numbers of the exact attention.
TEST(Float8AttentionTest, RoundsAtAll) {
  Problem problem = Float8Problems()[1];
  const AttentionResult coded = AttendInFloat8(problem);
  const AttentionResult exact = AttendOn(*MakeStream(2), Reference(), problem);
  double largest = 0;
  for (size_t i = 0; i < coded.o.size(); ++i) {
    largest = std::max(largest, std::abs(double{coded.o[i]} - exact.o[i]));
  }
  EXPECT_GT(largest, 1e-3);
}

TEST(Float8AttentionTest, ARowThatSeesOneKeyHasItsValue) {
  Problem problem = Float8Problems()[0];
  const AttentionResult result = AttendInFloat8(problem);
  for (int h = 0; h < problem.heads(); ++h) {
    for (int d = 0; d < problem.shape.v_dim; ++d) {
      const float value = problem.v.row(0)[h / problem.group * problem.shape.v_dim + d];
      EXPECT_NEAR(result.o[h * problem.shape.v_dim + d], value, 1e-5 * std::abs(value));
    }
  }
}

// One key of the first tile weighs 2^19 times as much as each of 4,000 others: in one shift for the
// whole row those would all be 0.
TEST(Float8AttentionTest, SmallWeightsOfOtherTilesCount) {
  Problem problem;
  problem.shape = {
      .page_tokens = 64, .kv_heads = 1, .k_dim = 16, .v_dim = 16, .dtype = DType::kF8E4M3};
  problem.end = 4096;
  problem.positions = {4095};
  FillProblem(problem, 5);
  for (int64_t j = 0; j < problem.end; ++j) {
    std::fill_n(problem.k.row(j), 16, 0.0f);
    std::fill_n(problem.v.row(j), 16, j == 0 ? 0.0f : 1.0f);
  }
  std::fill_n(problem.query.row(0), 16, 0.0f);
  problem.query.row(0)[3] = 448;
  problem.k.row(0)[3] = 0.1171875f;  // times 448 / 4 it is 13.125 = 18.9 ln 2
  const AttentionResult result = AttendInFloat8(problem);
  const double share = 4095 / (4095 + std::exp(13.125));
  EXPECT_NEAR(result.o[0], share, 0x1p-4 * share + 127 * 0x1p-18);
  EXPECT_GT(result.o[0], 0.8 * share);
}

TEST(Float8AttentionTest, QueriesWithoutCodesAreZerosOrNaN) {
  Problem problem = Float8Problems()[1];
  const int dim = problem.shape.k_dim;
  std::fill_n(problem.query.row(0), dim, 0.0f);
  std::fill_n(problem.query.row(1), dim, 0x1p-120f);
  problem.query.row(2)[5] = std::numeric_limits<float>::infinity();
  problem.query.row(3)[0] = std::nanf("");
  const AttentionResult result = AttendInFloat8(problem);
  const int64_t row = int64_t{problem.heads()} * problem.shape.v_dim;
  for (int d = 0; d < problem.shape.v_dim; ++d) {
    double mean = 0;
    for (int64_t j = 0; j < 271; ++j) mean += problem.v.row(j)[d] / 271;
    EXPECT_NEAR(result.o[d], mean, 1e-5);
    EXPECT_NEAR(result.o[row + d], (mean * 271 + problem.v.row(271)[d]) / 272, 1e-5);
    EXPECT_TRUE(std::isnan(result.o[2 * row + d]));
    EXPECT_TRUE(std::isnan(result.o[3 * row + d]));
  }
  EXPECT_TRUE(std::isfinite(result.o[2 * row + problem.shape.v_dim])) << "another head";
}

TEST(Float8AttentionTest, OtherPagesAndBranchesAreAttendedAsEver) {
  const OpTable table = reference::WithFloat8Attention(Reference());
  for (const DType dtype : {DType::kBF16, DType::kF8E5M2, DType::kI8}) {
    Problem problem = Float8Problems()[1];
    problem.shape.dtype = dtype;
    FillProblem(problem, 7);
    EXPECT_TRUE(AttendInFloat8(problem) == AttendOn(*MakeStream(2), Reference(), problem));
  }
  Problem problem = Float8Problems()[1];
  problem.window = 0;
  const DilatedBranch branches[] = {{64, 2}};
  EXPECT_TRUE(AttendOn(*MakeStream(2), table, problem, {}, branches) ==
              AttendOn(*MakeStream(2), Reference(), problem, {}, branches));
  EXPECT_FALSE(table.row_invariant);
}

// Pages in lists are those of the list, and a state that is there already is merged into.
TEST(Float8AttentionTest, ListsAndMergesAreThoseOfTheReference) {
  Problem problem = Float8Problems()[1];
  problem.window = 0;
  RoundQueries(problem);
  const std::vector<int32_t> rows = {0, static_cast<int32_t>(problem.rows())};
  std::vector<int32_t> all;
  const auto pages = static_cast<int32_t>(problem.page_present.size());
  for (int32_t p = 0; p < pages; ++p) all.push_back(p);
  const std::vector<int32_t> offsets = {0, pages};
  const OpTable table = reference::WithFloat8Attention(Reference());
  const BlockLists lists{false, 1, rows, offsets, all};
  const AttentionResult whole = AttendInFloat8(problem);
  EXPECT_TRUE(AttendOn(*MakeStream(2), table, problem, lists) == whole);
  const std::vector<int32_t> ends = {0, pages - 2};
  const AttentionResult fewer =
      AttendOn(*MakeStream(2), table, problem, {false, 1, rows, ends, std::span(all).subspan(2)});
  std::fill_n(problem.page_present.begin(), 2, false);
  ExpectWithinFloat8(problem, fewer, /*rounded=*/true);
  std::fill_n(problem.page_present.begin(), 2, true);
  ExpectWithinFloat8(problem, AttendInTwo(table, problem, 2, /*apart=*/false), /*rounded=*/true);
}

}  // namespace
}  // namespace annulus::testing
