#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/cpu/attention_fixture.h"

namespace annulus::testing {
namespace {

using AttentionTest = EveryTable;

int Everything(int64_t, int, int64_t) { return 1; }

// One storage type for each way that tables attend: as float32, in pairs, widened and in pairs.
constexpr DType kWays[] = {DType::kF32, DType::kBF16, DType::kF8E5M2, DType::kI8};

// A problem with sizes drawn at random: odd dimensions, every group ratio, windows, gaps, partial
// pages, rows that are not neighbours.
Problem RandomProblem(uint32_t seed) {
  std::mt19937 random(seed);
  const auto draw = [&](int low, int high) {
    return low + static_cast<int>(random() % (high - low + 1));
  };
  Problem problem;
  const int page_tokens[] = {16, 32, 48, 64, 128};
  const int groups[] = {1, 2, 3, 8};
  problem.shape.page_tokens = page_tokens[random() % 5];
  problem.shape.kv_heads = draw(1, 3);
  problem.shape.k_dim = draw(1, 90);
  problem.shape.v_dim = draw(1, 90);
  problem.shape.dtype = kKvDTypes[random() % 6];
  problem.group = groups[seed % 4];
  problem.window = random() % 2 ? 0 : draw(1, 100);
  problem.soft_cap = random() % 3 ? 0 : 0.3f * static_cast<float>(draw(1, 10));
  problem.begin = int64_t{problem.shape.page_tokens} * draw(0, 3);
  problem.end = problem.begin + draw(1, 300);
  const int64_t pages =
      (problem.end - problem.begin + problem.shape.page_tokens - 1) / problem.shape.page_tokens;
  for (int64_t p = 0; p < pages; ++p) problem.page_present.push_back(random() % 4 != 0);
  // From a little before the first key, where nothing is seen, to a little after the last.
  const int64_t first = std::max<int64_t>(0, problem.begin - 5);
  for (int64_t i = first; i < problem.end + 20; ++i) {
    if (random() % 5 < 2) problem.positions.push_back(static_cast<int32_t>(i));
  }
  FillProblem(problem, seed);
  return problem;
}

TEST_P(AttentionTest, MatchesTheReferenceOverRandomShapes) {
  for (uint32_t seed = 100; seed < (IsEmulated(table()) ? 130 : 150); ++seed) {
    const Problem problem = RandomProblem(seed);
    SCOPED_TRACE(problem.name);
    ExpectNear(problem, Attend(table(), problem, 2), Attend(Reference(), problem, 2));
    if (HasFatalFailure()) return;
  }
}

TEST_P(AttentionTest, MergesIntoTheStateOfOtherKeys) {
  for (uint32_t seed = 700; seed < (IsEmulated(table()) ? 715 : 730); ++seed) {
    const Problem problem = RandomProblem(seed);
    SCOPED_TRACE(problem.name);
    ExpectMerges(table(), problem, 2);
    if (HasFatalFailure()) return;
  }
}

// The reference itself against float64.
TEST(AttentionReferenceTest, MatchesFloat64) {
  for (uint32_t seed = 200; seed < 220; ++seed) {
    const Problem problem = RandomProblem(seed);
    SCOPED_TRACE(problem.name);
    ExpectNear(problem, Attend(Reference(), problem, 1), DenseAttention(problem, Everything));
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST_P(AttentionTest, NoPagesGiveTheEmptyState) {
  Problem problem;
  problem.shape = {.page_tokens = 16, .kv_heads = 2, .k_dim = 8, .v_dim = 5, .dtype = DType::kF32};
  problem.group = 2;
  problem.positions = Consecutive(100, 7);
  FillProblem(problem, 1);
  const AttentionResult result = Attend(table(), problem, 2);
  for (const float o : result.o) EXPECT_EQ(o, 0);
  for (const float lse : result.lse) EXPECT_EQ(lse, -std::numeric_limits<float>::infinity());
}

TEST_P(AttentionTest, NoRowsAndNoItemsAreNoWork) {
  Problem problem;
  problem.shape = {.page_tokens = 16, .kv_heads = 1, .k_dim = 8, .v_dim = 8, .dtype = DType::kF32};
  problem.end = 20;
  FillProblem(problem, 2);
  EXPECT_TRUE(Attend(table(), problem, 2).o.empty());
  EXPECT_TRUE(table().attention(*MakeStream(table(), 2), MakeParams(problem, {})).ok());
}

// A single visible key: the value itself, and its score.
TEST_P(AttentionTest, OneKeyIsCopied) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF8E4M3}) {
    Problem problem;
    problem.shape = {.page_tokens = 64, .kv_heads = 1, .k_dim = 24, .v_dim = 40, .dtype = dtype};
    problem.end = 200;
    problem.window = 1;
    problem.positions = Consecutive(0, 200);
    FillProblem(problem, 3);
    SCOPED_TRACE(problem.name);
    const AttentionResult result = Attend(table(), problem, 2);
    for (int64_t r = 0; r < 200; ++r) {
      for (int d = 0; d < 40; ++d) {
        ASSERT_EQ(result.o[r * 40 + d], problem.v.row(r)[d]) << r << " " << d;
      }
    }
  }
}

// Every pattern of the 8-bit formats, in both halves of a pair, comes through widening unchanged.
TEST_P(AttentionTest, EveryNarrowValueIsCopied) {
  for (const DType dtype : {DType::kF8E4M3, DType::kF8E5M2}) {
    Problem problem;
    problem.shape = {.page_tokens = 64, .kv_heads = 1, .k_dim = 8, .v_dim = 256, .dtype = dtype};
    problem.end = 2;
    problem.window = 1;
    problem.positions = Consecutive(0, 2);
    FillProblem(problem, 9);
    std::vector<uint8_t> patterns(256);
    for (int i = 0; i < 256; ++i) patterns[i] = static_cast<uint8_t>(i);
    for (int64_t r = 0; r < 2; ++r) {
      ConvertToFloat(dtype, patterns.data(), problem.v.row(r), 256);
      // What is not finite is not written by kv_append: it saturates.
      for (int i = 0; i < 256; ++i) {
        if (std::isinf(problem.v.row(r)[i])) problem.v.row(r)[i] = 1;
      }
    }
    const AttentionResult result = Attend(table(), problem, 1);
    for (int i = 0; i < 512; ++i) {
      const float expected = problem.v.row(i / 256)[i % 256];
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(result.o[i])) << DTypeName(dtype) << " pattern " << i % 256;
      } else {
        ASSERT_EQ(result.o[i], expected) << DTypeName(dtype) << " pattern " << i % 256;
      }
    }
  }
}

// Scores far apart: the maximum moves by thousands, in both directions, without overflow.
TEST_P(AttentionTest, LargeScores) {
  for (const DType dtype : kWays) {
    for (const float size : {3.0f, 1024.0f}) {
      Problem problem;
      problem.shape = {.page_tokens = 64, .kv_heads = 1, .k_dim = 16, .v_dim = 16, .dtype = dtype};
      problem.group = 2;
      problem.end = 300;
      problem.positions = Consecutive(270, 30);
      FillProblem(problem, 4);
      for (int64_t r = 0; r < problem.rows(); ++r) {
        for (int64_t c = 0; c < problem.query.cols(); ++c) problem.query.row(r)[c] *= size;
        if (MayRoundOperands(dtype)) {
          RoundToStorage(DType::kBF16, problem.query.row(r), problem.query.cols());
        }
      }
      SCOPED_TRACE(problem.name);
      ExpectNear(problem, Attend(table(), problem, 2), DenseAttention(problem, Everything));
      if (HasFatalFailure()) return;
    }
  }
}

// Scores that grow from chunk to chunk, by less and by more than any slack of the maximum, and
// fall. In one shard, whose chunks a kernel may take several at a time.
TEST_P(AttentionTest, MovingMaximum) {
  for (const DType dtype : kWays) {
    for (const float step : {0.5f, 8.0f, 40.0f, -40.0f}) {
      Problem problem;
      problem.shards = 1;
      problem.shape = {.page_tokens = 64, .kv_heads = 1, .k_dim = 16, .v_dim = 32, .dtype = dtype};
      problem.group = 3;
      problem.end = 500;
      problem.positions = Consecutive(440, 60);
      FillProblem(problem, 8);
      for (int64_t r = 0; r < problem.rows(); ++r) {
        for (int h = 0; h < problem.heads(); ++h) problem.query.row(r)[h * 16] = 4;
      }
      // With the scale of 1/4 the score grows by `step` per 64 keys.
      for (int64_t j = 0; j < problem.end; ++j) {
        problem.k.row(j)[0] = step * static_cast<float>(j / 64);
        RoundToStorage(dtype, problem.k.row(j), problem.k.cols());
      }
      SCOPED_TRACE(::testing::Message() << problem.name << " step " << step);
      ExpectNear(problem, Attend(table(), problem, 2), DenseAttention(problem, Everything));
      if (HasFatalFailure()) return;
    }
  }
}

// A key that weighs 2^29 times as much as each other, and has no value, does not make them vanish:
// a table that rounds weights has to keep them apart from 0.
TEST_P(AttentionTest, AHeavyKeyHidesNoOthers) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF8E4M3, DType::kI8}) {
    for (const int rows : {1, 200}) {  // of few rows, and of many
      Problem problem;
      problem.shape = {.page_tokens = 64, .kv_heads = 1, .k_dim = 16, .v_dim = 16, .dtype = dtype};
      problem.end = 700;
      problem.positions = Consecutive(problem.end - rows, rows);
      FillProblem(problem, 10);
      for (int64_t r = 0; r < rows; ++r) {
        for (int d = 0; d < 16; ++d) problem.query.row(r)[d] = d == 0 ? 8 : 0;
      }
      for (int64_t j = 0; j < problem.end; ++j) {
        for (int d = 0; d < 16; ++d) {
          problem.k.row(j)[d] = d == 0 && j == 0 ? 10 : 0;  // with the scale of 1/4 a score of 20
          problem.v.row(j)[d] = j == 0 ? 0 : 1;
        }
        RoundToStorage(dtype, problem.k.row(j), 16);
        RoundToStorage(dtype, problem.v.row(j), 16);
      }
      SCOPED_TRACE(::testing::Message() << problem.name << " rows " << rows);
      const AttentionResult result = Attend(table(), problem, 2);
      const double weight = std::exp(-2.0 * problem.k.row(0)[0]);
      for (int64_t r = 0; r < rows; ++r) {
        const double others = weight * problem.positions[r];
        const double expected = others / (1 + others) * problem.v.row(1)[0];
        ASSERT_NEAR(result.o[r * 16], expected, 0.02 * expected) << r;
      }
    }
  }
}

// Positions on both sides of span boundaries, page sizes that do not divide a span, few rows (spans
// side by side) and many (one after the other).
TEST_P(AttentionTest, SpansAreMergedInto1Softmax) {
  uint32_t seed = 300;
  for (const int page_tokens : {48, 64}) {
    for (const int32_t window : {0, 9000}) {
      if (IsEmulated(table()) && (page_tokens == 48 || window == 0)) continue;
      Problem problem;
      problem.shape = {.page_tokens = page_tokens,
                       .kv_heads = 1,
                       .k_dim = 20,
                       .v_dim = 12,
                       .dtype = kWays[seed % 3]};
      problem.group = 2;
      problem.window = window;
      problem.end = 2 * kAttentionSpan + 130;
      problem.positions = {0, 8190, 8191, 8192, 8193, 16383, 16384, 16500, 16513};
      FillProblem(problem, seed++);
      SCOPED_TRACE(problem.name);
      const AttentionResult expected = Attend(Reference(), problem, 1);
      ExpectNear(problem, expected, DenseAttention(problem, Everything));
      ExpectNear(problem, Attend(table(), problem, 1), expected);
      ExpectNear(problem, Attend(table(), problem, 3), expected);
      ExpectMerges(table(), problem, 1);
      ExpectMerges(table(), problem, 3);
      if (HasFatalFailure()) return;
    }
  }
}

// Positions near the end of int32: nothing overflows.
TEST_P(AttentionTest, HugePositions) {
  Problem problem;
  problem.shape = {.page_tokens = 64, .kv_heads = 1, .k_dim = 8, .v_dim = 8};
  problem.begin = 2147483648 - 128;
  problem.end = 2147483647;
  problem.positions = Consecutive(2147483647 - 100, 100);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    problem.shape.dtype = dtype;
    for (const int32_t window : {0, 7, 2147483647}) {
      problem.window = window;
      FillProblem(problem, 5);
      ExpectNear(problem, Attend(table(), problem, 2), DenseAttention(problem, Everything));
    }
  }
}

// A soft cap far below the scores, far above them, and of Gemma 2's size.
TEST_P(AttentionTest, SoftCapBendsTheScores) {
  for (const float soft_cap : {0.01f, 1.0f, 50.0f, 1e3f}) {
    Problem problem;
    problem.shape = {
        .page_tokens = 32, .kv_heads = 2, .k_dim = 24, .v_dim = 16, .dtype = DType::kF32};
    problem.group = 2;
    problem.soft_cap = soft_cap;
    problem.end = 200;
    problem.positions = Consecutive(150, 50);
    FillProblem(problem, 7);
    for (int64_t r = 0; r < problem.rows(); ++r) {
      for (int64_t c = 0; c < problem.query.cols(); ++c) problem.query.row(r)[c] *= 30;
      if (problem.shape.dtype == DType::kF16) {
        RoundToStorage(DType::kF16, problem.query.row(r), problem.query.cols());
      }
    }
    SCOPED_TRACE(problem.name);
    const AttentionResult expected = DenseAttention(problem, Everything);
    ExpectNear(problem, Attend(table(), problem, 2), expected);
    ExpectNear(problem, Attend(Reference(), problem, 2), expected);
  }
}

// The head dimensions of real models, and one that divides nothing, in every storage type.
TEST_P(AttentionTest, HeadDimensionsOfModels) {
  uint32_t seed = 350;
  for (const int dim : {64, 80, 96, 128, 192, 256, 97}) {
    for (const DType dtype : kKvDTypes) {
      Problem problem;
      problem.shape = {
          .page_tokens = 64, .kv_heads = 1, .k_dim = dim, .v_dim = dim, .dtype = dtype};
      problem.group = 4;
      problem.end = 150;
      problem.positions = Consecutive(120, 30);
      FillProblem(problem, seed++);
      SCOPED_TRACE(problem.name);
      ExpectNear(problem, Attend(table(), problem, 2), Attend(Reference(), problem, 2));
      if (HasFatalFailure()) return;
    }
  }
}

// Lists of pages for blocks of rows, with the memory they point to.
struct RandomLists {
  RandomLists(const Problem& problem, int head_groups, std::mt19937& random) {
    lists.full = false;
    lists.head_groups = head_groups;
    rows.push_back(0);
    while (rows.back() < problem.rows()) {
      rows.push_back(
          static_cast<int32_t>(std::min<int64_t>(problem.rows(), rows.back() + random() % 20)));
    }
    const int64_t page_count =
        std::count(problem.page_present.begin(), problem.page_present.end(), true);
    offsets.push_back(0);
    for (size_t list = 0; list < head_groups * (rows.size() - 1); ++list) {
      for (int64_t p = 0; p < page_count; ++p) {
        if (random() % 2) pages.push_back(static_cast<int32_t>(p));
      }
      offsets.push_back(static_cast<int32_t>(pages.size()));
    }
    lists.query_block_rows = rows;
    lists.offsets = offsets;
    lists.pages = pages;
  }
  RandomLists(const RandomLists&) = delete;

  // Whether position j's page is in the list of the row's block and the kv head's group.
  bool Listed(const Problem& problem, int64_t row, int kv_head, int64_t j) const {
    const int64_t block = std::upper_bound(rows.begin(), rows.end(), row) - rows.begin() - 1;
    const int64_t group = kv_head / (problem.shape.kv_heads / lists.head_groups);
    const int64_t list = group * (rows.size() - 1) + block;
    const int64_t page = (j - problem.begin) / problem.shape.page_tokens;
    const auto index =
        std::count(problem.page_present.begin(), problem.page_present.begin() + page, true);
    return std::binary_search(pages.begin() + offsets[list], pages.begin() + offsets[list + 1],
                              static_cast<int32_t>(index));
  }

  BlockLists lists;
  std::vector<int32_t> rows;
  std::vector<int32_t> offsets;
  std::vector<int32_t> pages;
};

TEST_P(AttentionTest, BlockListsEqualTheSameMaskAppliedDensely) {
  for (uint32_t seed = 400; seed < 430; ++seed) {
    const Problem problem = RandomProblem(seed);
    std::mt19937 random(seed);
    const int head_groups = seed % 2 ? problem.shape.kv_heads : 1;
    const RandomLists lists(problem, head_groups, random);
    SCOPED_TRACE(::testing::Message() << problem.name << " head groups " << head_groups);
    ExpectNear(problem, Attend(table(), problem, 2, lists.lists),
               DenseAttention(problem, [&](int64_t row, int head, int64_t j) {
                 return lists.Listed(problem, row, head / problem.group, j);
               }));
    if (HasFatalFailure()) return;
  }
}

// What lies in slots that a row may not see, even NaN and infinity, does not reach it.
TEST_P(AttentionTest, UnseenKeysDoNotLeak) {
  for (const DType dtype : kWays) {
    for (const int32_t window : {0, 10, 70}) {
      Problem problem;
      problem.shape = {.page_tokens = 64, .kv_heads = 2, .k_dim = 33, .v_dim = 50, .dtype = dtype};
      problem.group = 3;
      problem.window = window;
      problem.end = 190;
      problem.positions = Consecutive(0, 190);
      FillProblem(problem, 6);
      SCOPED_TRACE(problem.name);
      const AttentionResult clean = Attend(table(), problem, 1);
      for (const int64_t bad : {int64_t{100}, int64_t{127}}) {
        Problem poisoned = problem;
        std::fill_n(poisoned.k.row(bad), poisoned.k.cols(), std::nanf(""));
        std::fill_n(poisoned.v.row(bad), poisoned.v.cols(), std::numeric_limits<float>::infinity());
        const AttentionResult dirty = Attend(table(), poisoned, 1);
        const int64_t per_row = problem.heads() * problem.shape.v_dim;
        for (int64_t r = 0; r < problem.rows(); ++r) {
          if (problem.Masked(r, bad)) {
            ASSERT_TRUE(
                SameBits(clean.o.data() + r * per_row, dirty.o.data() + r * per_row, per_row))
                << "row " << r << " bad " << bad;
          } else {
            ASSERT_TRUE(std::isnan(dirty.o[r * per_row])) << "row " << r << " bad " << bad;
          }
        }
      }
    }
  }
}

ANNULUS_FOR_EVERY_ATTENTION(AttentionTest);

}  // namespace
}  // namespace annulus::testing
