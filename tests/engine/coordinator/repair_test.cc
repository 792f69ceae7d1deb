// Requests whose pages ranks lose, over simulated ranks, which fail a test where a row reads what
// no page has.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/sparse/assignment.h"
#include "kernels/base/sanitizers.h"
#include "tests/engine/coordinator/coordinator_fixture.h"
#include "tests/support/thinned.h"

namespace annulus::testing {
namespace {

using ::testing::HasSubstr;

// Follows plans as ranks do, and counts the rows that running sequences lose.
class LostRows {
 public:
  // `lost`: the ranks whose pages are lost in the step; empty: it goes well.
  void Follow(const StepPlan& plan, const std::vector<int32_t>& lost) {
    for (const SequenceId id : plan.ended) tables_.erase(id);
    for (const SequenceUpdate& update : plan.updates) {
      std::vector<PageEntry>& table = tables_[update.sequence];
      if (update.terms.has_value()) table.clear();
      const std::vector<PageEntry>& append = update.tables[0].append;
      table.insert(table.end(), append.begin(), append.end());
    }
    for (const PlanItem& item : plan.items) {
      for (int32_t row = item.begin; row < item.end && lost.empty(); ++row) {
        rows_.insert(RowOf(item.sequence, row));
      }
    }
    for (const auto& [id, table] : tables_) {
      for (const PageEntry& entry : table) {
        if (std::find(lost.begin(), lost.end(), entry.rank) == lost.end()) continue;
        for (int32_t row = 0; row < kPage; ++row) {
          count_ += static_cast<int64_t>(rows_.erase({entry.rank, entry.page, row}));
        }
      }
    }
  }
  // A row of pages that several sequences have counts once.
  int64_t count() const { return count_; }

 private:
  static constexpr int32_t kPage = 16;
  using Row = std::tuple<int32_t, int32_t, int32_t>;  // rank, page, row of the page

  Row RowOf(SequenceId id, int32_t position) const {
    const PageEntry& entry = tables_.at(id)[position / kPage];
    return {entry.rank, entry.page, position % kPage};
  }

  std::map<SequenceId, std::vector<PageEntry>> tables_;
  std::set<Row> rows_;
  int64_t count_ = 0;
};

class RepairTest : public CoordinatorFixture {
 protected:
  // The n-th step for which `is_due` holds loses the pages of losses[n].
  template <typename IsDue>
  void Lose(std::vector<std::vector<int32_t>> losses, const IsDue& is_due) {
    const auto fails = [this, losses, is_due, next = size_t{0}](
                           const StepPlan& plan) mutable -> std::optional<std::vector<int32_t>> {
      const bool is_lost = next < losses.size() && is_due(plan);
      rows_.Follow(plan, is_lost ? losses[next] : std::vector<int32_t>());
      if (!is_lost) return std::nullopt;
      return losses[next++];
    };
    ranks_.FailWhen(fails);
  }
  static bool HasRow(const StepPlan& plan, RequestId id, int32_t row) {
    return std::any_of(plan.items.begin(), plan.items.end(), [&](const PlanItem& item) {
      return item.sequence == id && item.begin <= row && row < item.end;
    });
  }

  // In steps from `first` on, those that failed included.
  int TimesComputed(RequestId id, int32_t row, size_t first) const {
    const std::vector<StepPlan> plans = ranks_.plans();
    return static_cast<int>(
        std::count_if(plans.begin() + static_cast<std::ptrdiff_t>(first), plans.end(),
                      [&](const StepPlan& plan) { return HasRow(plan, id, row); }));
  }

  static void ExpectAnswer(const Asked& asked, int prompt, int tokens) {
    EXPECT_EQ(Outcome(asked), "");
    std::vector<int32_t> expected;
    for (int32_t i = prompt; i < prompt + tokens; ++i) {
      expected.push_back(SimulatedRanks::TokenAt(i));
    }
    EXPECT_EQ(asked.sink->ids(), expected);
  }

  LostRows rows_;
};

// One rank or both, in the prompt and in the answer: their rows alone are computed again, and the
// client sees a pause.
TEST_F(RepairTest, OnlyWhatTheRanksHeldIsComputedAgain) {
  for (const std::vector<int32_t>& lost : std::vector<std::vector<int32_t>>{{0}, {1}, {0, 1}}) {
    for (const int32_t row : {140, 150, 165}) {
      SCOPED_TRACE(::testing::Message() << lost.size() << " lost, at " << row);
      Make();
      rows_ = LostRows();
      const RequestId id = next_id_;
      const double read = metrics_.prompt_tokens.value();
      const double before = metrics_.repaired_tokens.value();
      Lose({lost}, [id, row](const StepPlan& plan) { return HasRow(plan, id, row); });
      const Asked asked = Ask(150, 20);
      ExpectAnswer(asked, 150, 20);
      const Completion done = *asked.sink->Wait();
      EXPECT_EQ(done.timings.recovered, 1);
      EXPECT_EQ(done.timings.repaired, 1);
      EXPECT_EQ(done.failed_step, "INTERNAL: a rank was lost");
      EXPECT_GT(rows_.count(), 0);
      EXPECT_EQ(metrics_.repaired_tokens.value() - before, rows_.count());
      EXPECT_EQ(metrics_.prompt_tokens.value() - read, 150) << "repairs are no progress";
      EXPECT_EQ(PagesHeld(), 0);
    }
  }
  EXPECT_EQ(metrics_.recovered_repaired.value(), 9);
  EXPECT_EQ(metrics_.recovered_set_back.value(), 0);
}

// The second time the rows that are computed again are lost, and the third time those of the other.
TEST_F(RepairTest, RanksMayBeLostWhileRowsAreRepaired) {
  Make();
  bool begun = false;
  Lose({{1}, {1}, {0}}, [&begun](const StepPlan& plan) {
    begun = begun || HasRow(plan, 1, 160);
    return begun;
  });
  const Asked asked = Ask(150, 20);
  ExpectAnswer(asked, 150, 20);
  EXPECT_EQ(asked.sink->Wait()->timings.repaired, 3);
  EXPECT_EQ(metrics_.repaired_tokens.value(), rows_.count());
  EXPECT_EQ(PagesHeld(), 0);
}

// Others that have no page there are told to the ranks again, and go on.
TEST_F(RepairTest, OthersComputeNothingAgain) {
  int untouched = 0;
  for (const int32_t lost : {0, 1}) {
    Make();
    rows_ = LostRows();
    const double before = metrics_.repaired_tokens.value();
    const size_t first = ranks_.plans().size();
    const RequestId id = next_id_;
    Lose({{lost}},
         [id](const StepPlan& plan) { return HasRow(plan, id, 160) && plan.items.size() == 2; });
    ranks_.HoldSteps();
    const Asked asked = Ask(150, 30);
    const Asked other = Ask(20, 30);
    ranks_.Allow();
    ExpectAnswer(asked, 150, 30);
    ExpectAnswer(other, 20, 30);
    EXPECT_EQ(other.sink->Wait()->timings.repaired, 1);
    const std::vector<int32_t> ring = TermsOf(other.id)->ring;
    ASSERT_EQ(ring.size(), 1u);
    const int times = ring[0] == lost ? 2 : 1;
    untouched += times == 1 ? 1 : 0;
    for (int32_t row = 0; row < 20; ++row) {
      EXPECT_EQ(TimesComputed(other.id, row, first), times) << row;
    }
    EXPECT_EQ(metrics_.repaired_tokens.value() - before, rows_.count());
  }
  EXPECT_EQ(untouched, 1);
}

// What two requests share is computed once, and known to a third one when it is there again.
TEST_F(RepairTest, SharedPagesAreRepairedOnce) {
  Make();
  const std::vector<int32_t> prompt(150, 'p');
  EXPECT_EQ(Outcome(Ask(prompt, 1)), "");
  Lose({{1}}, [](const StepPlan& plan) {
    return std::count_if(plan.items.begin(), plan.items.end(), [](const PlanItem& item) {
             return item.sampled && item.begin >= 155;
           }) == 2;
  });
  ranks_.HoldSteps();
  const Asked first = Ask(prompt, 40);
  const Asked second = Ask(prompt, 40);
  ranks_.Allow();
  for (const Asked& each : {first, second}) {
    ExpectAnswer(each, 150, 40);
    EXPECT_EQ(each.sink->Wait()->usage.cached_tokens, 144);
    EXPECT_EQ(each.sink->Wait()->timings.repaired, 1);
  }
  int repaired = 0;
  for (int32_t row = 0; row < 144; ++row) {
    const int times = TimesComputed(first.id, row, 0) + TimesComputed(second.id, row, 0);
    EXPECT_LE(times, 1) << row;
    repaired += times;
  }
  EXPECT_GE(repaired, 64);
  EXPECT_LE(repaired, 80);
  const Asked third = Ask(prompt, 1);
  EXPECT_EQ(Outcome(third), "");
  EXPECT_EQ(third.sink->Wait()->usage.cached_tokens, 144);
}

// The request goes, with pages that nobody has repaired.
TEST_F(RepairTest, ACancelTakesEffectBetweenRepairs) {
  Make();
  const auto is_due = [](const StepPlan& plan) { return HasRow(plan, 1, 160); };
  Lose({{1}}, [&](const StepPlan& plan) {
    if (is_due(plan)) coordinator_->Cancel(1);
    return is_due(plan);
  });
  EXPECT_THAT(Outcome(Ask(150, 100)), HasSubstr("CANCELLED"));
  EXPECT_EQ(PagesHeld(), 0);
  EXPECT_LT(metrics_.repaired_tokens.value(), rows_.count());
  ExpectAnswer(Ask(150, 3), 150, 3);
}

// Without another loss. What comes before the lost rows is kept, and no more.
TEST_F(RepairTest, AStepOfRepairsThatFailsSetsBack) {
  Make();
  ranks_.FailWhen([losses = std::vector<std::vector<int32_t>>{{}, {1}}](
                      const StepPlan& plan) mutable -> std::optional<std::vector<int32_t>> {
    if (losses.empty() || (losses.size() == 2 && !HasRow(plan, 1, 160))) return std::nullopt;
    std::vector<int32_t> lost = std::move(losses.back());
    losses.pop_back();
    return lost;
  });
  const Asked asked = Ask(150, 20);
  ExpectAnswer(asked, 150, 20);
  EXPECT_EQ(asked.sink->Wait()->timings.recovered, 2);
  EXPECT_EQ(asked.sink->Wait()->timings.repaired, 1);
  EXPECT_EQ(metrics_.recovered_set_back.value(), 1);
  EXPECT_EQ(PagesHeld(), 0);
}

// The reply says which way was taken.
TEST_F(RepairTest, PoliciesThatChooseByContentAreSetBack) {
  Make();
  Lose({{1}}, [](const StepPlan& plan) { return HasRow(plan, 1, 160); });
  RequestSpec spec = Spec(150, 20);
  spec.attention = ParseAssignment("adaptive").value();
  const Asked asked = Ask(spec);
  ExpectAnswer(asked, 150, 20);
  EXPECT_EQ(asked.sink->Wait()->timings.recovered, 1);
  EXPECT_EQ(asked.sink->Wait()->timings.repaired, 0);
  EXPECT_EQ(metrics_.recovered_set_back.value(), 1);
  EXPECT_EQ(metrics_.repaired_tokens.value(), 0);
}

// Rows under a window would not give the bits that dense rows gave the pages that it begins from.
TEST_F(RepairTest, WhatAPolicyHasReadButNotComputedIsNotRepaired) {
  Make();
  EXPECT_EQ(Outcome(Ask(Spec(150, 1, 'p'))), "");
  for (const bool begins_dense : {true, false}) {
    const RequestId id = next_id_;
    Lose({{1}}, [id](const StepPlan& plan) { return HasRow(plan, id, 160); });
    RequestSpec spec = Spec(150, 20, 'p');
    if (!begins_dense) spec.prompt[0] = 'q';
    spec.attention = AttentionPolicy{
        .kind = PolicyKind::kWindow, .block = kPageTokens, .window = 2 * kPageTokens};
    const Asked asked = Ask(spec);
    ExpectAnswer(asked, 150, 20);
    EXPECT_EQ(asked.sink->Wait()->usage.cached_tokens, begins_dense ? 144 : 0);
    EXPECT_EQ(asked.sink->Wait()->timings.recovered, 1);
    EXPECT_EQ(asked.sink->Wait()->timings.repaired, begins_dense ? 0 : 1);
  }
}

// Prompts that begin alike, and ranks that lose their pages at any time.
TEST_F(RepairTest, AnyLossesLeaveAnswersAsTheyAre) {
  for (const uint32_t seed : SeedsFrom(static_cast<uint32_t>(TestSeed()), kSanitized ? 3 : 40)) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Make();
    std::mt19937 random(seed);
    int left = 12;
    ranks_.FailWhen([&random, &left](const StepPlan&) -> std::optional<std::vector<int32_t>> {
      if (left == 0 || random() % 4 != 0) return std::nullopt;
      --left;
      const uint32_t which = random() % 8;
      if (which == 0) return {{0, 1}};
      return {{static_cast<int32_t>(which % 2)}};
    });
    std::vector<std::pair<Asked, std::pair<int, int>>> all;
    std::mt19937 shapes(seed + 1);
    for (int i = 0; i < 8; ++i) {
      const int tokens = 1 + static_cast<int>(shapes() % 170);
      const int answer = 1 + static_cast<int>(shapes() % 40);
      std::vector<int32_t> prompt(static_cast<size_t>(tokens), 'p');
      if (shapes() % 3 == 0) prompt[0] = 'a' + i;
      all.push_back({Ask(std::move(prompt), answer), {tokens, answer}});
    }
    for (const auto& [asked, shape] : all) ExpectAnswer(asked, shape.first, shape.second);
    EXPECT_EQ(PagesHeld(), 0);
  }
  EXPECT_GT(metrics_.repaired_tokens.value(), 0);
  EXPECT_EQ(metrics_.recovered_set_back.value(), 0);
}

}  // namespace
}  // namespace annulus::testing
