// What only tiles of many keys can get wrong: stages of shared memory that are used again, and
// blocks that compute several units.
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/ops.h"
#include "tests/kernels/cuda/few_blocks.h"
#include "tests/kernels/cuda/wide_attention.h"
#include "tests/support/thinned.h"

namespace annulus::cuda {
namespace {

class AttentionTilesTest : public ::testing::Test {
 protected:
  testing::AttentionResult Attend(const OpTable& table, const testing::Problem& problem) {
    return testing::AttendOn(*stream_, table, problem);
  }
  void ExpectManyTiles(const std::vector<int>& page_sizes, const std::vector<DType>& dtypes,
                       uint32_t seed, size_t most);

 private:
  const std::unique_ptr<CudaStream> stream_ = StreamOfBlocks(4);
};

// Tiles of several pages and pages of several tiles, blocks that compute several units, windows
// that begin and end inside of a page, all head dimensions, and `dtypes` in turn: `most` of these.
void AttentionTilesTest::ExpectManyTiles(const std::vector<int>& page_sizes,
                                         const std::vector<DType>& dtypes, uint32_t seed,
                                         size_t most) {
  struct Case {
    int page_tokens, dim;
    uint32_t seed;
  };
  std::vector<Case> all;
  for (const int page_tokens : page_sizes) {
    for (const int dim : {64, 128, 200, 256}) all.push_back({page_tokens, dim, seed++});
    if (dtypes.size() % 2 == 0) ++seed;  // so that each dimension meets each type
  }
  for (const Case& c : testing::Thinned(all, most)) {
    testing::Problem problem =
        testing::WideProblem(dtypes[c.seed % dtypes.size()], c.page_tokens, c.dim);
    if (c.dim == 200) problem.shape.v_dim = 72;  // panels without values
    problem.window = c.seed % 7 < 3 ? 300 : 0;
    problem.soft_cap = c.seed % 5 < 2 ? 2 : 0;
    testing::FillProblem(problem, c.seed);
    SCOPED_TRACE(::testing::Message() << problem.name << ", seed " << c.seed);
    testing::ExpectNear(problem, Attend(HopperOps(), problem),
                        testing::Attend(testing::Reference(), problem, 1));
  }
}

TEST_F(AttentionTilesTest, ManyTilesOfEveryPageSize) {
  ExpectManyTiles({16, 64, 112, 128, 256}, {DType::kBF16, DType::kF16}, 600, 7);
}

TEST_F(AttentionTilesTest, ManyTilesOf8BitPagesOfEverySize) {
  ExpectManyTiles({16, 64, 128}, {DType::kI8, DType::kF8E4M3, DType::kF8E5M2}, 640, 5);
}

// Blocks of sm80/ read the views of some pages at a time, and read on after half of them.
TEST_F(AttentionTilesTest, ManyPages) {
  testing::Problem problem = testing::WideProblem(DType::kBF16, 16, 64);
  problem.end = 4800;
  problem.positions = testing::Consecutive(4770, 20);
  testing::FillProblem(problem, 900);
  testing::ExpectNear(problem, Attend(Ops(), problem),
                      testing::Attend(testing::Reference(), problem, 1));
}

// Keys and values whose scales lie far apart, in tiles that nothing is hidden from and in the
// others: a scale that met another key, or weights of another base, would show.
TEST_F(AttentionTilesTest, EveryKeyHasItsOwnScale) {
  for (const int dim : {96, 200}) {
    for (const int page_tokens : {48, 128}) {
      testing::Problem problem = testing::WideProblem(DType::kI8, page_tokens, dim);
      testing::FillProblem(problem, 800 + static_cast<uint32_t>(dim));
      for (int64_t j = 0; j < problem.end; ++j) {
        for (int h = 0; h < 2; ++h) {
          // Powers of two, so that the numbers still are what int8 can store.
          const float key = j % 7 == 0 ? 4 : j % 3 == 0 ? 0.25f : 1;
          const float value = j % 5 == 0 ? 64 : j % 2 == 0 ? 0x1p-20f : 1;
          for (int d = 0; d < dim; ++d) {
            problem.k.row(j)[h * dim + d] *= key;
            problem.v.row(j)[h * dim + d] *= value;
          }
        }
      }
      SCOPED_TRACE(problem.name);
      testing::ExpectNear(problem, Attend(HopperOps(), problem),
                          testing::Attend(testing::Reference(), problem, 1));
    }
  }
}

// fp8 is multiplied as f16, in which such queries would be infinite, and scores of both signs NaN.
TEST_F(AttentionTilesTest, QueriesBeyondF16StayFiniteOnFloat8Pages) {
  for (const DType dtype : {DType::kF8E4M3, DType::kF8E5M2}) {
    testing::Problem problem = testing::WideProblem(dtype, 64, 128);
    testing::FillProblem(problem, 11);
    for (int64_t r = 0; r < problem.rows(); ++r) {
      for (int64_t d = 0; d < problem.query.cols(); ++d) problem.query.row(r)[d] *= 0x1p20f;
    }
    const testing::AttentionResult result = Attend(HopperOps(), problem);
    for (const float o : result.o) ASSERT_TRUE(std::isfinite(o)) << problem.name;
    for (const float lse : result.lse) ASSERT_TRUE(std::isfinite(lse)) << problem.name;
  }
}

// One element of one value that is not finite (of 8 bits NaN, as they have no infinity): it reaches
// the rows that see it, in its own column alone. Of int8 it makes the value's scale NaN, and so all
// of its columns.
TEST_F(AttentionTilesTest, InfiniteValuesReachTheirColumnOfRowsThatSeeThem) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  struct Case {
    OpTable table;
    DType dtype;
    int dim;
  };
  for (const auto& [table, dtype, dim] :
       {Case{Ops(), DType::kBF16, 80}, Case{HopperOps(), DType::kBF16, 80},
        Case{HopperOps(), DType::kF16, 80}, Case{HopperOps(), DType::kBF16, 250},
        Case{HopperOps(), DType::kF16, 250}, Case{HopperOps(), DType::kI8, 80},
        Case{HopperOps(), DType::kF8E4M3, 250}, Case{HopperOps(), DType::kF8E5M2, 120},
        Case{Ops(), DType::kF8E4M3, 120}, Case{Ops(), DType::kI8, 80}}) {
    const bool narrow = DTypeSize(dtype) == 1;
    testing::Problem problem = testing::WideProblem(dtype, 64, dim);
    testing::FillProblem(problem, 9);
    constexpr int64_t kBad = 600;
    const int column = dim - 9;
    problem.v.row(kBad)[column] = 0;
    const testing::AttentionResult clean = Attend(table, problem);
    problem.v.row(kBad)[column] = narrow ? std::nanf("") : kInfinity;
    const testing::AttentionResult dirty = Attend(table, problem);
    for (int64_t r = 0; r < problem.rows(); ++r) {
      for (int h = 0; h < problem.heads(); ++h) {
        const int64_t index = (r * problem.heads() + h) * dim;
        const bool reached = h < problem.group && !problem.Masked(r, kBad);
        for (int d = 0; d < dim; ++d) {
          if (reached && (d == column || dtype == DType::kI8)) {
            const float got = dirty.o[index + d];
            ASSERT_TRUE(narrow ? std::isnan(got) : got == kInfinity) << table.name << " row " << r;
          } else {
            ASSERT_NEAR(dirty.o[index + d], clean.o[index + d], reached ? 1e-3 : 0)
                << table.name << " row " << r << " column " << d;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace annulus::cuda
