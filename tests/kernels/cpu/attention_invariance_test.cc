// The invariance law: a row's bits depend on its own query, position and pages alone.
#include <algorithm>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/sanitizers.h"
#include "tests/kernels/cpu/attention_fixture.h"
#include "tests/support/thinned.h"

namespace annulus::testing {
namespace {

using AttentionInvarianceTest = EveryTable;

// Attends the problem's rows in items of the given sizes, each item in a call of its own or all in
// one call.
AttentionResult AttendInPieces(const OpTable& table, const Problem& problem, int threads,
                               const std::vector<int64_t>& sizes, bool one_call) {
  const PagedSequence pages(table, problem);
  AttentionResult result(problem);
  std::vector<AttentionItem> items;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    items.push_back(MakeItem(problem, pages, begin, size, result));
    begin += size;
  }
  EXPECT_EQ(begin, problem.rows());
  const auto stream = MakeStream(table, threads);
  if (one_call) {
    EXPECT_TRUE(table.attention(*stream, MakeParams(problem, items)).ok());
    return result;
  }
  for (const AttentionItem& item : items) {
    EXPECT_TRUE(table.attention(*stream, MakeParams(problem, {&item, 1})).ok());
  }
  return result;
}

std::vector<int64_t> Pieces(int64_t rows, int64_t largest, std::mt19937& random) {
  std::vector<int64_t> sizes;
  while (rows > 0) {
    const int64_t size = std::min<int64_t>(rows, 1 + random() % largest);
    sizes.push_back(size);
    rows -= size;
  }
  return sizes;
}

void ExpectSameBitsHoweverItIsCut(const OpTable& table, const Problem& problem) {
  SCOPED_TRACE(problem.name);
  std::mt19937 random(77);
  const AttentionResult whole = Attend(table, problem, 1);
  struct Way {
    int threads;
    int64_t largest;
    bool one_call;
  };
  std::vector<Way> ways;
  for (const int threads : {1, 2, 5}) {
    if (IsOfGpu(table) && threads > 1) continue;
    EXPECT_TRUE(whole == Attend(table, problem, threads)) << threads << " threads";
    for (const int64_t largest : {1, 7, 100}) {
      for (const bool one_call : {false, true}) ways.push_back({threads, largest, one_call});
    }
  }
  if (IsEmulated(table)) ways = Thinned(ways, 2);
  for (const auto& [threads, largest, one_call] : ThinnedIfSanitized(ways, 6)) {
    EXPECT_TRUE(whole == AttendInPieces(table, problem, threads,
                                        Pieces(problem.rows(), largest, random), one_call))
        << threads << " threads, pieces up to " << largest << ", one call " << one_call;
  }
}

TEST_P(AttentionInvarianceTest, DenseAndWindowed) {
  uint32_t seed = 500;
  for (const int group : {1, 2, 3, 8}) {
    for (const int32_t window : {0, 11}) {
      Problem problem;
      problem.shape = {.page_tokens = group % 2 ? 48 : 64,
                       .kv_heads = 2,
                       .k_dim = 37,
                       .v_dim = 21,
                       .dtype = kKvDTypes[seed % 6]};
      problem.group = group;
      problem.window = window;
      problem.soft_cap = group == 2 ? 2 : 0;
      problem.end = 160;
      problem.positions = Consecutive(37, IsEmulated(table()) ? 23 : 110);
      FillProblem(problem, seed++);
      ExpectSameBitsHoweverItIsCut(table(), problem);
    }
  }
}

// Head dimensions for which sm90/ has instances of their own, over more keys than a tile has.
std::vector<Problem> WideProblems(const OpTable& table) {
  std::vector<Problem> problems;
  if (!IsOfGpu(table)) return problems;
  for (const int dim : {128, 256}) {
    for (const DType dtype : {DType::kBF16, DType::kF16, DType::kI8, DType::kF8E4M3}) {
      Problem problem;
      problem.shape = {
          .page_tokens = 16, .kv_heads = 1, .k_dim = dim, .v_dim = dim, .dtype = dtype};
      problem.group = 2;
      problem.shards = 1;
      problem.end = 420;
      problem.positions = Consecutive(300, 8);
      problems.push_back(problem);
    }
  }
  return IsEmulated(table) ? Thinned(problems, 3) : problems;
}

TEST_P(AttentionInvarianceTest, WideHeads) {
  uint32_t seed = 550;
  for (Problem& problem : WideProblems(table())) {
    problem.window = seed % 2 == 0 ? 0 : 150;
    FillProblem(problem, seed++);
    ExpectSameBitsHoweverItIsCut(table(), problem);
  }
}

TEST_P(AttentionInvarianceTest, SubtreesMergeToTheWhole) {
  constexpr int kShards[] = {2, 8, 16};
  for (const uint32_t seed : ThinnedIfSanitized(SeedsFrom(560, 18), 8)) {
    if (IsEmulated(table()) && seed % 5 != 2) continue;
    Problem problem;
    problem.shape = {.page_tokens = 16,
                     .kv_heads = 2,
                     .k_dim = 20,
                     .v_dim = 33,
                     .dtype = kKvDTypes[(seed - 560) % 6]};
    problem.group = 1 + static_cast<int>(seed % 4);
    problem.window = seed % 3 == 0 ? 90 : 0;
    problem.shards = kShards[(seed - 560) / 6];
    problem.end = 500;
    problem.positions = Consecutive(3, 40);
    for (const int32_t position : {200, 203, 480, 499}) problem.positions.push_back(position);
    FillProblem(problem, seed);
    SCOPED_TRACE(problem.name);
    ExpectSubtreesMergeToTheWhole(table(), problem);
  }
}

// A shard's keys of several spans, alone and beside those of others.
TEST_P(AttentionInvarianceTest, SubtreesOverSpans) {
  Problem problem;
  problem.shape = {.page_tokens = 64, .kv_heads = 1, .k_dim = 8, .v_dim = 8, .dtype = DType::kF32};
  problem.shards = 2;
  problem.end = 4 * kAttentionSpan + 100;
  problem.positions = {100, 2 * kAttentionSpan + 5, 4 * kAttentionSpan + 90};
  FillProblem(problem, 590);
  ExpectSubtreesMergeToTheWhole(table(), problem);
}

// Items of few rows whose first pages are the same memory: they are attended together, and each
// gets the bits that it has alone. `shared`: [item] how many pages; the others are copies.
void ExpectSameBitsInCompany(const OpTable& table, const Problem& problem,
                             const std::vector<int64_t>& sizes,
                             const std::vector<int64_t>& shared) {
  SCOPED_TRACE(problem.name);
  const AttentionResult alone = Attend(table, problem, 1);
  const PagedSequence common(table, problem);
  for (const int threads : {1, 2, 3, 8}) {
    if (IsOfGpu(table) && threads > 1) continue;
    AttentionResult result(problem);
    std::vector<PagedSequence> own;
    std::vector<std::vector<KvPageView>> pages;
    own.reserve(sizes.size());
    pages.reserve(sizes.size());
    std::vector<AttentionItem> items;
    int64_t begin = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
      own.emplace_back(table, problem);
      pages.emplace_back(own[i].views().begin(), own[i].views().end());
      std::copy_n(common.views().begin(), shared[i], pages[i].begin());
      items.push_back(MakeItem(problem, common, begin, sizes[i], result));
      items[i].pages = pages[i];
      begin += sizes[i];
    }
    ASSERT_EQ(begin, problem.rows());
    const auto stream = MakeStream(table, threads);
    EXPECT_TRUE(table.attention(*stream, MakeParams(problem, items)).ok());
    EXPECT_TRUE(alone == result) << threads << " threads";
  }
}

TEST_P(AttentionInvarianceTest, SharedBeginnings) {
  // With several rows, items have just as many as may join others on a table, and more.
  constexpr int kGroups[] = {1, 3, 7, 8, 16};
  for (const uint32_t seed : ThinnedIfSanitized(SeedsFrom(610, 30), 10)) {
    if (IsEmulated(table()) && seed % 10 != 6) continue;
    std::mt19937 random(seed);
    Problem problem;
    problem.shape = {.page_tokens = 16,
                     .kv_heads = 2,
                     .k_dim = 20,
                     .v_dim = 33,
                     .dtype = kKvDTypes[(seed - 610) / 5]};
    problem.group = kGroups[(seed - 610) % 5];
    problem.soft_cap = problem.group == 3 ? 2 : 0;
    problem.shards = problem.group == 1 ? 1 : 8;
    problem.end = 700;
    std::vector<int64_t> sizes;
    std::vector<int64_t> shared;
    int32_t position = 200;
    for (int item = 0; item < 9; ++item) {
      sizes.push_back(1 + random() % 3);
      // Some see fewer keys than are the same, some share nothing, some all.
      shared.push_back(item == 4 ? 0 : item == 5 ? 44 : 5 + random() % 30);
      for (int64_t row = 0; row < sizes.back(); ++row) {
        position += 1 + static_cast<int32_t>(random() % 24);
        problem.positions.push_back(position);
      }
    }
    FillProblem(problem, seed);
    ExpectSameBitsInCompany(table(), problem, sizes, shared);
  }
}

TEST_P(AttentionInvarianceTest, SharedBeginningsAcrossSpans) {
  Problem problem;
  problem.shape = {
      .page_tokens = 256, .kv_heads = 1, .k_dim = 16, .v_dim = 16, .dtype = DType::kBF16};
  problem.shards = 1;
  problem.group = 2;
  problem.end = 2 * kAttentionSpan + 600;
  const int32_t last = static_cast<int32_t>(problem.end - 1);
  problem.positions = {9000, 2 * kAttentionSpan + 7, last - 300, last};
  FillProblem(problem, 640);
  const int64_t pages = problem.end / 256;
  ExpectSameBitsInCompany(table(), problem, {1, 1, 1, 1}, {pages, pages, 33, pages});
}

// Few rows over several spans: one thread takes them in turn, several side by side.
TEST_P(AttentionInvarianceTest, AcrossSpans) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    if (IsEmulated(table()) && dtype == DType::kF32) continue;
    Problem problem;
    problem.shape = {.page_tokens = 64, .kv_heads = 1, .k_dim = 16, .v_dim = 16, .dtype = dtype};
    problem.group = 2;
    problem.end = 2 * kAttentionSpan + 100;
    problem.positions = {8191, 8192, 16000, 16390, 16483};
    FillProblem(problem, 520);
    ExpectSameBitsHoweverItIsCut(table(), problem);
  }
}

// Scores so far apart that rows raise their maximum in chunks of their own. With one shard, kernels
// may take several chunks at a time, with 8 shards each has one.
TEST_P(AttentionInvarianceTest, MovingMaximum) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI8}) {
    for (const int shards : {1, 8}) {
      if (IsEmulated(table()) && shards == 1) continue;
      Problem problem;
      problem.shape = {.page_tokens = 64, .kv_heads = 1, .k_dim = 24, .v_dim = 48, .dtype = dtype};
      problem.group = 5;
      problem.shards = shards;
      problem.end = 400;
      problem.positions = Consecutive(250, IsEmulated(table()) ? 14 : kSanitized ? 50 : 150);
      FillProblem(problem, 525);
      for (int64_t r = 0; r < problem.rows(); ++r) {
        for (int64_t c = 0; c < problem.query.cols(); ++c) problem.query.row(r)[c] *= 40;
      }
      ExpectSameBitsHoweverItIsCut(table(), problem);
    }
  }
}

// The same pages as a list for one block, and for blocks cut anywhere, are dense attention.
TEST_P(AttentionInvarianceTest, FullListsAreDense) {
  Problem problem;
  problem.shape = {
      .page_tokens = 32, .kv_heads = 2, .k_dim = 24, .v_dim = 24, .dtype = DType::kBF16};
  problem.group = 3;
  problem.end = 250;
  problem.positions = Consecutive(100, 150);
  FillProblem(problem, 530);
  const AttentionResult dense = Attend(table(), problem, 2);
  for (const std::vector<int32_t>& rows :
       {std::vector<int32_t>{0, 150}, std::vector<int32_t>{0, 1, 2, 64, 64, 149, 150}}) {
    std::vector<int32_t> offsets = {0};
    std::vector<int32_t> pages;
    for (size_t block = 0; block + 1 < rows.size(); ++block) {
      for (int32_t p = 0; p < 8; ++p) pages.push_back(p);
      offsets.push_back(static_cast<int32_t>(pages.size()));
    }
    BlockLists lists{false, 1, rows, offsets, pages};
    EXPECT_TRUE(dense == Attend(table(), problem, 2, lists)) << rows.size() - 1 << " blocks";
  }
}

// Pages beyond a row's sight, and pages that its window has left behind, do not change its bits.
TEST_P(AttentionInvarianceTest, FarPagesDoNotMatter) {
  Problem problem;
  problem.shape = {
      .page_tokens = 16, .kv_heads = 1, .k_dim = 40, .v_dim = 8, .dtype = DType::kBF16};
  problem.group = 8;
  problem.window = 8;
  problem.end = 400;
  problem.positions = Consecutive(200, 5);
  FillProblem(problem, 540);
  const AttentionResult all = Attend(table(), problem, 2);
  for (size_t p = 0; p < problem.page_present.size(); ++p) {
    problem.page_present[p] = p == 12;  // [192, 208) holds 193..204
  }
  EXPECT_TRUE(all == Attend(table(), problem, 2));
}

// Pages that the window has left behind for all rows are there or not, up to any page. Fills the
// problem.
void ExpectReleasedPagesDoNotMatter(const OpTable& table, Problem& problem, uint32_t seed,
                                    std::mt19937& random) {
  FillProblem(problem, seed);
  SCOPED_TRACE(problem.name);
  const AttentionResult all = Attend(table, problem, 2);
  const int64_t seen = (problem.positions.front() - problem.window + 1) / problem.shape.page_tokens;
  for (int64_t released = 1; released <= seen; released += 1 + random() % 12) {
    std::fill_n(problem.page_present.begin(), released, false);
    EXPECT_TRUE(all == Attend(table, problem, 2)) << released << " pages";
  }
  // Rows that other items of the same call have beside them see further back.
  for (int64_t r = 7; r < problem.rows(); r += 11) {
    Problem row = problem;
    row.positions = {problem.positions[r]};
    row.query = TestMatrix(1, problem.query.cols());
    std::copy_n(problem.query.row(r), problem.query.cols(), row.query.row(0));
    const AttentionResult alone = Attend(table, row, 1);
    const int64_t columns = int64_t{problem.heads()} * problem.shape.v_dim;
    EXPECT_TRUE(SameBits(alone.o.data(), all.o.data() + r * columns, columns)) << "row " << r;
    EXPECT_TRUE(SameBits(alone.lse.data(), all.lse.data() + r * problem.heads(), problem.heads()));
  }
}

TEST_P(AttentionInvarianceTest, ReleasedPagesDoNotMatter) {
  for (const uint32_t seed : SeedsFrom(545, IsEmulated(table()) ? 3 : 12)) {
    std::mt19937 random(seed);
    Problem problem;
    problem.shape = {.page_tokens = seed % 3 == 0 ? 48 : 16,
                     .kv_heads = 1,
                     .k_dim = 24,
                     .v_dim = 24,
                     .dtype = kKvDTypes[1 + seed % 5]};
    problem.group = 2;
    problem.shards = seed % 2 == 0 ? 1 : 8;
    problem.window = 130;
    problem.end = 900;
    problem.positions = Consecutive(500 + static_cast<int32_t>(random() % 100), 30);
    ExpectReleasedPagesDoNotMatter(table(), problem, seed, random);
  }
}

TEST_P(AttentionInvarianceTest, ReleasedPagesDoNotMatterToWideHeads) {
  uint32_t seed = 570;
  for (Problem& problem : WideProblems(table())) {
    std::mt19937 random(seed);
    problem.window = 150;
    ExpectReleasedPagesDoNotMatter(table(), problem, seed++, random);
  }
}

ANNULUS_FOR_EVERY_INVARIANT_TABLE(AttentionInvarianceTest);

}  // namespace
}  // namespace annulus::testing
