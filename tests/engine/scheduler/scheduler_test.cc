#include "engine/scheduler/scheduler.h"

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <utility>

#include "gtest/gtest.h"
#include "tests/engine/scheduler/plan_world.h"

namespace annulus {
namespace {

using testing::Limits;
using testing::Mode;
using testing::RowsOf;
using testing::World;

TEST(PlanStep, LastPromptRowIsSampledAtHomeInTheSameStep) {
  World world(Limits(2, 16, 64, {0}));
  world.Add(1, 20, 4, {0, 1});
  const StepPlan plan = world.Step(Mode(RingMode::kPassQ));
  ASSERT_EQ(plan.items.size(), 2u);
  EXPECT_TRUE(plan.items[0].sampled);  // items that need the last layer come first
  EXPECT_EQ(plan.items[0].begin, 19);
  EXPECT_EQ(plan.items[0].runs[0].rank, 1);  // home of id 1
  EXPECT_EQ(plan.items[1].begin, 0);
  EXPECT_EQ(plan.items[1].end, 19);
  EXPECT_EQ(plan.items[1].mode, RingMode::kPassQ);
  ASSERT_EQ(plan.updates.size(), 1u);
  EXPECT_TRUE(plan.updates[0].setup.has_value());
  EXPECT_TRUE(plan.updates[0].terms.has_value());
  const StepPlan next = world.Step(Mode(RingMode::kPassQ));
  ASSERT_EQ(next.items.size(), 1u);
  EXPECT_EQ(next.items[0].begin, 20);
  EXPECT_FALSE(next.updates[0].setup.has_value());
  EXPECT_FALSE(next.updates[0].terms.has_value());
  EXPECT_EQ(next.updates[0].version, plan.updates[0].version);
}

// Pages that a rank has no room for stay where they are, and queries travel, whatever the mode.
TEST(PlanStep, PagesThatCannotVisitMakeAnItemPassQ) {
  ModePolicy policy = Mode(RingMode::kPassKv);
  policy.visiting_pages = 4;
  World world(Limits(2, 16, 64, {0, 40}));
  world.Add(1, 160, 4, {0, 1});
  const StepPlan first = world.Step(policy);  // 128 rows: four pages on each rank
  ASSERT_EQ(first.items.size(), 1u);
  EXPECT_EQ(first.items[0].mode, RingMode::kPassKv);
  world.Add(2, 16, 4, {0});  // alone on its rank: nothing visits
  const StepPlan second = world.Step(policy);
  int checked = 0;
  for (const PlanItem& item : second.items) {
    if (item.sampled) continue;
    EXPECT_EQ(item.mode, item.sequence == 1 ? RingMode::kPassQ : RingMode::kPassKv);
    ++checked;
  }
  EXPECT_EQ(checked, 2);
}

// The bound is of a step: what the items before have taken is gone.
TEST(PlanStep, ItemsShareTheRoomForVisitingPages) {
  ModePolicy policy = Mode(RingMode::kPassKv);
  policy.visiting_pages = 3;
  World world(Limits(2, 16, 64, {0}));
  for (SequenceId id = 1; id <= 2; ++id) world.Add(id, 64, 4, {0, 1});  // two pages on each rank
  int pass_kv = 0;
  int pass_q = 0;
  for (const PlanItem& item : world.Step(policy).items) {
    if (!item.sampled) ++(item.mode == RingMode::kPassKv ? pass_kv : pass_q);
  }
  EXPECT_EQ(pass_kv, 1);
  EXPECT_EQ(pass_q, 1);
}

TEST(PlanStep, PausedSequencesAreLeftOut) {
  World world(Limits(1, 16, 64, {0}));
  world.Add(1, 5, 4, {0}).paused = true;
  EXPECT_TRUE(world.Step(Mode(RingMode::kPassKv)).items.empty());
}

// Its prompt has all its pages; behind that it goes as far as it has taken pages.
TEST(PlanStep, ASequenceThatNeedsPagesIsLeftOut) {
  World world(Limits(1, 16, 64, {0}));
  Sequence& sequence = world.Add(1, 14, 40, {0});
  sequence.reserved = 16;
  for (const int32_t computed : {14, 15, 16, 16}) {
    world.Step(Mode(RingMode::kPassKv));
    EXPECT_EQ(sequence.computed, computed);
  }
  EXPECT_TRUE(sequence.needs_pages());
  sequence.reserved = 32;
  EXPECT_EQ(world.Step(Mode(RingMode::kPassKv)).items.size(), 1u);
}

// What a sampling setup says of a preempted request: its answer so far, though it is prompt now.
TEST(PlanStep, ASetupThatIsSentAgainHasTheAnswerSoFar) {
  World world(Limits(1, 16, 64, {0}));
  Sequence& sequence = world.Add(1, 9, 4, {0});
  sequence.answered = 3;
  const StepPlan plan = world.Step(Mode(RingMode::kPassKv));
  ASSERT_EQ(plan.updates.size(), 1u);
  ASSERT_TRUE(plan.updates[0].setup.has_value());
  EXPECT_EQ(plan.updates[0].setup->generated, (std::vector<int32_t>{6, 7, 8}));
}

TEST(PlanStep, DecodesTakeTurnsWhenRowsRunOut) {
  World world(Limits(1, 16, 16, {0}));
  for (SequenceId id = 1; id <= 40; ++id) {
    Sequence& sequence = world.Add(id, 3, 64, {0});
    sequence.computed = 3;
    sequence.tokens.push_back(1);
    for (GroupTable& group : sequence.groups) {
      const PageId page{0, world.pages().reserve(OwnerOfRequest(id), 0).back()};
      world.pages().BeginWrite(OwnerOfRequest(id), page, 0);
      group.entries.push_back({0, page.page, 0});
      group.mapped_end = 16;
    }
  }
  std::map<SequenceId, int> turns;
  for (int step = 0; step < 40; ++step) {
    for (const PlanItem& item : world.Step(Mode(RingMode::kPassKv)).items) ++turns[item.sequence];
  }
  for (SequenceId id = 1; id <= 40; ++id) EXPECT_GE(turns[id], 10) << "sequence " << id;
}

// Replays plans on a mirror like the ranks' and checks every law of the plan.
class Mirror {
 public:
  void Check(const StepPlan& plan, const World& world) {
    const PlanLimits& limits = world.limits();
    for (int rank = 0; rank < limits.ranks; ++rank) {
      ASSERT_LE(RowsOf(plan, rank), limits.rows_per_rank());
    }
    for (const SequenceUpdate& update : plan.updates) Apply(update, limits);
    bool prefix = true;
    for (const PlanItem& item : plan.items) {
      ASSERT_FALSE(NeedsLastLayer(item) && !prefix);
      prefix = prefix && NeedsLastLayer(item);
      CheckItem(item, limits);
    }
  }

  std::map<SequenceId, std::set<int32_t>> computed;
  size_t most_window_entries = 0;

 private:
  void Apply(const SequenceUpdate& update, const PlanLimits& limits) {
    auto& groups = tables_[update.sequence];
    if (update.terms.has_value()) rings_[update.sequence] = update.terms->ring;
    groups.resize(update.tables.size());
    for (size_t g = 0; g < groups.size(); ++g) {
      const TableDelta& delta = update.tables[g];
      ASSERT_LE(static_cast<size_t>(delta.drop_front), groups[g].size());
      groups[g].erase(groups[g].begin(), groups[g].begin() + delta.drop_front);
      for (const PageEntry& entry : delta.append) {
        if (!groups[g].empty()) {
          ASSERT_EQ(groups[g].back().first_position + limits.page_tokens, entry.first_position);
        }
        groups[g].push_back(entry);
      }
      if (limits.group_windows[g] > 0) {
        most_window_entries = std::max(most_window_entries, groups[g].size());
      }
    }
    CheckPagesDistinct(groups);
  }

  static void CheckPagesDistinct(const std::vector<std::vector<PageEntry>>& groups) {
    std::set<std::pair<int, int>> pages;
    for (const auto& group : groups) {
      for (const PageEntry& entry : group) {
        ASSERT_TRUE(pages.insert({entry.rank, entry.page}).second) << "a page is mapped twice";
      }
    }
  }

  void CheckItem(const PlanItem& item, const PlanLimits& limits) {
    int32_t next = item.begin;
    for (const RowRun& run : item.runs) {
      ASSERT_EQ(run.first_position, next);
      next += run.count;
    }
    ASSERT_EQ(next, item.end);
    ASSERT_EQ(item.tokens.size(), static_cast<size_t>(item.end - item.begin));
    const auto& groups = tables_.at(item.sequence);
    for (int32_t p = item.begin; p < item.end; ++p) {
      ASSERT_TRUE(computed[item.sequence].insert(p).second) << "row " << p << " runs twice";
      for (size_t g = 0; g < groups.size(); ++g) CheckVisible(groups[g], p, limits, g);
    }
    if (item.sampled) return;
    for (const RowRun& run : item.runs) {
      for (int32_t p = run.first_position; p < run.first_position + run.count; ++p) {
        ASSERT_EQ(Owner(groups[0], p, limits), run.rank) << "prefill rows run where their page is";
      }
    }
  }

  static int Owner(const std::vector<PageEntry>& table, int32_t p, const PlanLimits& limits) {
    for (const PageEntry& entry : table) {
      if (entry.first_position <= p && p < entry.first_position + limits.page_tokens) {
        return entry.rank;
      }
    }
    return -1;
  }

  // Everything that row p attends is mapped.
  static void CheckVisible(const std::vector<PageEntry>& table, int32_t p, const PlanLimits& limits,
                           size_t group) {
    const int32_t window = limits.group_windows[group];
    const int32_t oldest = window == 0 ? 0 : std::max(0, p - window + 1);
    ASSERT_NE(Owner(table, p, limits), -1) << p;
    ASSERT_NE(Owner(table, oldest, limits), -1) << "row " << p << " needs " << oldest;
  }

  std::map<SequenceId, std::vector<std::vector<PageEntry>>> tables_;
  std::map<SequenceId, std::vector<int32_t>> rings_;
};

// A ring that changes inside a page: the rest of the page stays with the rank that has it, which
// alone can write it.
TEST(PlanStep, RowsOfABegunPageRunWhereItLies) {
  World world(Limits(3, 16, 64, {0, 40}));
  Sequence& sequence = world.Add(1, 100, 4, {2, 0});
  // 24 positions were computed on rank 1: page 1 is half full.
  sequence.computed = 24;
  PageBook& pages = world.pages();
  pages.Reserve(OwnerOfRequest(1), 1, 12);
  for (int group = 0; group < 2; ++group) {
    for (int32_t first = 0; first < 32; first += 16) {
      const PageId id{1, pages.reserve(OwnerOfRequest(1), 1).back()};
      pages.BeginWrite(OwnerOfRequest(1), id, group);
      if (first == 0) pages.Complete(id);
      sequence.groups[group].entries.push_back({1, id.page, first});
    }
    sequence.groups[group].mapped_end = 32;
  }
  sequence.ring = {2, 0, 1};
  std::map<int32_t, int32_t> rank_of;  // [position]
  int32_t pages_moved = 0;
  while (sequence.in_prefill()) {
    for (const PlanItem& item : world.Step(Mode(RingMode::kPassKv)).items) {
      if (item.sampled) continue;
      for (const RowRun& run : item.runs) {
        for (int32_t n = 0; n < run.count; ++n) rank_of[run.first_position + n] = run.rank;
      }
    }
  }
  ASSERT_EQ(rank_of.size(), 75u);
  for (const GroupTable& group : sequence.groups) {
    for (const PageEntry& entry : group.entries) {
      const int32_t end = std::min(99, entry.first_position + 16);
      for (int32_t p = std::max(24, entry.first_position); p < end; ++p) {
        EXPECT_EQ(rank_of.at(p), entry.rank) << "position " << p;
      }
      if (entry.rank != 1) ++pages_moved;
    }
  }
  EXPECT_GT(pages_moved, 0) << "the ring did not change";
}

TEST(PlanStep, RandomWorldsKeepEveryLaw) {
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const auto pick = [&](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    const int ranks = pick(1, 5);
    const int page = 16 << pick(0, 2);
    const int rows = page * pick(1, 4) + pick(0, 40);
    World world(Limits(ranks, page, rows, {0, pick(1, 200), pick(1, 20)}));
    const int sequences = pick(1, 6);
    std::map<SequenceId, int> wanted;
    for (SequenceId id = 1; id <= static_cast<SequenceId>(sequences); ++id) {
      std::vector<int32_t> ring;
      for (int rank = 0; rank < ranks; ++rank) {
        if (pick(0, 1) == 1) ring.push_back(rank);
      }
      if (ring.empty()) ring.push_back(pick(0, ranks - 1));
      const int prompt = pick(1, 700);
      wanted[id] = prompt + 30;
      world.Add(id, prompt, 32, ring);
    }
    Mirror mirror;
    for (int step = 0; step < 4000; ++step) {
      bool all_done = true;
      for (const auto& sequence : world.state().running) {
        sequence->paused = sequence->computed >= wanted[sequence->id];
        all_done = all_done && sequence->paused;
      }
      if (all_done) break;
      const StepPlan plan = world.Step(Mode(RingMode::kPassKv));
      ASSERT_FALSE(plan.items.empty()) << "no progress though work is there";
      mirror.Check(plan, world);
      if (HasFatalFailure()) return;
    }
    for (const auto& [id, count] : wanted) {
      ASSERT_GE(static_cast<int>(mirror.computed[id].size()), count) << "sequence " << id;
    }
  }
}

// Plans the successor of each step and holds it against the step that is planned once the results
// are known.
TEST(PlanSuccessor, IsTheNextPlanButForTheToken) {
  World world(Limits(2, 16, 64, {0, 24}));
  world.Add(1, 30, 100, {0, 1});
  world.Add(2, 14, 100, {1});
  world.Step(Mode(RingMode::kPassKv));
  for (int step = 0; step < 40; ++step) {
    const StepPlan plan =
        PlanStep(world.state(), world.pages(), world.limits(), Mode(RingMode::kPassKv));
    StartStep(plan, world.limits(), world.state(), world.pages());
    std::optional<StepPlan> successor =
        PlanSuccessor(plan, world.state(), world.pages(), world.limits());
    world.End(plan);
    ASSERT_TRUE(successor.has_value()) << step;
    for (PlanItem& item : successor->items) {
      ASSERT_EQ(item.tokens, std::vector<int32_t>{kLastSampled});
      item.tokens = {1};
    }
    StepPlan next = PlanStep(world.state(), world.pages(), world.limits(), Mode(RingMode::kPassKv));
    const auto by_sequence = [](const auto& a, const auto& b) { return a.sequence < b.sequence; };
    for (StepPlan* each : {&next, &*successor}) {
      std::sort(each->items.begin(), each->items.end(), by_sequence);
      std::sort(each->updates.begin(), each->updates.end(), by_sequence);
      // Which pages leave a window, and may be written again, is known only then.
      for (SequenceUpdate& update : each->updates) {
        for (TableDelta& table : update.tables) table.drop_front = 0;
        for (PageEntry& entry : update.tables[1].append) entry.page = 0;
      }
    }
    EXPECT_EQ(*successor, next) << step;
  }
}

// Prompts and streams, of which some have no page, some are parked, and all share a rank's room.
TEST(RowsOfStreams, AreThoseThatTheStepHas) {
  PlanLimits limits = Limits(2, 16, 64, {0});
  limits.sampled_rows_per_rank = 3;
  limits.draft_rows_per_rank = 15;
  World world(limits);
  EXPECT_TRUE(RowsOfStreams(world.state(), world.pages(), limits).empty());
  for (SequenceId id = 1; id <= 8; ++id) {
    world.Add(id, 20 + static_cast<int>(id), 500, {static_cast<int32_t>(id % 2)});
  }
  std::mt19937 random(5);
  int guessed = 0;
  for (int step = 0; step < 30; ++step) {
    for (const auto& sequence : world.state().running) {
      sequence->draft.assign(sequence->in_prefill() ? 0 : random() % 16, 1);
      sequence->paused = random() % 8 == 0;
      sequence->reserved = random() % 8 == 0 ? sequence->computed : INT32_MAX;
    }
    const auto streams = RowsOfStreams(world.state(), world.pages(), limits);
    const StepPlan plan = world.Step(Mode(RingMode::kPassKv));
    std::vector<std::pair<int32_t, int32_t>> wanted;  // position and rows
    for (const PlanItem& item : plan.items) {
      if (item.begin < 20 + static_cast<int32_t>(item.sequence)) continue;  // of a prompt
      wanted.emplace_back(item.begin, item.end - item.begin);
    }
    std::vector<std::pair<int32_t, int32_t>> found;
    for (const StreamRows& stream : streams) {
      found.emplace_back(stream.position, stream.rows);
      guessed += stream.rows - 1;
    }
    EXPECT_EQ(found, wanted) << step;
  }
  EXPECT_GT(guessed, 100);
}

TEST(PlanSuccessor, OnlyIfAllSequencesDecodeOneRow) {
  const auto has_successor = [](World& world) {
    const StepPlan plan =
        PlanStep(world.state(), world.pages(), world.limits(), Mode(RingMode::kPassKv));
    StartStep(plan, world.limits(), world.state(), world.pages());
    const bool planned =
        PlanSuccessor(plan, world.state(), world.pages(), world.limits()).has_value();
    world.End(plan);
    return planned;
  };
  PlanLimits limits = Limits(1, 16, 64, {0});
  limits.draft_rows_per_rank = 8;
  World world(limits);
  EXPECT_FALSE(has_successor(world));  // there is nothing to go on
  Sequence& first = world.Add(1, 20, 100, {0});
  EXPECT_FALSE(has_successor(world));  // a prompt
  EXPECT_TRUE(has_successor(world));
  first.draft = {1, 1};
  EXPECT_FALSE(has_successor(world));  // how many rows count is not known
  EXPECT_TRUE(has_successor(world));
  Sequence& second = world.Add(2, 100, 10, {0});
  EXPECT_FALSE(has_successor(world));
  second.paused = true;
  EXPECT_TRUE(has_successor(world));
  first.reserved = (first.computed / 16 + 1) * 16;
  while (first.computed + 1 < first.reserved) EXPECT_TRUE(has_successor(world)) << first.computed;
  EXPECT_FALSE(has_successor(world));  // it needs pages for the next row
}

}  // namespace
}  // namespace annulus
