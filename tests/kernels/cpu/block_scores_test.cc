#include "kernels/ops/block_scores.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <random>
#include <span>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/cpu/attention_fixture.h"

namespace annulus::testing {
namespace {

using BlockScoresTest = EveryTable;

struct ScoresCase {
  Problem problem;
  int32_t block_tokens = 64;
  int32_t stride = 1;
  std::vector<DilatedBranch> branches;
};

// Rows with holes, pages with gaps, odd dimensions, a last page that is not full.
ScoresCase RandomCase(uint32_t seed) {
  std::mt19937 random(seed);
  const auto draw = [&](int low, int high) {
    return low + static_cast<int>(random() % (high - low + 1));
  };
  ScoresCase c;
  Problem& problem = c.problem;
  const int page_tokens[] = {16, 32, 48, 64, 128};
  const int groups[] = {1, 2, 3, 33};
  const int32_t strides[] = {1, 8, 16};
  problem.shape.page_tokens = page_tokens[random() % 5];
  problem.shape.kv_heads = draw(1, 3);
  problem.shape.k_dim = draw(1, 90);
  problem.shape.v_dim = draw(1, 20);
  problem.shape.dtype = kKvDTypes[random() % 6];
  problem.group = groups[random() % 4];
  problem.soft_cap = random() % 3 ? 0 : 2;
  problem.begin = int64_t{problem.shape.page_tokens} * draw(0, 3);
  problem.end = problem.begin + draw(1, 300);
  const int64_t pages =
      (problem.end - problem.begin + problem.shape.page_tokens - 1) / problem.shape.page_tokens;
  for (int64_t p = 0; p < pages; ++p) problem.page_present.push_back(random() % 4 != 0);
  // Whole tiles, then single rows.
  const int64_t rows = draw(1, 60);
  const int64_t first = draw(0, static_cast<int>(problem.end));
  for (int64_t i = first; i < first + rows; ++i) {
    if (i < first + rows / 2 || random() % 3 == 0) {
      problem.positions.push_back(static_cast<int32_t>(i));
    }
  }
  c.block_tokens = problem.shape.page_tokens * draw(1, 3);
  c.stride = strides[seed % 3];
  for (int left = c.stride == 1 ? draw(0, 3) : 0; left > 0; --left) {
    const int rate = draw(1, 5);
    c.branches.push_back({problem.shape.page_tokens * rate * draw(1, 3), rate});
  }
  FillProblem(problem, seed);
  problem.name += absl::StrCat(" block ", c.block_tokens, " stride ", c.stride);
  return c;
}

std::vector<float> Score(const OpTable& table, const ScoresCase& c, int threads) {
  const PagedSequence pages(table, c.problem);
  BlockScoresItem item;
  item.query = c.problem.query.view();
  item.positions = c.problem.positions;
  item.pages = pages.views();
  item.branches = c.branches;
  std::vector<float> scores(CountRowGroups(item.positions, c.stride) * c.problem.heads() *
                                CountBlocks(item.pages, c.block_tokens) +
                            1);
  scores.back() = 12345;
  item.scores = scores.data();
  BlockScoresParams params;
  params.shape = c.problem.shape;
  params.heads = c.problem.heads();
  params.scale = c.problem.scale();
  params.soft_cap = c.problem.soft_cap;
  params.block_tokens = c.block_tokens;
  params.stride = c.stride;
  params.items = {&item, 1};
  EXPECT_TRUE(table.block_scores(*MakeStream(table, threads), params).ok());
  EXPECT_EQ(scores.back(), 12345);
  return scores;
}

// The largest product of a query's norm and a key's, scaled.
double LargestScore(const Problem& problem) {
  double query = 0;
  double key = 0;
  for (int64_t r = 0; r < problem.rows(); ++r) query = std::max(query, problem.query.RowNorm(r));
  for (int64_t j = 0; j < problem.k.rows(); ++j) key = std::max(key, problem.k.RowNorm(j));
  return problem.scale() * query * key;
}

// What a score's dot product may be off by, on both sides, and what the exponentials lose.
double Bound(const Problem& problem) {
  return 2 * Rounding(16.0 * problem.shape.k_dim) * LargestScore(problem) + 2e-5;
}

// The same of a table: that of GPUs rounds dequantised keys to bf16 where a tile has several, so
// each product is off by 2^-9 of itself.
double BoundOf(const OpTable& table, const ScoresCase& c) {
  const bool rounds = IsOfGpu(table) && c.stride > 1 && c.problem.shape.dtype == DType::kI8;
  return Bound(c.problem) + (rounds ? 0x1p-9 * LargestScore(c.problem) : 0);
}

// `actual` against the reference's scores.
void ExpectScores(const ScoresCase& c, const std::vector<float>& actual, double bound) {
  const std::vector<float> expected = Score(Reference(), c, 1);
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    if (std::isinf(expected[i])) {
      ASSERT_EQ(actual[i], expected[i]) << i;
    } else {
      ASSERT_NEAR(actual[i], expected[i], bound) << i;
    }
  }
}

TEST_P(BlockScoresTest, MatchesTheReferenceOverRandomShapes) {
  for (uint32_t seed = 300; seed < 327; ++seed) {
    const ScoresCase c = RandomCase(seed);
    SCOPED_TRACE(c.problem.name);
    const std::vector<float> actual = Score(table(), c, 2);
    ASSERT_NO_FATAL_FAILURE(ExpectScores(c, actual, BoundOf(table(), c)));
    ASSERT_EQ(actual, Score(table(), c, 1)) << "depends on the threads";
  }
}

// Head dimensions of models, with rows enough for several tiles of a GPU, and blocks from less than
// four tiles of keys to more than it takes up at a time.
TEST_P(BlockScoresTest, MatchesTheReferenceOverModelsShapes) {
  struct Shape {
    int k_dim;
    DType dtype;
    int page_tokens;
    int32_t block_tokens;
    int32_t stride;
    int group;
  };
  const Shape shapes[] = {
      {64, DType::kBF16, 64, 64, 16, 8},   {96, DType::kF8E4M3, 32, 32, 16, 4},
      {128, DType::kI8, 16, 48, 8, 3},     {256, DType::kF16, 128, 128, 16, 2},
      {128, DType::kBF16, 16, 320, 1, 4},  {96, DType::kI8, 48, 48, 1, 8},
      {64, DType::kF8E5M2, 64, 128, 1, 5}, {128, DType::kF16, 16, 16, 16, 6},
      {24, DType::kBF16, 32, 2112, 8, 1},
  };
  for (const Shape& shape : shapes) {
    ScoresCase c;
    c.block_tokens = shape.block_tokens;
    c.stride = shape.stride;
    Problem& problem = c.problem;
    problem.shape = {.page_tokens = shape.page_tokens,
                     .kv_heads = 2,
                     .k_dim = shape.k_dim,
                     .v_dim = 8,
                     .dtype = shape.dtype};
    problem.group = shape.group;
    problem.end = 2200;
    problem.positions = Consecutive(shape.stride == 1 ? 600 : 500, shape.stride == 1 ? 23 : 331);
    FillProblem(problem, static_cast<uint32_t>(shape.k_dim));
    for (size_t p = 0; p < problem.page_present.size(); ++p) problem.page_present[p] = p % 7 != 3;
    SCOPED_TRACE(absl::StrCat(problem.name, " block ", c.block_tokens, " stride ", c.stride));
    ASSERT_NO_FATAL_FAILURE(ExpectScores(c, Score(table(), c, 2), BoundOf(table(), c)));
  }
}

// With stride 1 tables of GPUs do not round queries, whatever pages hold: neither large ones, which
// f16 does not reach, nor small ones. A row has the size of its own power of two.
TEST_P(BlockScoresTest, SingleRowsAreNotRounded) {
  if (!IsOfGpu(table()) && MultipliesBf16(table())) {
    GTEST_SKIP() << table().name << " rounds queries";
  }
  for (const DType dtype : kKvDTypes) {
    std::mt19937 random(static_cast<uint32_t>(dtype) + 1);
    ScoresCase c;
    Problem& problem = c.problem;
    problem.shape = {.page_tokens = 32, .kv_heads = 2, .k_dim = 80, .v_dim = 8, .dtype = dtype};
    problem.group = 3;
    problem.end = 200;
    problem.positions = Consecutive(150, 29);
    FillProblem(problem, static_cast<uint32_t>(dtype));
    SCOPED_TRACE(problem.name);
    problem.query.FillNormal(random);
    double key = 0;
    for (int64_t j = 0; j < problem.k.rows(); ++j) key = std::max(key, problem.k.RowNorm(j));
    std::vector<double> bounds;
    for (int64_t r = 0; r < problem.rows(); ++r) {
      const float size = std::ldexp(1.0f, static_cast<int>(random() % 41) - 20);
      for (int64_t i = 0; i < problem.query.cols(); ++i) problem.query.row(r)[i] *= size;
      const double largest = problem.scale() * problem.query.RowNorm(r) * key;
      bounds.push_back(2 * Rounding(problem.shape.k_dim) * largest + 2e-5);
    }
    const std::vector<float> actual = Score(table(), c, 2);
    const std::vector<float> expected = Score(Reference(), c, 1);
    const size_t row = (actual.size() - 1) / problem.rows();
    for (size_t i = 0; i + 1 < actual.size(); ++i) {
      if (std::isinf(expected[i])) {
        ASSERT_EQ(actual[i], expected[i]) << "row " << i / row;
      } else {
        ASSERT_NEAR(actual[i], expected[i], bounds[i / row]) << "row " << i / row;
      }
    }
  }
}

// With one query a row group, scores of all blocks together are attention's own lse.
TEST(BlockScoresReferenceTest, OfSingleRowsAreThePartsOfAttention) {
  for (uint32_t seed = 300; seed < 312; seed += 3) {
    ScoresCase c = RandomCase(seed);
    ASSERT_EQ(c.stride, 1);
    SCOPED_TRACE(c.problem.name);
    // One branch keeps each key once, as attention does; several do not.
    if (c.branches.size() > 1) c.branches.resize(1);
    const std::vector<float> scores = Score(Reference(), c, 1);
    const AttentionResult attended = Attend(Reference(), c.problem, 1, {}, c.branches);
    const int64_t lists = c.problem.rows() * c.problem.heads();
    const int64_t blocks = static_cast<int64_t>(scores.size() - 1) / lists;
    for (int64_t list = 0; list < lists; ++list) {
      double sum = 0;
      for (int64_t b = 0; b < blocks; ++b) sum += std::exp(double{scores[list * blocks + b]});
      const float lse = attended.lse[list];
      if (sum == 0) {
        ASSERT_EQ(lse, -std::numeric_limits<float>::infinity());
      } else {
        ASSERT_NEAR(std::log(sum), lse, Bound(c.problem) + 1e-5);
      }
    }
  }
}

// Blocks on a slash score highest for the tiles of queries whose antidiagonals cross it: those of
// every second tile cross odd distances, the others even ones.
TEST_P(BlockScoresTest, AntidiagonalsMeetSlashes) {
  for (const int64_t distance : {321, 322}) {
    ScoresCase c;
    c.stride = 16;
    Problem& problem = c.problem;
    problem.shape = {
        .page_tokens = 64, .kv_heads = 1, .k_dim = 512, .v_dim = 8, .dtype = DType::kBF16};
    problem.end = 1024;
    problem.positions = Consecutive(960, 64);
    FillProblem(problem, 7);
    for (int64_t r = 0; r < 64; ++r) {
      for (int d = 0; d < 512; ++d) {
        problem.query.row(r)[d] = 8 * problem.k.row(960 + r - distance)[d];
      }
    }
    const std::vector<float> scores = Score(table(), c, 1);
    for (int64_t group = distance % 2 == 1 ? 0 : 1; group < 4; group += 2) {
      const float* const row = scores.data() + group * 16;
      const auto best = std::max_element(row, row + 16) - row;
      EXPECT_TRUE(best == 10 || (group == 0 && best == 9))
          << distance << " " << group << " " << best;
    }
  }
}

// Summaries of pages, in runs of a few pages each; a run has planes of least, greatest and mean
// keys, and room behind each that nobody may write.
class Summaries {
 public:
  Summaries(const Problem& problem, size_t pages, int parts, int64_t run_pages)
      : run_pages_(run_pages),
        parts_(parts),
        page_floats_(parts * problem.k.cols()),
        storage_((pages + run_pages - 1) / run_pages,
                 std::vector<float>(static_cast<size_t>(3 * plane()), kUntouched)) {
    for (std::vector<float>& run : storage_) runs_.push_back(run.data());
  }

  SummaryRuns runs() const { return {runs_, run_pages_}; }
  int parts() const { return parts_; }
  int64_t plane() const { return run_pages_ * page_floats_ + 5; }
  // Element `at` of a page's kind: 0 least, 1 greatest, 2 mean.
  float Get(int kind, int64_t page, int64_t at) const {
    return storage_[page / run_pages_][kind * plane() + page % run_pages_ * page_floats_ + at];
  }
  int64_t page_floats() const { return page_floats_; }
  int64_t CountUntouched() const {
    int64_t count = 0;
    for (const auto& run : storage_) count += std::count(run.begin(), run.end(), kUntouched);
    return count;
  }

 private:
  static constexpr float kUntouched = 12345.678f;
  int64_t run_pages_;
  int parts_;
  int64_t page_floats_;
  std::vector<std::vector<float>> storage_;
  std::vector<float*> runs_;
};

// Summarises pages in two calls, as a sequence that grows, and compares with the keys one by one.
void Summarise(const OpTable& table, const Problem& problem, std::span<const KvPageView> pages,
               Summaries& result) {
  SCOPED_TRACE(result.parts());
  const int64_t columns = problem.k.cols();
  KeySummaryParams params;
  params.shape = problem.shape;
  params.parts = result.parts();
  params.to = result.runs();
  params.least = 0;
  params.greatest = result.plane();
  params.mean = 2 * result.plane();
  const size_t half = pages.size() / 2;
  const auto stream = MakeStream(table, 2);
  params.pages = pages.first(half);
  ASSERT_TRUE(table.key_summary(*stream, params).ok());
  params.pages = pages.subspan(half);
  params.first = static_cast<int64_t>(half);
  ASSERT_TRUE(table.key_summary(*stream, params).ok());
  ASSERT_TRUE(stream->Synchronize().ok());
  const int part_tokens = problem.shape.page_tokens / result.parts();
  for (size_t p = 0; p < pages.size(); ++p) {
    for (int64_t at = 0; at < result.page_floats(); ++at) {
      const KvPageView& page = pages[p];
      const int64_t begin = at / columns * part_tokens;
      const int64_t end = std::min<int64_t>(page.tokens, begin + part_tokens);
      float low = INFINITY, high = -INFINITY;
      double sum = 0;
      for (int64_t t = begin; t < end; ++t) {
        const float key = problem.k.row(page.first_position + t - problem.begin)[at % columns];
        low = std::min(low, key);
        high = std::max(high, key);
        sum += key;
      }
      const auto index = static_cast<int64_t>(p);
      ASSERT_EQ(result.Get(0, index, at), low) << p << " " << at;
      ASSERT_EQ(result.Get(1, index, at), high) << p << " " << at;
      ASSERT_NEAR(
          result.Get(2, index, at), sum / static_cast<double>(end - begin),
          Rounding(static_cast<double>(end - begin)) * std::max(std::abs(low), std::abs(high)))
          << p << " " << at;
    }
  }
}

// The bound is the largest of the page's parts, each the sum of the larger products; with the mean
// for both it is the mean's score.
void CompareSummaryScores(const OpTable& table, const Problem& problem, const Summaries& summaries,
                          int64_t pages, bool means) {
  const int64_t k_dim = problem.shape.k_dim;
  std::vector<float> scores(problem.rows() * problem.heads() * pages + 1, -77);
  SummaryScoresParams params;
  params.kv_heads = problem.shape.kv_heads;
  params.heads = problem.heads();
  params.k_dim = problem.shape.k_dim;
  params.pages = pages;
  params.parts = summaries.parts();
  params.query = problem.query.view();
  params.from = summaries.runs();
  params.least = means ? 2 * summaries.plane() : 0;
  params.greatest = means ? params.least : summaries.plane();
  params.scores = scores.data();
  const auto stream = MakeStream(table, 2);
  ASSERT_TRUE(table.summary_scores(*stream, params).ok());
  ASSERT_TRUE(stream->Synchronize().ok());
  EXPECT_EQ(scores.back(), -77);
  for (int64_t i = 0; i + 1 < static_cast<int64_t>(scores.size()); ++i) {
    const int64_t head = i / pages % params.heads;
    const float* const query = problem.query.row(i / pages / params.heads) + head * k_dim;
    double most = -INFINITY, size = 0;
    for (int part = 0; part < summaries.parts(); ++part) {
      const int64_t at = part * problem.k.cols() + head / problem.group * k_dim;
      double sum = 0;
      for (int64_t d = 0; d < k_dim; ++d) {
        const auto product = [&](int kind) {
          return double{query[d]} * summaries.Get(kind, i % pages, at + d);
        };
        const double larger = means ? product(2) : std::max(product(0), product(1));
        sum += larger;
        size += std::abs(larger);
      }
      most = std::max(most, sum);
    }
    ASSERT_NEAR(scores[i], most, Rounding(static_cast<double>(k_dim)) * size + 1e-30) << i;
  }
}

TEST_P(BlockScoresTest, SummariesHoldEveryKey) {
  for (uint32_t seed = 300; seed < 312; ++seed) {
    const Problem problem = RandomCase(seed).problem;
    SCOPED_TRACE(problem.name);
    const PagedSequence pages(table(), problem);
    std::span<const KvPageView> complete(pages.views());
    while (!complete.empty() && complete.back().tokens < problem.shape.page_tokens) {
      complete = complete.first(complete.size() - 1);
    }
    const int64_t run_pages = 1 + seed % 5;
    const auto untouched = [&](const Summaries& summaries, size_t count) {
      const auto runs = std::ssize(summaries.runs().runs);
      const int64_t unused = runs * run_pages - static_cast<int64_t>(count);
      return 3 * (runs * (summaries.plane() - run_pages * summaries.page_floats()) +
                  unused * summaries.page_floats());
    };
    Summaries whole(problem, pages.views().size(), 1, run_pages);
    ASSERT_NO_FATAL_FAILURE(Summarise(table(), problem, pages.views(), whole));
    EXPECT_EQ(whole.CountUntouched(), untouched(whole, pages.views().size()));
    Summaries parts(problem, complete.size(), problem.shape.page_tokens / 16, run_pages);
    ASSERT_NO_FATAL_FAILURE(Summarise(table(), problem, complete, parts));
    EXPECT_EQ(parts.CountUntouched(), untouched(parts, complete.size()));
    if (problem.rows() == 0) continue;
    const auto count = std::ssize(pages.views());
    ASSERT_NO_FATAL_FAILURE(CompareSummaryScores(table(), problem, whole, count, false));
    ASSERT_NO_FATAL_FAILURE(CompareSummaryScores(table(), problem, whole, count, true));
    const bool scored = std::has_single_bit(static_cast<unsigned>(parts.parts()));
    if (complete.empty() || !scored) continue;
    ASSERT_NO_FATAL_FAILURE(
        CompareSummaryScores(table(), problem, parts, std::ssize(complete), false));
  }
}

TEST_P(BlockScoresTest, RowMeansHaveTheBitsOfTheReference) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const int64_t rows = 1 + random() % 200;
    const int64_t cols = 1 + random() % 700;
    TestMatrix input(rows, cols, random() % 3);
    input.FillNormal(random);
    // Runs of one row, of many and of all; some rows after the last run belong to none.
    std::vector<int32_t> ends;
    for (int64_t end = 0; (end += 1 + random() % (1 + random() % rows)) <= rows;) {
      ends.push_back(static_cast<int32_t>(end));
    }
    const auto runs = static_cast<int64_t>(ends.size());
    TestMatrix means[2] = {{runs, cols, 2}, {runs, cols, 2}};
    const OpTable* const tables[2] = {&Reference(), &table()};
    for (int i = 0; i < 2; ++i) {
      const auto stream = MakeStream(*tables[i], 3);
      ASSERT_TRUE(tables[i]->row_means(*stream, {input.view(), ends, means[i].view()}).ok());
      ASSERT_TRUE(stream->Synchronize().ok());
      EXPECT_TRUE(means[i].PaddingUntouched());
    }
    for (int64_t run = 0; run < runs; ++run) {
      ASSERT_TRUE(SameBits(means[0].row(run), means[1].row(run), cols)) << run;
      double sum = 0;
      double size = 0;
      const int32_t begin = run == 0 ? 0 : ends[run - 1];
      for (int32_t r = begin; r < ends[run]; ++r) {
        sum += input.row(r)[cols - 1];
        size += std::abs(input.row(r)[cols - 1]);
      }
      const double count = ends[run] - begin;
      ASSERT_NEAR(means[1].row(run)[cols - 1], sum / count, Rounding(count) * size / count);
    }
  }
}

ANNULUS_FOR_EVERY_TABLE(BlockScoresTest);

}  // namespace
}  // namespace annulus::testing
