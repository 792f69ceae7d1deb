#include "engine/runner/plan_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/codec/step_codec.h"
#include "engine/model/recall_model.h"
#include "tests/support/step_driver.h"

namespace annulus::testing {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kPageTokens = 16;

// Two cache groups, one of them with a window.
RankModel TwoGroups() {
  RankModel model;
  model.page_shape.page_tokens = kPageTokens;
  model.groups.resize(2);
  model.groups[1].window = 32;
  return model;
}

// Two pages on ranks 1 and 3, in both groups; at home on 3.
RankSequence TwoPages() {
  RankSequence sequence;
  sequence.ring = {1, 3};
  sequence.home = 3;
  sequence.groups.assign(2, {{1, 7, 0}, {3, 8, kPageTokens}});
  return sequence;
}

PlanItem Prompt() {
  PlanItem item;
  item.sequence = 5;
  item.begin = 4;
  item.end = 20;
  item.runs = {{1, 4, 12}, {3, 16, 4}};
  return item;
}

TEST(PlanCheck, RowsRunWhereTheirPagesAre) {
  const auto refusal = [](const std::function<void(PlanItem&, RankSequence&)>& change) {
    PlanItem item = Prompt();
    RankSequence sequence = TwoPages();
    change(item, sequence);
    return std::string(CheckItem(item, sequence, TwoGroups(), 1).message());
  };
  EXPECT_EQ(refusal([](auto&, auto&) {}), "");
  // A ring that changes inside a page: the rows behind it would be computed and never written.
  EXPECT_THAT(refusal([](PlanItem& item, auto&) {
                item.runs = {{1, 4, 8}, {3, 12, 8}};
              }),
              HasSubstr("rank 3 is to compute position 12, whose page rank 1 holds"));
  EXPECT_THAT(refusal([](PlanItem& item, auto&) {
                item.runs = {{1, 4, 14}, {3, 18, 2}};
              }),
              HasSubstr("rank 1 is to compute position 16, whose page rank 3 holds"));
  EXPECT_THAT(refusal([](auto&, RankSequence& s) { s.groups[1][1].rank = 1; }),
              HasSubstr("position 16 has pages on ranks 3 and 1"));
  EXPECT_THAT(refusal([](auto&, RankSequence& s) { s.groups[1].pop_back(); }),
              HasSubstr("no page for position 16"));
  EXPECT_THAT(refusal([](auto&, RankSequence& s) { s.groups.clear(); }), HasSubstr("no pages"));
}

// Also under a policy that asks for none: its lists come with the pages that the sequence has.
TEST(PlanCheck, PagesForSummariesAreThoseOfTheRing) {
  const auto refusal = [](const SummaryPages& pages) {
    RankSequence sequence = TwoPages();
    sequence.summary_pages = pages;
    return std::string(CheckItem(Prompt(), sequence, TwoGroups(), 3).message());
  };
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(refusal({{{5}, {6}}, {}}), "");  // the other group has a window, and none
  EXPECT_THAT(refusal({{}, {}}), HasSubstr("not every rank of its ring"));
  EXPECT_THAT(refusal({{{5}}, {}}), HasSubstr("not every rank of its ring"));
  EXPECT_THAT(refusal({{{5}, {6}, {7}}, {}}), HasSubstr("not every rank of its ring"));
}

// Where the page behind the last one would begin is no position any more.
TEST(PlanCheck, TheLastPositionsOverflowNothing) {
  const int32_t last = INT32_MAX - (kPageTokens - 1);
  RankSequence sequence;
  sequence.ring = {0};
  sequence.groups.assign(2, {{0, 1, last}});
  PlanItem item;
  item.begin = last;
  item.end = INT32_MAX;
  item.runs = {{0, last, INT32_MAX - last}};
  EXPECT_EQ(CheckItem(item, sequence, TwoGroups(), 0), absl::OkStatus());
  SequenceUpdate update;
  update.tables = {{0, {{0, 2, INT32_MIN}}}, {0, {}}};
  EXPECT_THAT(CheckTables(update, sequence, TwoGroups()).message(), HasSubstr("are missing"));
}

TEST(PlanCheck, RowsToSampleRunAtHomeAfterTheirSetup) {
  const auto refusal = [](int32_t runs_on, int32_t asked) {
    PlanItem item = Prompt();
    item.begin = 19;
    item.runs = {{runs_on, 19, 1}};
    item.sampled = true;
    return std::string(CheckItem(item, TwoPages(), TwoGroups(), asked).message());
  };
  EXPECT_EQ(refusal(3, 1), "");
  EXPECT_THAT(refusal(1, 1), HasSubstr("home rank 3"));
  EXPECT_THAT(refusal(3, 3), HasSubstr("before its setup"));
}

TEST(PlanCheck, TablesGoOnWhereTheyEnded) {
  const auto refusal = [](const std::function<void(SequenceUpdate&, RankSequence&)>& change) {
    SequenceUpdate update;
    update.sequence = 5;
    update.tables = {{0, {{1, 9, 32}}}, {2, {{1, 9, 32}}}};
    RankSequence sequence = TwoPages();
    change(update, sequence);
    return std::string(CheckTables(update, sequence, TwoGroups()).message());
  };
  EXPECT_EQ(refusal([](auto&, auto&) {}), "");
  EXPECT_THAT(refusal([](SequenceUpdate& u, auto&) { u.tables.pop_back(); }),
              HasSubstr("1 page tables; the model has 2"));
  EXPECT_THAT(refusal([](SequenceUpdate& u, auto&) { u.tables[1].drop_front = 3; }),
              HasSubstr("3 pages are dropped of 2"));
  // What its layers have summarised would be of other pages.
  EXPECT_THAT(refusal([](SequenceUpdate& u, auto&) { u.tables[0].drop_front = 1; }),
              HasSubstr("a group without a window"));
  EXPECT_THAT(refusal([](SequenceUpdate& u, auto&) { u.tables[0].append[0].first_position = 48; }),
              HasSubstr("pages before position 48 are missing"));
  EXPECT_THAT(refusal([](auto&, RankSequence& s) { s.groups.clear(); }),
              HasSubstr("pages before position 32 are missing"));
  EXPECT_THAT(refusal([](SequenceUpdate& u, RankSequence& s) {
                s.groups.clear();
                u.tables[0].append.clear();
              }),
              HasSubstr("2 pages are dropped of 0"));
  EXPECT_THAT(refusal([](SequenceUpdate& u, auto&) { u.tables[0].append[0].rank = 2; }),
              HasSubstr("rank 2 has a page and is not of the ring"));
}

// Five layers, of which three have run.
TEST(PlanCheck, StretchesGoOnWhereTheyEnded) {
  const auto refusal = [](const std::function<void(StepPlan&)>& change) {
    StepPlan plan;
    plan.items = {Prompt()};
    plan.stretch = {3, 5, true};
    const SuspendedChunk suspended{plan.items, 3};
    change(plan);
    return std::string(CheckStretch(plan, &suspended, 5).message());
  };
  EXPECT_EQ(refusal([](auto&) {}), "");
  EXPECT_EQ(refusal([](StepPlan& p) { p.stretch = {3, 4, false}; }), "");
  EXPECT_EQ(refusal([](StepPlan& p) { p = StepPlan(); }), "");
  EXPECT_THAT(refusal([](StepPlan& p) { p.stretch = {2, 5, true}; }), HasSubstr("3 have run"));
  EXPECT_THAT(refusal([](StepPlan& p) { p.stretch = {3, 3, false}; }), HasSubstr("from layer 3"));
  EXPECT_THAT(refusal([](StepPlan& p) { p.stretch = {3, 6, true}; }), HasSubstr("with 5"));
  EXPECT_THAT(refusal([](StepPlan& p) { p.stretch = {3, 4, true}; }), HasSubstr("the last"));
  EXPECT_THAT(refusal([](StepPlan& p) { p.stretch = {-1, 4, false}; }), HasSubstr("layer -1"));
  EXPECT_THAT(refusal([](StepPlan& p) {
                p.stretch = {0, 3, false};
              }),
              HasSubstr("a chunk begins, and one of sequence 5 is suspended"));
  EXPECT_THAT(refusal([](StepPlan& p) { p.items[0].end = 19; }), HasSubstr("not those"));
  EXPECT_THAT(refusal([](StepPlan& p) { p.updates.emplace_back().sequence = 5; }),
              HasSubstr("not those"));
  EXPECT_THAT(refusal([](StepPlan& p) { p.items.clear(); }), HasSubstr("no rows"));
  EXPECT_THAT(refusal([](StepPlan& p) { p.items.emplace_back().sequence = 6; }),
              HasSubstr("one sequence is allowed"));
  // Whole steps leave the chunk's sequence alone.
  EXPECT_THAT(refusal([](StepPlan& p) { p.stretch.reset(); }),
              HasSubstr("suspended after layer 3"));
  EXPECT_THAT(refusal([](StepPlan& p) {
                p = StepPlan();
                p.updates.emplace_back().sequence = 5;
              }),
              HasSubstr("suspended after layer 3"));
}

TEST(PlanCheck, AChunkThatBeginsHasNoGuessesAndNoOthersUpdates) {
  const auto refusal = [](const std::function<void(StepPlan&)>& change) {
    StepPlan plan;
    plan.items = {Prompt()};
    plan.updates.emplace_back().sequence = 5;
    plan.stretch = {0, 2, false};
    change(plan);
    return std::string(CheckStretch(plan, nullptr, 5).message());
  };
  EXPECT_EQ(refusal([](auto&) {}), "");
  EXPECT_EQ(refusal([](StepPlan& p) { p.stretch = {0, 5, true}; }), "");
  EXPECT_THAT(refusal([](StepPlan& p) {
                p.stretch = {1, 2, false};
              }),
              HasSubstr("no chunk is suspended"));
  EXPECT_THAT(refusal([](StepPlan& p) { p.items[0].sampled = true; }), HasSubstr("guessed rows"));
  EXPECT_THAT(refusal([](StepPlan& p) { p.updates.emplace_back().sequence = 6; }),
              HasSubstr("updates other sequences"));
}

// One page of a prompt on two ranks, as plans that ranks cannot follow, each of which the ranks
// outlive.
class UnfitPlans : public ::testing::Test {
 protected:
  UnfitPlans() {
    const ModelConfig config = RecallConfig(3);
    const OpTable& ops = *world_.registry.Available("cpu")[0];
    model_ = MakeRankModel(
        config, LoadWeights(config, *MakeRecallTensors(3), *world_.backend, ops, {}).value(), ops,
        kPageTokens, DType::kF32);
    RankSetOptions options;
    options.ranks = 2;
    options.kv_memory_bytes = 8 << 20;
    options.rows_per_rank = 64;
    options.suspended_rows = 32;
    options.through_bytes = true;
    ranks_ = RankSet::Create(model_, *world_.backend, options).value();
  }

  StepPlan Plan() {
    StepPlan plan;
    SequenceUpdate& update = plan.updates.emplace_back();
    update.sequence = 1;
    update.version = 1;
    update.terms.emplace();
    update.terms->version = 1;
    update.terms->ring = {0, 1};
    update.tables.assign(model_.groups.size(), {0, {{0, 0, 0}, {1, 0, kPageTokens}}});
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
        .kind = PolicyKind::kTopPages, .block = kPageTokens, .sinks = 0, .window = 0, .pages = 1};
    update.terms->summaries.assign(model_.groups.size(), {{40}});
    TableDelta table;
    for (int32_t page = 0; page < 5; ++page) table.append.push_back({0, page, page * kPageTokens});
    update.tables.assign(model_.groups.size(), table);
    PlanItem& item = plan.items[0];
    item.end = 4 * kPageTokens;
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
                table.append.push_back({0, page, page * kPageTokens});
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
  options.ranks = 2;
  options.kv_memory_bytes = 8 << 20;
  options.rows_per_rank = 64;
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
  limits.page_tokens = kPageTokens;
  limits.vocabulary = model_.config.vocabulary;
  limits.layers = model_.layers();
  limits.kv_heads = model_.config.kv_heads;
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
