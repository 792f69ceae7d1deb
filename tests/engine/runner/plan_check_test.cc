#include "engine/runner/plan_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

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
  EXPECT_EQ(ranks_->state(), RanksState::kUp);
  EXPECT_EQ(Refusal([](auto&) {}), "");
}

}  // namespace
}  // namespace annulus::testing
