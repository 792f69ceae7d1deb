#include "engine/runner/plan_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

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

TEST(PlanCheck, EvidenceIsOfHeadsWithFullAttentionAndOfRowsThatAreThere) {
  OpTable ops;
  ops.block_scores = [](Stream&, const BlockScoresParams&) { return absl::OkStatus(); };
  RankModel model = TwoGroups();
  model.ops = &ops;
  model.config.layers.resize(2);
  for (LayerConfig& layer : model.config.layers) layer.attention.heads = 4;
  model.group_of_layer = {0, 1};
  const auto refusal = [&](const std::vector<LayerHead>& heads) {
    SequenceTerms terms;
    terms.evidence = {heads, {{4, 10}}};
    return std::string(CheckEvidence(terms, model).message());
  };
  EXPECT_EQ(refusal({{0, 0}, {0, 3}}), "");
  EXPECT_TRUE(CheckEvidence(SequenceTerms(), model).ok());
  EXPECT_THAT(refusal({}), HasSubstr("cannot give"));
  EXPECT_THAT(refusal({{0, 4}}), HasSubstr("head 4 in layer 0"));
  EXPECT_THAT(refusal({{1, 0}}), HasSubstr("head 0 in layer 1"));  // has a window
  EXPECT_THAT(refusal({{2, 0}}), HasSubstr("in layer 2"));
  ops.block_scores = nullptr;
  EXPECT_THAT(refusal({{0, 0}}), HasSubstr("cannot give"));

  RankSequence sequence = TwoPages();
  PlanItem item = Prompt();
  item.sampled = true;
  item.begin = 19;
  item.tokens = {1};
  item.runs = {{3, 19, 1}};
  const auto check = [&](int32_t end) {
    sequence.evidence = {{{0, 0}}, {{4, end}}};
    return std::string(CheckItem(item, sequence, TwoGroups(), 1).message());
  };
  EXPECT_EQ(check(20), "");
  EXPECT_THAT(check(21), HasSubstr("evidence of position 20 for row 19"));
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

TEST(PlanCheck, ARowForTheLastTokenNeedsOne) {
  PlanItem item = Prompt();
  item.begin = 19;
  item.runs = {{3, 19, 1}};
  item.tokens = {kLastSampled};
  item.sampled = true;
  RankSequence sequence = TwoPages();
  SamplingParams params;
  params.seed = 1;
  sequence.sampler = std::make_unique<Sampler>(params, 100, std::vector<int32_t>());
  EXPECT_THAT(CheckItem(item, sequence, TwoGroups(), 3).message(), HasSubstr("none was sampled"));
  EXPECT_TRUE(CheckItem(item, sequence, TwoGroups(), 1).ok());  // it needs no token
  sequence.last_sampled = 7;
  EXPECT_TRUE(CheckItem(item, sequence, TwoGroups(), 3).ok());
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

}  // namespace
}  // namespace annulus::testing
