// What becomes of plans that ranks cannot follow, and of steps that are started behind others.

#include "engine/runner/rank_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/codec/step_codec.h"
#include "engine/model/made/recall_model.h"
#include "tests/support/manual_clock.h"
#include "tests/support/step_driver.h"

namespace annulus::testing {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kTokensOfPage = 16;

// One page of a prompt on two ranks, as plans that ranks cannot follow, each of which the ranks
// outlive.
class UnfitPlans : public ::testing::Test {
 protected:
  UnfitPlans() {
    const ModelConfig config = RecallConfig(3);
    const OpTable& ops = *world_.registry.Available("cpu")[0];
    model_ = MakeRankModel(
        config, LoadWeights(config, *MakeRecallTensors(3), *world_.backend, ops, {}).value(), ops,
        kTokensOfPage, DType::kF32);
    ranks_ = MakeRanks(Clock::Real());
  }

  std::unique_ptr<RankSet> MakeRanks(const Clock& clock) {
    RankSetOptions options;
    options.span = {.local = 2, .all = 2};
    options.engine.kv_memory_bytes = 8 << 20;
    options.rows_per_rank = 64;
    options.suspended_rows = 32;
    options.through_bytes = true;
    options.clock = &clock;
    return RankSet::Create(model_, *world_.backend, options).value();
  }

  StepPlan Plan() {
    StepPlan plan;
    SequenceUpdate& update = plan.updates.emplace_back();
    update.sequence = 1;
    update.version = 1;
    update.terms.emplace();
    update.terms->version = 1;
    update.terms->ring = {0, 1};
    update.tables.assign(model_.groups.size(), {0, {{0, 0, 0}, {1, 0, kTokensOfPage}}});
    PlanItem& item = plan.items.emplace_back();
    item.sequence = 1;
    item.end = 20;
    item.tokens.assign(20, 65);
    item.runs = {{0, 0, 16}, {1, 16, 4}};
    item.logits_positions = {19};
    return plan;
  }

  // Four pages of distinct text on rank 0, and one more to come, under a policy that chooses pages
  // by their summaries, which page 40 holds.
  StepPlan Chosen() {
    StepPlan plan = Plan();
    SequenceUpdate& update = plan.updates[0];
    update.terms->ring = {0};
    update.terms->attention = AttentionPolicy{
        .kind = PolicyKind::kTopPages, .block = kTokensOfPage, .sinks = 0, .window = 0, .pages = 1};
    update.terms->summaries.assign(model_.groups.size(), {{40}});
    TableDelta table;
    for (int32_t page = 0; page < 5; ++page)
      table.append.push_back({0, page, page * kTokensOfPage});
    update.tables.assign(model_.groups.size(), table);
    PlanItem& item = plan.items[0];
    item.end = 4 * kTokensOfPage;
    item.tokens.clear();
    for (int32_t i = 0; i < item.end; ++i) item.tokens.push_back(33 + (7 * i) % 90);
    item.runs = {{0, 0, item.end}};
    item.logits_positions = {item.end - 1};
    return plan;
  }

  // A prompt of one row more, which is sampled.
  StepPlan Sampled() {
    StepPlan plan = Plan();
    SamplingSetup& setup = plan.updates[0].setup.emplace();
    setup.params = Greedy();
    setup.prompt.assign(21, 65);
    setup.end_of_text_ids = {0};
    setup.vocabulary = model_.config.vocabulary;
    PlanItem sampled;
    sampled.sequence = 1;
    sampled.begin = 20;
    sampled.end = 21;
    sampled.tokens = {65};
    sampled.mode = RingMode::kPassQ;
    sampled.runs = {{0, 20, 1}};
    sampled.sampled = true;
    plan.items.push_back(sampled);
    return plan;
  }

  std::string Refusal(const std::function<void(StepPlan&)>& change) {
    StepPlan plan = Plan();
    change(plan);
    return std::string(ranks_->Run(std::make_shared<const StepPlan>(plan)).status().message());
  }

  CpuWorld world_;
  RankModel model_;
  std::unique_ptr<RankSet> ranks_;
};

TEST_F(UnfitPlans, AreAStatusAndTheRanksGoOn) {
  EXPECT_EQ(Refusal([](auto&) {}), "");
  EXPECT_THAT(Refusal([](StepPlan& p) { p.updates[0].version = 2; }), HasSubstr("version 2"));
  EXPECT_THAT(Refusal([](StepPlan& p) { p.updates.clear(); }), HasSubstr("does not know"));
  EXPECT_THAT(Refusal([](StepPlan& p) { p.updates[0].terms.reset(); }), HasSubstr("has 0"));
  EXPECT_THAT(Refusal([](StepPlan& p) {
                p.items[0].runs = {{0, 0, 10}, {1, 10, 10}};
              }),
              HasSubstr("position 10, whose page rank 0 holds"));
  EXPECT_THAT(Refusal([](StepPlan& p) {
                p.updates[0].terms->attention = AttentionPolicy{.kind = PolicyKind::kTopPages};
              }),
              HasSubstr("too few pages for the summaries"));
  EXPECT_THAT(Refusal([](StepPlan& p) {
                p.updates[0].terms->attention = AttentionPolicy{.kind = PolicyKind::kLearned};
              }),
              HasSubstr("gates"));
  // More rows than a rank's step has room for.
  EXPECT_NE(Refusal([](StepPlan& p) {
              TableDelta& table = p.updates[0].tables[0];
              table.append.clear();
              for (int32_t page = 0; page < 32; ++page) {
                table.append.push_back({0, page, page * kTokensOfPage});
              }
              p.updates[0].tables.assign(p.updates[0].tables.size(), table);
              p.items[0].end = 512;
              p.items[0].tokens.assign(512, 65);
              p.items[0].runs = {{0, 0, 512}};
            }),
            "");
  EXPECT_EQ(ranks_->state(), RanksState::kUp);
  EXPECT_EQ(Refusal([](auto&) {}), "");
}

// A head that takes a second for each call, and notes for how long its ranks were silent by then.
struct SlowHead {
  static absl::Status Linear(Stream& stream, const LinearParams& params) {
    if (params.weight == head) {
      clock->Advance(std::chrono::seconds(1));
      longest = std::max(longest, SecondsBetween(ranks->last_progress(), clock->Now()));
    }
    return linear(stream, params);
  }
  static inline const PackedMatrix* head = nullptr;
  static inline ManualClock* clock = nullptr;
  static inline const RankSet* ranks = nullptr;
  static inline absl::Status (*linear)(Stream&, const LinearParams&) = nullptr;
  static inline double longest = 0;
};

TEST_F(UnfitPlans, TheHeartBeatsBetweenRowsThatAreScored) {
  OpTable ops = *model_.ops;
  SlowHead::linear = std::exchange(ops.linear, &SlowHead::Linear);
  SlowHead::head = &model_.weights.head();
  model_.ops = &ops;
  ManualClock clock;
  SlowHead::clock = &clock;
  const std::unique_ptr<RankSet> ranks = MakeRanks(clock);
  SlowHead::ranks = ranks.get();
  StepPlan plan = Plan();
  plan.updates[0].terms->ring = {0};
  TableDelta table;
  for (int32_t page = 0; page < 4; ++page) table.append.push_back({0, page, page * kTokensOfPage});
  plan.updates[0].tables.assign(model_.groups.size(), table);
  PlanItem& item = plan.items[0];
  item.end = 60;
  item.tokens.assign(60, 65);
  item.runs = {{0, 0, 60}};
  item.score.emplace();
  const SteadyTime begun = clock.Now();
  const auto results = ranks->Run(std::make_shared<const StepPlan>(plan));
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ((*results)[0].scored.size(), 60u);
  EXPECT_EQ(SecondsBetween(begun, clock.Now()), 2) << "32 rows at a time";
  EXPECT_EQ(SlowHead::longest, 1);
}

// A row behind that of Sampled().
StepPlan RowBehind(size_t groups, int32_t token) {
  StepPlan plan;
  SequenceUpdate& update = plan.updates.emplace_back();
  update.sequence = 1;
  update.version = 1;
  update.tables.resize(groups);
  PlanItem& item = plan.items.emplace_back();
  item.sequence = 1;
  item.begin = 21;
  item.end = 22;
  item.tokens = {token};
  item.mode = RingMode::kPassQ;
  item.runs = {{0, 21, 1}};
  item.sampled = true;
  return plan;
}

TEST_F(UnfitPlans, AStepWaitsForTheOneInFrontOfIt) {
  const auto shared = [](StepPlan plan) { return std::make_shared<const StepPlan>(plan); };
  ASSERT_TRUE(ranks_->Start(shared(Sampled())).ok());
  ASSERT_TRUE(ranks_->Start(shared(RowBehind(model_.groups.size(), kLastSampled))).ok());
  const auto first = ranks_->Results();
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = ranks_->Results();
  ASSERT_TRUE(second.ok()) << second.status();
  // The same, one after the other.
  StepPlan again = Sampled();
  again.ended = {1};
  const auto alone = ranks_->Run(shared(again));
  ASSERT_TRUE(alone.ok()) << alone.status();
  const SampledToken token = (*alone)[0].tokens.at(0);
  EXPECT_EQ((*first)[0].tokens.at(0), token);
  const auto behind = ranks_->Run(shared(RowBehind(model_.groups.size(), token.token)));
  ASSERT_TRUE(behind.ok()) << behind.status();
  EXPECT_EQ((*second)[0].tokens, (*behind)[0].tokens);
}

TEST_F(UnfitPlans, AStepBehindOneThatFailsNeverBegins) {
  const auto shared = [](StepPlan plan) { return std::make_shared<const StepPlan>(plan); };
  StepPlan unfit = Sampled();
  unfit.updates[0].version = 2;
  for (int turn = 0; turn < 20; ++turn) {
    ASSERT_TRUE(ranks_->Start(shared(unfit)).ok());
    ASSERT_TRUE(ranks_->Start(shared(RowBehind(model_.groups.size(), kLastSampled))).ok());
    EXPECT_THAT(ranks_->Results().status().message(), HasSubstr("version 2"));
    EXPECT_TRUE(ranks_->Run(shared(Sampled())).ok());
    EXPECT_TRUE(ranks_->Run(shared(RowBehind(model_.groups.size(), kLastSampled))).ok());
    // The second one fails, and the first does not.
    StepPlan other = RowBehind(model_.groups.size(), kLastSampled);
    other.updates[0].version = 3;
    StepPlan again = Sampled();
    again.ended = {1};
    ASSERT_TRUE(ranks_->Start(shared(again)).ok());
    ASSERT_TRUE(ranks_->Start(shared(other)).ok());
    EXPECT_TRUE(ranks_->Results().ok());
    EXPECT_THAT(ranks_->Results().status().message(), HasSubstr("version 3"));
    // What the codec refuses never starts.
    ASSERT_TRUE(ranks_->Start(shared(Sampled())).ok());
    other.items[0].runs.clear();
    EXPECT_EQ(ranks_->Start(shared(other)).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(ranks_->Results().ok());
    EXPECT_TRUE(ranks_->Run(shared(RowBehind(model_.groups.size(), kLastSampled))).ok());
    StepPlan end;
    end.ended = {1};
    EXPECT_TRUE(ranks_->Run(shared(end)).ok());
  }
}

TEST_F(UnfitPlans, ASuspendedChunkGoesWithItsSequence) {
  const auto run = [&](const StepPlan& plan) {
    return ranks_->Run(std::make_shared<const StepPlan>(plan)).status();
  };
  StepPlan begin = Plan();
  begin.stretch = {0, 1, false};
  StepPlan rest = begin;
  rest.updates.clear();
  rest.stretch = {1, model_.layers(), true};
  for (const bool ended : {false, true}) {
    ASSERT_EQ(run(begin), absl::OkStatus());
    StepPlan between;
    if (ended) between.ended = {1};
    ASSERT_EQ(run(between), absl::OkStatus());
    if (!ended) {
      EXPECT_EQ(run(rest), absl::OkStatus());
      between.ended = {1};
      EXPECT_EQ(run(between), absl::OkStatus());
    } else {
      EXPECT_THAT(run(rest).message(), HasSubstr("no chunk is suspended"));
    }
  }
  // A step that fails ends it too.
  ASSERT_EQ(run(begin), absl::OkStatus());
  EXPECT_THAT(run(begin).message(), HasSubstr("is suspended"));
  EXPECT_THAT(run(rest).message(), HasSubstr("no chunk is suspended"));
  EXPECT_EQ(run(begin), absl::OkStatus());
}

TEST_F(UnfitPlans, AChunkNeedsTheMemoryThatItIsSuspendedIn) {
  StepPlan begin = Plan();
  begin.stretch = {0, 1, false};
  RankSetOptions options;
  options.span = {.local = 2, .all = 2};
  options.engine.kv_memory_bytes = 8 << 20;
  options.rows_per_rank = 64;
  options.through_bytes = true;
  for (const int rows : {0, 2}) {
    options.suspended_rows = rows;
    ranks_ = RankSet::Create(model_, *world_.backend, options).value();
    const absl::Status status = ranks_->Run(std::make_shared<const StepPlan>(begin)).status();
    EXPECT_THAT(status.message(), HasSubstr(rows == 0 ? "has no memory for that" : "step arena"));
    EXPECT_EQ(Refusal([](auto&) {}), "");
  }
}

// Bytes of a peer, through decoding and every check behind it, to the kernels.
TEST_F(UnfitPlans, MutatedBytesNeverEndTheRanks) {
  const uint32_t seed = 20240607;
  std::mt19937 random(seed);
  CodecLimits limits;
  limits.pages = ranks_->page_counts();
  limits.groups = static_cast<int>(model_.groups.size());
  limits.model = model_.assignment_limits();
  limits.vocabulary = model_.config.vocabulary;
  StepPlan stretch = Sampled();
  stretch.stretch = {0, 1, false};
  const std::vector<std::string> originals = {
      EncodePlan(Plan(), limits).value(), EncodePlan(stretch, limits).value(),
      EncodePlan(Chosen(), limits).value(), EncodePlan(Sampled(), limits).value()};
  std::map<std::string, int> outcomes;
  for (int turn = 0; turn < 6000; ++turn) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed << ", turn " << turn);
    std::string bytes = originals[static_cast<size_t>(turn) % originals.size()];
    for (uint32_t n = random() % 3 + 1; n > 0; --n) {
      const size_t at = random() % bytes.size();
      if (random() % 4 == 0) {
        bytes.erase(at, random() % 4 + 1);
        if (bytes.empty()) break;
      } else {
        bytes[at] = static_cast<char>(random() % 2 == 0 ? random() % 32 : random());
      }
    }
    absl::StatusOr<StepPlan> plan = DecodePlan(bytes, limits);
    if (!plan.ok()) continue;
    const auto shared = std::make_shared<const StepPlan>(*std::move(plan));
    const absl::Status status = ranks_->Run(shared).status();
    ++outcomes[absl::StatusCodeToString(status.code())];
    ASSERT_TRUE(status.ok() || absl::IsInvalidArgument(status) || absl::IsResourceExhausted(status))
        << status;
    ASSERT_EQ(ranks_->state(), RanksState::kUp);
    auto forget = std::make_shared<StepPlan>();
    for (const SequenceUpdate& update : shared->updates) forget->ended.push_back(update.sequence);
    ASSERT_EQ(ranks_->Run(forget).status(), absl::OkStatus());
  }
  // Both ways are taken often, or the test would say nothing.
  EXPECT_GT(outcomes["OK"], 100);
  EXPECT_GT(outcomes["INVALID_ARGUMENT"], 30);
}

// The page that holds a sequence's summaries changes with a new version of its terms: what was
// summarised in the one before is not in it yet.
TEST_F(UnfitPlans, ANewPageForSummariesIsFilledAnew) {
  const KvPool& pool = ranks_->pool(0);
  const auto bytes = [&](int32_t page) {
    const std::byte* const begin = pool.LayerPage(page, 0);
    return std::vector<std::byte>(begin, begin + pool.geometry().page_bytes());
  };
  const StepPlan first = Chosen();
  ranks_->Run(std::make_shared<const StepPlan>(first)).value();
  for (const int32_t page : {40, 41}) {
    std::memset(pool.LayerPage(page, 0), 0, pool.geometry().page_bytes());
    StepPlan plan;
    SequenceUpdate& update = plan.updates.emplace_back();
    update.sequence = 1;
    update.version = static_cast<uint32_t>(page);
    update.terms = first.updates[0].terms;
    update.terms->version = update.version;
    for (auto& group : update.terms->summaries) group = {{page}};
    update.tables.resize(model_.groups.size());
    update.setup = Sampled().updates[0].setup;
    PlanItem& item = plan.items.emplace_back(Sampled().items[1]);
    item.begin = first.items[0].end + page - 40;
    item.end = item.begin + 1;
    item.runs = {{0, item.begin, 1}};
    ranks_->Run(std::make_shared<const StepPlan>(plan)).value();
  }
  EXPECT_FALSE(bytes(40) == std::vector<std::byte>(bytes(40).size()));
  EXPECT_TRUE(bytes(41) == bytes(40));
}

}  // namespace
}  // namespace annulus::testing
