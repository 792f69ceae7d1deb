// Prefill attention by products of e4m3: against the scalars that round in the same places, and
// within the bound of its error against attention that rounds nothing.
#include "tests/kernels/cpu/float8_attention.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/trial.h"
#include "tests/kernels/cuda/few_blocks.h"
#include "tests/kernels/cuda/wide_attention.h"

namespace annulus::cuda {
namespace {

using testing::AttendOn;
using testing::AttentionResult;
using testing::Problem;

class Float8AttentionTest : public ::testing::Test {
 protected:
  AttentionResult Attend(const OpTable& table, const Problem& problem) {
    return AttendOn(*stream_, table, problem);
  }
  AttentionResult Attend(const Problem& problem) { return Attend(trial_, problem); }

  static Problem WideProblem(int page_tokens, int dim, uint32_t seed) {
    Problem problem = testing::WideProblem(DType::kF8E4M3, page_tokens, dim);
    if (dim == 96) problem.shape.v_dim = 72;
    problem.soft_cap = seed % 2 == 0 ? 2 : 0;
    testing::FillProblem(problem, seed);
    return problem;
  }

  const OpTable old_ = HopperOps();
  const OpTable trial_ = Float8TrialOf(HopperOps()).value();
  const std::unique_ptr<CudaStream> stream_ = StreamOfBlocks(2);  // no unit is divided
};

// The share of its heaviest key in the attention of a row and head.
double HeaviestShare(const Problem& problem, const AttentionResult& result, int64_t row, int head) {
  const int dim = problem.shape.k_dim;
  double most = 0;
  for (int64_t j = 0; j < problem.end; ++j) {
    if (problem.Masked(row, j)) continue;
    double dot = 0;
    for (int d = 0; d < dim; ++d) {
      dot += double{problem.query.row(row)[head * dim + d]} *
             problem.k.row(j)[head / problem.group * dim + d];
    }
    double score = dot * problem.scale();
    if (problem.soft_cap > 0) score = problem.soft_cap * std::tanh(score / problem.soft_cap);
    most = std::max(most, std::exp(score - result.lse[row * problem.heads() + head]));
  }
  return most;
}

// Both make the same weights but for rounding in float32, which may make one of a row's another
// code: a step of at most 2^-3 of that weight. Keys that meet other values, or scales other rows,
// would be far beyond.
void ExpectAlike(const Problem& problem, const AttentionResult& actual,
                 const AttentionResult& expected) {
  double value_size = 0;
  for (int64_t j = 0; j < problem.v.rows(); ++j) {
    for (int64_t c = 0; c < problem.v.cols(); ++c) {
      value_size = std::max(value_size, std::abs(double{problem.v.row(j)[c]}));
    }
  }
  for (int64_t r = 0; r < problem.rows(); ++r) {
    for (int h = 0; h < problem.heads(); ++h) {
      const int64_t index = r * problem.heads() + h;
      ASSERT_NEAR(actual.lse[index], expected.lse[index], 2e-5) << "row " << r << " head " << h;
      const double bound = (0x1p-3 * HeaviestShare(problem, expected, r, h) + 1e-5) * value_size;
      for (int d = 0; d < problem.shape.v_dim; ++d) {
        const int64_t at = index * problem.shape.v_dim + d;
        ASSERT_NEAR(actual.o[at], expected.o[at], bound)
            << "row " << r << " head " << h << " element " << d;
      }
    }
  }
}

// Tiles of several pages and pages of several tiles, blocks that compute several units, and stages
// that are used again; with queries that are codes, so that scores are the same.
TEST_F(Float8AttentionTest, MatchesTheScalars) {
  uint32_t seed = 700;
  for (const int page_tokens : {16, 112, 256}) {
    for (const int dim : {64, 96, 128}) {
      if (page_tokens == 256 && dim == 96) continue;
      Problem problem = WideProblem(page_tokens, dim, seed++);
      testing::RoundQueries(problem);
      SCOPED_TRACE(problem.name);
      ExpectAlike(problem, Attend(problem), testing::AttendInFloat8(problem));
    }
  }
}

// Queries become the codes of RoundToFloat8.
TEST_F(Float8AttentionTest, RoundsQueriesAsTheScalarsDo) {
  for (const int dim : {64, 120}) {
    Problem problem = WideProblem(64, dim, 720 + static_cast<uint32_t>(dim) / 64);
    SCOPED_TRACE(problem.name);
    ExpectAlike(problem, Attend(problem), testing::AttendInFloat8(problem));
  }
}

// Where tiles begin elsewhere than the scalars': behind windows, and where several blocks share a
// unit's keys.
TEST_F(Float8AttentionTest, StaysWithinItsBoundWhereverTilesBegin) {
  Problem problem = WideProblem(16, 64, 731);
  problem.window = 300;
  testing::RoundQueries(problem);
  testing::ExpectWithinFloat8(problem, Attend(problem), /*rounded=*/true);
  const Problem whole = WideProblem(64, 128, 733);
  const AttentionResult parts = AttendOn(*StreamOfBlocks(40), trial_, whole);
  testing::ExpectWithinFloat8(whole, parts, /*rounded=*/false);
  EXPECT_FALSE(parts == Attend(whole)) << "keys were not divided";
}

TEST_F(Float8AttentionTest, ARowThatSeesOneKeyHasItsValue) {
  Problem problem = WideProblem(64, 128, 741);
  problem.end = 130;
  problem.positions = testing::Consecutive(0, 130);
  testing::FillProblem(problem, 741);
  const AttentionResult result = Attend(problem);
  for (int h = 0; h < problem.heads(); ++h) {
    for (int d = 0; d < 128; ++d) {
      ASSERT_EQ(result.o[h * 128 + d], problem.v.row(0)[h / problem.group * 128 + d]);
    }
  }
}

// One value that is NaN in one column reaches the rows that see it, in that column alone.
TEST_F(Float8AttentionTest, NaNReachesItsColumnOfRowsThatSeeIt) {
  for (const int dim : {64, 120}) {
    Problem problem = testing::WideProblem(DType::kF8E4M3, 64, dim);
    testing::FillProblem(problem, 9);
    constexpr int64_t kBad = 600;
    const int column = dim - 9;
    problem.v.row(kBad)[column] = 0;
    const AttentionResult clean = Attend(problem);
    problem.v.row(kBad)[column] = std::nanf("");
    const AttentionResult dirty = Attend(problem);
    for (int64_t r = 0; r < problem.rows(); ++r) {
      for (int h = 0; h < problem.heads(); ++h) {
        const int64_t index = (r * problem.heads() + h) * dim;
        const bool reached = h < problem.group && !problem.Masked(r, kBad);
        for (int d = 0; d < dim; ++d) {
          if (reached && d == column) {
            ASSERT_TRUE(std::isnan(dirty.o[index + d])) << "row " << r;
          } else {
            ASSERT_EQ(dirty.o[index + d], clean.o[index + d]) << "row " << r << " column " << d;
          }
        }
      }
    }
  }
}

TEST_F(Float8AttentionTest, QueriesWithoutCodesAreZerosOrNaN) {
  Problem problem = WideProblem(64, 64, 751);
  std::fill_n(problem.query.row(0), 64, 0.0f);
  problem.query.row(1)[7] = std::nanf("");
  const AttentionResult result = Attend(problem);
  const AttentionResult scalars = testing::AttendInFloat8(problem);
  for (int d = 0; d < 64; ++d) {
    EXPECT_NEAR(result.o[d], scalars.o[d], 1e-5);
    EXPECT_TRUE(std::isnan(result.o[64 * problem.heads() + d]));
    EXPECT_TRUE(std::isfinite(result.o[64 * problem.heads() + 64 + d])) << "another head";
  }
}

// Everything else is the table's: other pages, larger heads and few rows.
TEST_F(Float8AttentionTest, LeavesTheRestAlone) {
  EXPECT_FALSE(Float8TrialOf(Ops()).has_value());
  EXPECT_FALSE(Float8TrialOf(InvariantHopperOps()).has_value());
  EXPECT_EQ(trial_.name, "cuda/sm90-fp8");
  Problem coded = WideProblem(64, 64, 761);
  EXPECT_FALSE(Attend(coded) == Attend(old_, coded));
  coded.positions = testing::Consecutive(690, 3);
  testing::FillProblem(coded, 762);
  EXPECT_TRUE(Attend(coded) == Attend(old_, coded)) << "few rows";
  for (const auto& [dtype, dim] : {std::pair(DType::kF8E5M2, 64),
                                   {DType::kI8, 64},
                                   {DType::kBF16, 64},
                                   {DType::kF8E4M3, 144}}) {
    Problem problem = testing::WideProblem(dtype, 64, dim);
    problem.end = 300;
    problem.positions = testing::Consecutive(200, 100);
    testing::FillProblem(problem, 763);
    EXPECT_TRUE(Attend(problem) == Attend(old_, problem)) << problem.name;
  }
}

}  // namespace
}  // namespace annulus::cuda
