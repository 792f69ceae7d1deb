#ifndef ANNULUS_TESTS_ENGINE_SCHEDULER_PLAN_WORLD_H_
#define ANNULUS_TESTS_ENGINE_SCHEDULER_PLAN_WORLD_H_

#include <memory>
#include <utility>
#include <vector>

#include "engine/scheduler/scheduler.h"
#include "gtest/gtest.h"
#include "tests/support/through_bytes.h"

// Sequences and pages for tests of plans.

namespace annulus::testing {

inline PlanLimits Limits(int ranks, int page, int prefill_rows, std::vector<int32_t> windows) {
  PlanLimits limits;
  limits.ranks = ranks;
  limits.page_tokens = page;
  limits.prefill_rows_per_rank = prefill_rows;
  limits.sampled_rows_per_rank = 17;
  limits.tokens_per_rank = 1;
  limits.group_windows = std::move(windows);
  return limits;
}

inline ModePolicy Mode(RingMode mode) {
  ModePolicy policy;
  policy.mode = mode;
  return policy;
}

// Admits sequences the way the engine does, with room for all that a test asks for.
class World {
 public:
  explicit World(PlanLimits limits)
      : limits_(std::move(limits)),
        pages_(std::vector<int32_t>(limits_.ranks, kPages), limits_.group_windows) {}
  ~World() {
    for (const auto& sequence : state_.running) pages_.Release(sequence->owner);
  }

  Sequence& Add(SequenceId id, int prompt, int max_tokens, std::vector<int32_t> ring) {
    auto sequence = std::make_unique<Sequence>();
    sequence->id = id;
    sequence->owner = OwnerOfRequest(id);
    sequence->prompt_length = prompt;
    for (int i = 0; i < prompt; ++i) sequence->tokens.push_back(i % 97);
    sequence->ring = ring;
    sequence->home = ring[id % ring.size()];
    sequence->groups.resize(limits_.group_windows.size());
    const auto needed = PagesNeeded({prompt + max_tokens}, static_cast<int>(ring.size()), limits_);
    pages_.Open(sequence->owner, TenantId());
    for (size_t i = 0; i < ring.size(); ++i) {
      pages_.Reserve(sequence->owner, ring[i], static_cast<int32_t>(needed[i]));
    }
    auto setup = std::make_shared<SamplingSetup>();
    setup->params.seed = 1;
    setup->vocabulary = kVocabulary;
    sequence->setup = std::move(setup);
    state_.running.push_back(std::move(sequence));
    return *state_.running.back();
  }

  EngineState& state() { return state_; }
  PageBook& pages() { return pages_; }
  const PlanLimits& limits() const { return limits_; }

  // Plans and commits one step; every sampled item gets a token.
  StepPlan Step(const ModePolicy& policy) {
    return Finish(PlanStep(state_, pages_, limits_, policy));
  }
  StepPlan Stretch(const StretchTurn& turn) {
    return Finish(PlanStretch(state_, pages_, limits_, Mode(RingMode::kPassKv), turn));
  }

  // Commits a step that was started; every row that is sampled gives the token 1.
  void End(const StepPlan& plan) {
    std::vector<RankResult> results(static_cast<size_t>(limits_.ranks));
    for (const PlanItem& item : plan.items) {
      if (!item.sampled || !EndsItsChunks(plan)) continue;
      for (size_t row = 0; row < item.tokens.size(); ++row) {
        SampledToken& token = results[item.runs[0].rank].tokens.emplace_back();
        token.sequence = item.sequence;
        token.token = 1;
      }
    }
    EXPECT_TRUE(CheckAnswered(plan, results).ok());
    CommitStep(plan, results, limits_, state_, pages_);
    DropOutsideWindows(limits_, state_, pages_);
  }

 private:
  StepPlan Finish(StepPlan plan) {
    ExpectBytesCarry(plan);
    StartStep(plan, limits_, state_, pages_);
    End(plan);
    return plan;
  }

  void ExpectBytesCarry(const StepPlan& plan) const {
    CodecLimits wire;
    wire.pages.assign(static_cast<size_t>(limits_.ranks), kPages);
    wire.groups = static_cast<int>(limits_.group_windows.size());
    wire.model.page_tokens = limits_.page_tokens;
    wire.model.layers = limits_.layers;
    wire.vocabulary = kVocabulary;
    const auto received = ThroughBytes(plan, wire);
    EXPECT_TRUE(received.ok()) << received.status();
    EXPECT_TRUE(received.ok() && *received == plan) << "step " << plan.step;
  }

  static constexpr int32_t kPages = 4096;  // of each rank
  static constexpr int32_t kVocabulary = 97;

  const PlanLimits limits_;
  EngineState state_;
  PageBook pages_;
};

inline int RowsOf(const StepPlan& plan, int rank) {
  int rows = 0;
  for (const PlanItem& item : plan.items) {
    for (const RowRun& run : item.runs) rows += run.rank == rank ? run.count : 0;
  }
  return rows;
}

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_ENGINE_SCHEDULER_PLAN_WORLD_H_
