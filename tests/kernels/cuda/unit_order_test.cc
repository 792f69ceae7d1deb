// The order in which units of prefill attention start: sections whose keys fit a cache, and the
// same bits as without them.
#include "kernels/cuda/tuning/unit_order.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/kept_attention.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/sm90/attention.h"
#include "kernels/cuda/trial.h"
#include "kernels/cuda/tuning/attention_path.h"
#include "kernels/cuda/tuning/attention_plan.h"
#include "tests/kernels/cpu/attention_fixture.h"

namespace annulus::cuda {
namespace {

using ::testing::ElementsAre;

constexpr int kPageTokens = 64;
constexpr int kMultiprocessors = 132;
constexpr int kMostPages = 2048;  // of an item

// An op whose pages have no data, in the shape of a layer of Llama 3.1 8B.
class PlannedOp {
 public:
  explicit PlannedOp(DType dtype = DType::kBF16) {
    params_.shape = {kPageTokens, 8, 128, 128, dtype};
    params_.heads = 32;
  }

  // The last `rows` of `tokens` positions.
  AttentionItem& Add(int32_t tokens, int32_t rows) {
    std::vector<KvPageView>& pages = pages_.emplace_back();
    for (int32_t first = 0; first < tokens; first += kPageTokens) {
      pages.push_back({nullptr, first, std::min(kPageTokens, tokens - first)});
    }
    AttentionItem item;
    item.pages = pages;
    item.positions = positions_.emplace_back(testing::Consecutive(tokens - rows, rows));
    items_.push_back(item);
    params_.items = items_;
    return items_.back();
  }

  std::vector<AttentionUnit> Units(int64_t section_bytes) const {
    return PlanAttention(params_, kMultiprocessors, kHopperRows, kMostBlocks, section_bytes)
        .prefill;
  }
  AttentionParams& params() { return params_; }
  // Of keys and values, and of scales, of one kv head and page.
  int64_t head_bytes() const {
    return kPageTokens * (params_.shape.dtype == DType::kI8 ? 2 * 128 + 2 * 2 : 2 * 128 * 2);
  }

 private:
  std::deque<std::vector<KvPageView>> pages_;
  std::deque<std::vector<int32_t>> positions_;
  std::vector<AttentionItem> items_;
  AttentionParams params_;
};

int PagesOfUnit(const AttentionUnit& unit) { return unit.page_end - unit.page_begin; }

// Pairs of an item and a kv head whose units start between each other's, in the order in which they
// start: what blocks may read at the same time.
struct Together {
  size_t begin = 0;  // units [begin, end)
  size_t end = 0;
  std::set<std::pair<int, int>> pairs;
};
std::vector<Together> TogetherOf(std::span<const AttentionUnit> units) {
  std::map<std::pair<int, int>, std::pair<size_t, size_t>> places;  // first, one past the last
  for (size_t u = 0; u < units.size(); ++u) {
    const auto [place, _] = places.try_emplace({units[u].item, units[u].kv_head}, u, u);
    place->second.second = u + 1;
  }
  std::vector<Together> result;
  for (size_t u = 0; u < units.size(); ++u) {
    const std::pair<int, int> pair(units[u].item, units[u].kv_head);
    if (result.empty() || result.back().end <= u) result.push_back({u, u, {}});
    result.back().pairs.insert(pair);
    result.back().end = std::max(result.back().end, places.at(pair).second);
  }
  return result;
}

// What SortUnits promises, of a plan's units in sections of `section_bytes`.
void ExpectSections(const PlannedOp& op, int64_t section_bytes) {
  const std::vector<AttentionUnit> units = op.Units(section_bytes);
  const auto key = [](const AttentionUnit& unit) {
    return std::tuple(unit.item, unit.kv_head, unit.row_begin, unit.row_count, unit.page_begin,
                      unit.page_end);
  };
  std::vector<decltype(key(units[0]))> own;
  std::vector<decltype(key(units[0]))> by_length;
  for (const AttentionUnit& unit : units) own.push_back(key(unit));
  for (const AttentionUnit& unit : op.Units(0)) by_length.push_back(key(unit));
  std::sort(own.begin(), own.end());
  std::sort(by_length.begin(), by_length.end());
  EXPECT_EQ(own, by_length) << "every unit starts once";
  EXPECT_EQ(std::adjacent_find(own.begin(), own.end()), own.end());
  for (const Together& together : TogetherOf(units)) {
    int64_t bytes = 0;
    for (const auto& pair : together.pairs) {
      std::vector<bool> named(kMostPages);
      for (size_t u = together.begin; u < together.end; ++u) {
        if (std::pair<int, int>(units[u].item, units[u].kv_head) != pair) continue;
        std::fill(named.begin() + units[u].page_begin, named.begin() + units[u].page_end, true);
      }
      bytes += std::count(named.begin(), named.end(), true) * op.head_bytes();
    }
    if (together.pairs.size() > 1) {
      EXPECT_LE(bytes, section_bytes) << "units " << together.begin << " to " << together.end;
    }
    for (size_t u = together.begin + 1; u < together.end; ++u) {
      // Parts come in the order of the units whose pages they share.
      if (units[u - 1].partial >= 0 || units[u].partial >= 0) continue;
      ASSERT_GE(PagesOfUnit(units[u - 1]), PagesOfUnit(units[u])) << "unit " << u;
    }
  }
}

// How many pairs are read together, one section after the other.
std::vector<size_t> PairsTogether(const PlannedOp& op) {
  std::vector<size_t> sizes;
  for (const Together& together : TogetherOf(op.Units(kSectionBytes))) {
    sizes.push_back(together.pairs.size());
  }
  return sizes;
}

TEST(UnitOrderTest, SectionsHaveTheHeadsThatFit) {
  PlannedOp longest;
  longest.Add(131072, 8192);
  EXPECT_THAT(PairsTogether(longest), ElementsAre(1, 1, 1, 1, 1, 1, 1, 1));
  PlannedOp half;  // 16 MiB a head
  half.Add(32768, 32768);
  EXPECT_THAT(PairsTogether(half), ElementsAre(2, 2, 2, 2));
  PlannedOp codes(DType::kI8);  // 8.1 MiB with scales
  codes.Add(32768, 4096);
  EXPECT_THAT(PairsTogether(codes), ElementsAre(3, 3, 2));
  PlannedOp shortest;
  shortest.Add(8192, 8192);
  EXPECT_THAT(PairsTogether(shortest), ElementsAre(8));
}

TEST(UnitOrderTest, EveryUnitStartsOnceInASectionThatFits) {
  for (const DType dtype : {DType::kBF16, DType::kI8}) {
    for (const int32_t tokens : {500, 20000, 40000, 131072}) {
      PlannedOp op(dtype);
      op.Add(tokens, std::min(tokens, 6000));
      for (const int64_t section_bytes : {int64_t{1} << 20, kSectionBytes}) {
        SCOPED_TRACE(std::string(DTypeName(dtype)) + " " + std::to_string(tokens));
        ExpectSections(op, section_bytes);
        op.params().window = 3000;
        ExpectSections(op, section_bytes);
        op.params().window = 0;
      }
    }
  }
}

TEST(UnitOrderTest, ItemsShareSectionsAndTheLongestComesFirst) {
  PlannedOp op;
  op.Add(200, 200);
  op.Add(100000, 2000);
  op.Add(3000, 3000);
  ExpectSections(op, kSectionBytes);
  const std::vector<AttentionUnit> units = op.Units(kSectionBytes);
  EXPECT_EQ(units.front().item, 1);
  EXPECT_NE(units.back().item, 1);
  EXPECT_THAT(PairsTogether(op), ElementsAre(1, 1, 1, 1, 1, 1, 1, 1, 16));
}

// Pages that several lists name count once, and those that no list names do not count.
TEST(UnitOrderTest, ListsOfBlocksHaveThePagesThatTheyName) {
  const std::vector<int32_t> rows = {0, 64, 128, 192};
  const std::vector<int32_t> offsets = {0, 2, 5, 8};
  const std::vector<int32_t> pages = {0, 9, 0, 3, 9, 0, 3, 9};
  PlannedOp op;
  op.Add(131072, 192).blocks = {false, 1, rows, offsets, pages};
  ExpectSections(op, kSectionBytes);
  EXPECT_THAT(PairsTogether(op), ElementsAre(8));
}

TEST(UnitOrderTest, WithoutSectionsTheLongestComesFirst) {
  PlannedOp op;
  op.Add(20000, 3000);
  op.Add(100000, 700);
  const std::vector<AttentionUnit> units = op.Units(0);
  EXPECT_TRUE(std::is_sorted(units.begin(), units.end(),
                             [](const AttentionUnit& a, const AttentionUnit& b) {
                               return PagesOfUnit(a) > PagesOfUnit(b);
                             }));
  EXPECT_EQ(TogetherOf(units).front().pairs.size(), 8u);
}

TEST(UnitOrderTest, PlansOfTheTwoOrdersAreKeptApart) {
  const std::vector<int32_t> positions = {0};
  AttentionItem item;
  item.positions = positions;
  AttentionParams params;
  params.items = {&item, 1};
  PrefillPath path;
  KeptAttention kept;
  ASSERT_EQ(kept.Find(params, path, false, 1), nullptr);
  kept.Keep({}, 1);
  EXPECT_NE(kept.Find(params, path, false, 1), nullptr);
  path.section_bytes = kSectionBytes;
  EXPECT_EQ(kept.Find(params, path, false, 1), nullptr);
}

// 64 positions from each of `begins`, over 2,200 pages of which only eight have data of their own:
// the keys of a head are more than a section may have, and a row sees a window of them.
class LongProblem {
 public:
  LongProblem(DType dtype, const std::vector<int32_t>& begins) {
    problem_.shape = {kPageTokens, 2, 128, 128, dtype};
    problem_.group = 2;
    problem_.window = 500;
    problem_.end = 8 * kPageTokens;
    for (const int32_t begin : begins) {
      for (int32_t p = begin; p < begin + 64; ++p) problem_.positions.push_back(p);
    }
    testing::FillProblem(problem_, 4700);
    data_.emplace(HopperOps(), problem_);
    for (int32_t p = 0; p < kPages; ++p) {
      views_.push_back({data_->views()[p % 8].data, p * kPageTokens, kPageTokens});
    }
  }

  testing::AttentionResult AttendBy(const OpTable& table) const {
    testing::AttentionResult result(problem_);
    const AttentionItem item = Item(result);
    const auto stream = testing::MakeStream(table, 1);
    EXPECT_TRUE(table.attention(*stream, testing::MakeParams(problem_, {&item, 1})).ok());
    EXPECT_TRUE(stream->Synchronize().ok());
    return result;
  }
  AttentionPlan Plan(int64_t section_bytes) const {
    testing::AttentionResult result(problem_);
    const AttentionItem item = Item(result);
    constexpr int kEmulated = 4;  // multiprocessors
    return PlanAttention(testing::MakeParams(problem_, {&item, 1}), kEmulated, kHopperRows,
                         kMostBlocks, section_bytes);
  }

 private:
  static constexpr int32_t kPages = 2200;

  AttentionItem Item(testing::AttentionResult& result) const {
    AttentionItem item;
    item.query = problem_.query.view();
    item.positions = problem_.positions;
    item.pages = views_;
    item.state = result.rows(0, problem_.rows());
    return item;
  }

  testing::Problem problem_;
  std::optional<testing::PagedSequence> data_;
  std::vector<KvPageView> views_;
};

// With units that are whole, and with units whose pages are divided.
TEST(UnitOrderTest, SectionsChangeNoBit) {
  const std::vector<int32_t> whole = {40, 300, 700, 20000, 50000, 140000};
  const std::vector<int32_t> divided = {700, 140000};
  for (const DType dtype : {DType::kBF16, DType::kI8}) {
    for (const auto& begins : {whole, divided}) {
      SCOPED_TRACE(std::string(DTypeName(dtype)) + " " + std::to_string(begins.size()));
      const LongProblem problem(dtype, begins);
      const AttentionPlan plan = problem.Plan(kSectionBytes);
      EXPECT_EQ(plan.merges.empty(), begins == whole);
      EXPECT_EQ(TogetherOf(plan.prefill).size(), 2u) << "a section for each head";
      EXPECT_EQ(TogetherOf(problem.Plan(0).prefill).size(), 1u);
      EXPECT_TRUE(problem.AttendBy(TrialOf(HopperOps()).value()) == problem.AttendBy(HopperOps()));
    }
  }
}

// A daemon's tables have none of what is on trial.
TEST(TrialTest, OnlyTheTableOfSm90HasNewWays) {
  EXPECT_EQ(TrialOf(HopperOps())->name, "cuda/sm90-trial");
  for (const OpTable& table : {Ops(), InvariantOps(), InvariantHopperOps()}) {
    EXPECT_FALSE(TrialOf(table).has_value()) << table.name;
  }
  KernelRegistry registry;
  RegisterCudaKernels(registry);
  const OpTable trial = TrialOf(HopperOps()).value();
  for (const OpTable* const table : registry.Available("cuda")) {
    EXPECT_NE(table->attention, trial.attention) << table->name;
  }
}

}  // namespace
}  // namespace annulus::cuda
