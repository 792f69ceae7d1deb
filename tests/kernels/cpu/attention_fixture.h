#ifndef ANNULUS_TESTS_KERNELS_CPU_ATTENTION_FIXTURE_H_
#define ANNULUS_TESTS_KERNELS_CPU_ATTENTION_FIXTURE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/kernels/cpu/cpu_test_util.h"

namespace annulus::testing {

// The tables that are row_invariant.
inline std::vector<const OpTable*> InvariantTables() {
  std::vector<const OpTable*> tables = TestedAttention();
  std::erase_if(tables, [](const OpTable* table) { return !table->row_invariant; });
  return tables;
}
// Those and TestedTables().
inline std::vector<const OpTable*> EveryOrder() {
  std::vector<const OpTable*> tables = TestedTables();
  for (const OpTable* table : InvariantTables()) {
    if (std::find(tables.begin(), tables.end(), table) == tables.end()) tables.push_back(table);
  }
  return tables;
}

#define ANNULUS_FOR_EVERY_INVARIANT_TABLE(suite)                                       \
  INSTANTIATE_TEST_SUITE_P(Table, suite,                                               \
                           ::testing::ValuesIn(::annulus::testing::InvariantTables()), \
                           ::annulus::testing::TableName)

#define ANNULUS_FOR_EVERY_ORDER(suite)                                                          \
  INSTANTIATE_TEST_SUITE_P(Table, suite, ::testing::ValuesIn(::annulus::testing::EveryOrder()), \
                           ::annulus::testing::TableName)

// One attention problem in plain arrays: keys and values by position, queries by row.
struct Problem {
  KvPageShape shape;
  int group = 1;  // query heads of one kv head
  int32_t window = 0;
  float soft_cap = 0;
  int64_t begin = 0;               // first position with a page; a multiple of page_tokens
  int64_t end = 0;                 // one past the last position
  std::vector<bool> page_present;  // of the pages from `begin` on
  std::vector<int32_t> positions;  // of the rows
  int shards = 8;
  TestMatrix k{0, 0};  // [end - begin, kv_heads * k_dim]
  TestMatrix v{0, 0};
  TestMatrix query{0, 0};  // [rows, heads * k_dim]
  std::string name;

  int heads() const { return shape.kv_heads * group; }
  int64_t rows() const { return positions.size(); }
  float scale() const { return 1 / std::sqrt(static_cast<float>(shape.k_dim)); }
  bool Present(int64_t j) const {
    return j >= begin && j < end && page_present[(j - begin) / shape.page_tokens];
  }
  bool Masked(int64_t row, int64_t j) const {
    const int64_t i = positions[row];
    return j > i || (window > 0 && j <= i - window);
  }
};

// Whether pages of `dtype` hold no more precision than bf16: a table may then multiply in bf16.
inline bool MayRoundOperands(DType dtype) { return dtype != DType::kF32 && dtype != DType::kF16; }

// Fills a problem whose numbers are set: random keys, values (rounded to the storage type, so that
// all sides see the same) and queries (rounded to bf16 or f16 where a table may do so).
inline void FillProblem(Problem& problem, uint32_t seed) {
  std::mt19937 random(seed);
  const KvPageShape& shape = problem.shape;
  const int64_t tokens = problem.end - problem.begin;
  problem.k = TestMatrix(tokens, int64_t{shape.kv_heads} * shape.k_dim, 2);
  problem.v = TestMatrix(tokens, int64_t{shape.kv_heads} * shape.v_dim);
  problem.query = TestMatrix(problem.rows(), int64_t{problem.heads()} * shape.k_dim, 3);
  problem.query.FillNormal(random);
  if (shape.dtype != DType::kF32) {
    const DType operand = shape.dtype == DType::kF16 ? DType::kF16 : DType::kBF16;
    for (int64_t r = 0; r < problem.rows(); ++r) {
      RoundToStorage(operand, problem.query.row(r), problem.query.cols());
    }
  }
  for (TestMatrix* matrix : {&problem.k, &problem.v}) {
    matrix->FillNormal(random);
    const int64_t dim = matrix->cols() / shape.kv_heads;
    for (int64_t r = 0; r < tokens; ++r) {
      for (int h = 0; h < shape.kv_heads; ++h) {
        RoundToStorage(shape.dtype, matrix->row(r) + h * dim, dim);
      }
    }
  }
  const int64_t pages = (tokens + shape.page_tokens - 1) / shape.page_tokens;
  problem.page_present.resize(pages, true);
  problem.name = absl::StrCat("seed ", seed, " ", std::string(DTypeName(shape.dtype)), " page ",
                              shape.page_tokens, " kv_heads ", shape.kv_heads, " group ",
                              problem.group, " dims ", shape.k_dim, "/", shape.v_dim, " window ",
                              problem.window, " soft_cap ", problem.soft_cap, " keys [",
                              problem.begin, ", ", problem.end, ") rows ", problem.rows(), " from ",
                              problem.rows() > 0 ? problem.positions[0] : 0);
}

// The problem's keys and values in pages of one table. Slots never written hold NaN bytes, and so
// does a page ahead of all others.
class PagedSequence {
 public:
  PagedSequence(const OpTable& table, const Problem& problem)
      : page_bytes_(table.kv_page_bytes(problem.shape)) {
    const KvPageShape& shape = problem.shape;
    const size_t page_bytes = page_bytes_;
    const int64_t count = problem.page_present.size();
    memory_.assign((count + 1) * page_bytes, std::byte{0xff});
    std::byte* const first_page = memory_.data() + page_bytes;
    std::vector<std::byte*> pages;
    std::vector<int32_t> slots;
    for (int64_t j = 0; j < problem.end - problem.begin; ++j) {
      pages.push_back(first_page + j / shape.page_tokens * page_bytes);
      slots.push_back(j % shape.page_tokens);
    }
    const KvAppendParams params{shape, problem.k.view(), problem.v.view(), pages, slots};
    EXPECT_TRUE(table.kv_append(*MakeStream(table, 1), params).ok());
    for (int64_t p = 0; p < count; ++p) {
      if (!problem.page_present[p]) continue;
      const int64_t first = problem.begin + p * shape.page_tokens;
      views_.push_back(
          {first_page + p * page_bytes, static_cast<int32_t>(first),
           static_cast<int32_t>(std::min<int64_t>(shape.page_tokens, problem.end - first))});
    }
  }

  std::span<const KvPageView> views() const { return views_; }
  size_t page_bytes() const { return page_bytes_; }

 private:
  const size_t page_bytes_;
  std::vector<std::byte> memory_;
  std::vector<KvPageView> views_;
};

// What attention gives, filled with NaN beforehand.
struct AttentionResult {
  AttentionResult(const Problem& problem)
      : heads(problem.heads()),
        v_dim(problem.shape.v_dim),
        o(problem.rows() * heads * v_dim, std::nanf("")),
        lse(problem.rows() * heads, std::nanf("")) {}

  AttentionState rows(int64_t begin, int64_t count) {
    return {o.data() + begin * heads * v_dim, lse.data() + begin * heads, count, heads, v_dim};
  }
  bool operator==(const AttentionResult& other) const {
    return SameBits(o.data(), other.o.data(), o.size()) &&
           SameBits(lse.data(), other.lse.data(), lse.size());
  }

  int heads;
  int v_dim;
  bool rounded_operands = false;  // the table multiplied in bf16
  double weight_error = 1e-6;     // relative, of the weights exp(score)
  std::vector<float> o;
  std::vector<float> lse;
};

// Rows [begin, begin + count) of the problem as an item.
inline AttentionItem MakeItem(const Problem& problem, const PagedSequence& pages, int64_t begin,
                              int64_t count, AttentionResult& result) {
  AttentionItem item;
  item.query = problem.query.view().row_range(begin, count);
  item.positions = std::span(problem.positions).subspan(begin, count);
  item.pages = pages.views();
  item.state = result.rows(begin, count);
  return item;
}

inline AttentionParams MakeParams(const Problem& problem, std::span<const AttentionItem> items) {
  AttentionParams params;
  params.shape = problem.shape;
  params.heads = problem.heads();
  params.scale = problem.scale();
  params.window = problem.window;
  params.soft_cap = problem.soft_cap;
  params.shards = problem.shards;
  params.items = items;
  return params;
}

// What `table` has yet to fill, with the errors that it may make.
inline AttentionResult EmptyResult(const OpTable& table, const Problem& problem) {
  AttentionResult result(problem);
  result.rounded_operands = MultipliesBf16(table) && MayRoundOperands(problem.shape.dtype);
  if (result.rounded_operands) {
    result.weight_error = 0x1p-9 + 1.2e-4;  // in bf16, of an exponential good to 1.2e-4
  } else if (IsOfGpu(table) && problem.shape.dtype == DType::kF16) {
    result.weight_error = 0x1p-11;  // in f16
  }
  return result;
}

// All rows in one item.
inline AttentionResult AttendOn(Stream& stream, const OpTable& table, const Problem& problem,
                                const BlockLists& blocks = {},
                                std::span<const DilatedBranch> branches = {}) {
  const PagedSequence pages(table, problem);
  AttentionResult result = EmptyResult(table, problem);
  AttentionItem item = MakeItem(problem, pages, 0, problem.rows(), result);
  item.blocks = blocks;
  item.branches = branches;
  EXPECT_TRUE(table.attention(stream, MakeParams(problem, {&item, 1})).ok());
  EXPECT_TRUE(stream.Synchronize().ok());
  return result;
}
inline AttentionResult Attend(const OpTable& table, const Problem& problem, int threads,
                              const BlockLists& blocks = {},
                              std::span<const DilatedBranch> branches = {}) {
  return AttendOn(*MakeStream(table, threads), table, problem, blocks, branches);
}

// Every second page into a state, then the others: merged by merge_state where `apart`, else by
// attention itself, with views that lie a page ahead of the data.
inline AttentionResult AttendInTwo(const OpTable& table, const Problem& problem, int threads,
                                   bool apart, std::span<const DilatedBranch> branches = {}) {
  const PagedSequence pages(table, problem);
  AttentionResult results[2] = {problem, problem};
  const auto stream = MakeStream(table, threads);
  for (const bool second : {false, true}) {
    std::vector<KvPageView> views;
    for (size_t p = second; p < pages.views().size(); p += 2) views.push_back(pages.views()[p]);
    AttentionItem item =
        MakeItem(problem, pages, 0, problem.rows(), results[second && apart ? 1 : 0]);
    if (!apart) {
      item.page_offset = pages.page_bytes();
      for (KvPageView& view : views) view.data -= item.page_offset;
    }
    item.pages = views;
    item.branches = branches;
    item.merges = second && !apart;
    EXPECT_TRUE(table.attention(*stream, MakeParams(problem, {&item, 1})).ok());
  }
  const int64_t rows = problem.rows();
  if (apart && rows > 0) {
    EXPECT_TRUE(
        table.merge_state(*stream, {results[0].rows(0, rows), results[1].rows(0, rows)}).ok());
  }
  EXPECT_TRUE(stream->Synchronize().ok());
  return results[0];
}

// Attention that merges must be attention and then a merge.
inline void ExpectMerges(const OpTable& table, const Problem& problem, int threads,
                         std::span<const DilatedBranch> branches = {}) {
  const AttentionResult merged = AttendInTwo(table, problem, threads, false, branches);
  const AttentionResult apart = AttendInTwo(table, problem, threads, true, branches);
  if (table.row_invariant) {
    EXPECT_TRUE(merged == apart);
    return;
  }
  for (size_t i = 0; i < merged.lse.size(); ++i) {
    if (std::isinf(apart.lse[i])) {
      ASSERT_EQ(merged.lse[i], apart.lse[i]);
    } else {
      ASSERT_NEAR(merged.lse[i], apart.lse[i], 16 * kUnit * (1 + std::abs(apart.lse[i])));
    }
  }
  for (size_t i = 0; i < merged.o.size(); ++i) {
    const double lse = apart.lse[i / merged.v_dim];
    const double scale = std::isinf(lse) ? 0 : 1 + std::abs(lse);
    ASSERT_NEAR(merged.o[i], apart.o[i], 16 * kUnit * scale * (1 + std::abs(apart.o[i])));
  }
}

// Each of `parts` subtrees of the shards attended by itself, from all pages by leaves or from its
// own pages alone, and the states merged level by level, the right one into the left or the other
// way.
inline AttentionResult AttendSubtrees(const OpTable& table, const Problem& problem, int threads,
                                      int parts, bool own_pages, bool right_first,
                                      std::span<const DilatedBranch> branches = {}) {
  const PagedSequence pages(table, problem);
  const int leaves = problem.shards / parts;
  std::vector<AttentionResult> results(parts, AttentionResult(problem));
  const auto stream = MakeStream(table, threads);
  for (int part = 0; part < parts; ++part) {
    AttentionItem item = MakeItem(problem, pages, 0, problem.rows(), results[part]);
    item.branches = branches;
    std::vector<KvPageView> views;
    for (const KvPageView& view : pages.views()) {
      const int leaf = LeafOfPage(view.first_position / problem.shape.page_tokens, problem.shards);
      if (leaf / leaves == part) views.push_back(view);
    }
    if (own_pages) {
      item.pages = views;
    } else {
      item.first_leaf = part * leaves;
      item.leaves = leaves;
    }
    EXPECT_TRUE(table.attention(*stream, MakeParams(problem, {&item, 1})).ok());
  }
  const int64_t rows = problem.rows();
  for (int step = 1; step < parts; step *= 2) {
    for (int part = 0; part < parts; part += 2 * step) {
      AttentionResult& left = results[part];
      AttentionResult& right = results[part + step];
      if (right_first) std::swap(left, right);
      EXPECT_TRUE(table.merge_state(*stream, {left.rows(0, rows), right.rows(0, rows)}).ok());
    }
  }
  EXPECT_TRUE(stream->Synchronize().ok());
  return results[0];
}

// However the tree is shared out, a row has the bits that it has when one item attends all pages.
inline void ExpectSubtreesMergeToTheWhole(const OpTable& table, const Problem& problem,
                                          std::span<const DilatedBranch> branches = {}) {
  const AttentionResult whole = Attend(table, problem, 2, {}, branches);
  const int step = IsEmulated(table) ? 4 : 2;
  for (int parts = 2; parts <= problem.shards; parts *= step) {
    for (const bool own_pages : {false, true}) {
      for (const bool right_first : {false, true}) {
        if (IsEmulated(table) && own_pages != right_first) continue;
        EXPECT_TRUE(whole == AttendSubtrees(table, problem, 1 + parts % 3, parts, own_pages,
                                            right_first, branches))
            << parts << " parts, own pages " << own_pages << ", right first " << right_first;
      }
    }
  }
}

// Softmax attention in float64 over a dense mask; `times(row, head, position)` says how often a key
// that the mask allows counts.
inline AttentionResult DenseAttention(
    const Problem& problem,
    const std::function<int(int64_t row, int head, int64_t position)>& times) {
  AttentionResult result(problem);
  const KvPageShape& shape = problem.shape;
  for (int64_t r = 0; r < problem.rows(); ++r) {
    for (int h = 0; h < problem.heads(); ++h) {
      const int kv_head = h / problem.group;
      std::vector<double> scores;
      std::vector<int64_t> keys;
      for (int64_t j = problem.begin; j < problem.end; ++j) {
        if (problem.Masked(r, j) || !problem.Present(j)) continue;
        const int count = times(r, h, j);
        if (count == 0) continue;
        double dot = 0;
        for (int d = 0; d < shape.k_dim; ++d) {
          dot += double{problem.query.row(r)[h * shape.k_dim + d]} *
                 problem.k.row(j - problem.begin)[kv_head * shape.k_dim + d];
        }
        const double score = dot * problem.scale();
        scores.push_back(std::log(count) +
                         (problem.soft_cap > 0
                              ? problem.soft_cap * std::tanh(score / problem.soft_cap)
                              : score));
        keys.push_back(j);
      }
      std::vector<double> o(shape.v_dim, 0.0);
      double sum = 0;
      const double m = keys.empty() ? 0 : *std::max_element(scores.begin(), scores.end());
      for (size_t i = 0; i < keys.size(); ++i) {
        const double weight = std::exp(scores[i] - m);
        sum += weight;
        for (int d = 0; d < shape.v_dim; ++d) {
          o[d] += weight * problem.v.row(keys[i] - problem.begin)[kv_head * shape.v_dim + d];
        }
      }
      const int64_t index = r * problem.heads() + h;
      result.lse[index] = static_cast<float>(keys.empty() ? -std::numeric_limits<double>::infinity()
                                                          : m + std::log(sum));
      for (int d = 0; d < shape.v_dim; ++d) {
        result.o[index * shape.v_dim + d] = static_cast<float>(keys.empty() ? 0 : o[d] / sum);
      }
    }
  }
  return result;
}

// Scores round like a dot product of their depth and norms; a weight exp(s - m) is off by twice a
// score's error (its own and the maximum's) and by exp's 1e-6 (or what bf16 weights lose; then
// dequantised values are rounded too); the sums over the keys round with
// their count; a soft cap rounds at its own size; spans merge at the size of the lse. Both sides
// may err.
inline void ExpectNear(const Problem& problem, const AttentionResult& actual,
                       const AttentionResult& expected) {
  double key_norm = 0;
  double value_size = 0;
  for (int64_t j = 0; j < problem.k.rows(); ++j) {
    key_norm = std::max(key_norm, problem.k.RowNorm(j));
    for (int64_t c = 0; c < problem.v.cols(); ++c) {
      value_size = std::max(value_size, std::abs(double{problem.v.row(j)[c]}));
    }
  }
  const double weight = std::max(actual.weight_error, expected.weight_error);
  const double value = actual.rounded_operands && problem.shape.dtype == DType::kI8 ? 0x1p-9 : 0;
  const double depth = Rounding(problem.k.rows());
  const double spans = 1 + static_cast<double>(problem.end) / kAttentionSpan;
  for (int64_t r = 0; r < problem.rows(); ++r) {
    const double score =
        2 * Rounding(problem.shape.k_dim) * problem.scale() * problem.query.RowNorm(r) * key_norm +
        8 * kUnit * problem.soft_cap;
    for (int h = 0; h < problem.heads(); ++h) {
      const int64_t index = r * problem.heads() + h;
      const float lse = expected.lse[index];
      if (std::isinf(lse)) {
        ASSERT_EQ(actual.lse[index], lse) << "row " << r << " head " << h;
      } else {
        ASSERT_NEAR(actual.lse[index], lse,
                    score + 2 * weight + 2 * depth + 8 * kUnit * spans * (1 + std::abs(lse)))
            << "row " << r << " head " << h;
      }
      const double merge = 8 * kUnit * spans * (1 + (std::isinf(lse) ? 0 : std::abs(lse)));
      const double bound = (2 * score + 2 * weight + value + 2 * depth + merge) * value_size;
      for (int d = 0; d < problem.shape.v_dim; ++d) {
        const int64_t at = index * problem.shape.v_dim + d;
        if (std::isinf(lse)) {
          ASSERT_EQ(actual.o[at], 0) << "row " << r << " head " << h;
        } else {
          ASSERT_NEAR(actual.o[at], expected.o[at], bound)
              << "row " << r << " head " << h << " element " << d;
        }
      }
    }
  }
}

// `count` consecutive positions from `first`.
inline std::vector<int32_t> Consecutive(int64_t first, int64_t count) {
  std::vector<int32_t> positions(count);
  for (int64_t r = 0; r < count; ++r) positions[r] = static_cast<int32_t>(first + r);
  return positions;
}

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_KERNELS_CPU_ATTENTION_FIXTURE_H_
