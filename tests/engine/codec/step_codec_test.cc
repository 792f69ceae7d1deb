#include "engine/codec/step_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/engine/codec/plan_example.h"

namespace annulus {
namespace {

using ::testing::HasSubstr;

using testing::Assignment;
using testing::kVocabulary;
using testing::Limits;
using testing::Plan;
using testing::Setup;

std::string Bytes(const StepPlan& plan) { return EncodePlan(plan, Limits()).value(); }
std::string Bytes(const RankResult& result) { return EncodeResult(result, Limits()).value(); }

RankResult Result() {
  RankResult result;
  result.status = absl::UnavailableError("a peer was silent");
  result.status.SetPayload("cause", absl::Cord("rank 2"));
  SampledToken token;
  token.sequence = 9;
  token.token = 999;
  token.ends_text = true;
  token.logprob = TokenLogprob{999, -0.125f, {{999, -0.125f}, {1, -3.5f}}, {}, {}};
  token.shares = {{4, 64, 0.5F}, {70, 71, 0.25F}};
  result.tokens.push_back(token);
  token.shares.clear();
  token.sequence = 10;
  token.status = absl::InternalError("NaN");
  token.logprob.reset();
  result.tokens.push_back(token);
  result.logits.push_back({9, 35, std::vector<float>(kVocabulary, -1.0f / 3)});
  result.scored.push_back({9, 33, TokenLogprob{12, -0.5f, {{7, -0.25f}, {12, -0.5f}}, {}, {}}});
  result.ring = {0.1, 0.2, 0.3, 4, 5, 6};
  LayerAttention part;
  part.sequence = 9;
  part.layer = 3;
  part.begin = 32;
  part.pairs = {1.0 / 3, 2.0 / 3};
  part.estimated = 0.5;
  part.estimates = 12;
  part.covered = {0.25, 1};
  part.probes = 16;
  part.contract = 0.95;
  part.raised = true;
  part.dense = true;
  part.estimate_seconds = 1e-6;
  part.rows = {32, 33};
  part.lists = BlockPattern{{2, 2, 1}, 16, {0, 2, 3}, {0, 1, 1}};
  part.branches = {{128, 1}, {512, 4}};
  result.attention.push_back(part);
  return result;
}

TEST(StepCodec, EveryFieldComesBack) {
  const auto plan = DecodePlan(Bytes(Plan()), Limits());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(*plan, Plan());
  const auto result = DecodeResult(Bytes(Result()), Plan(), Limits());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(*result, Result());
  EXPECT_EQ(DecodePlan(Bytes(StepPlan()), Limits()).value(), StepPlan());
  EXPECT_EQ(DecodeResult(Bytes(RankResult()), {}, Limits()).value(), RankResult());
}

// Also the entries of maps, which protobuf writes in any order unless told otherwise.
TEST(StepCodec, EqualPlansGiveEqualBytes) {
  StepPlan plan = Plan();
  auto& bias = plan.updates.front().setup->params.logit_bias;
  for (int32_t token = 0; token < 100; ++token) bias[token] = 1;
  EXPECT_EQ(Bytes(plan), Bytes(plan));
}

TEST(StepCodec, PlansThatCannotRunAreRefused) {
  const auto refusal = [](const std::function<void(StepPlan&)>& change) {
    StepPlan plan = Plan();
    change(plan);
    return std::string(DecodePlan(Bytes(plan), Limits()).status().message());
  };
  const auto terms = [](StepPlan& plan) -> SequenceTerms& { return *plan.updates[0].terms; };
  EXPECT_THAT(refusal([&](StepPlan& p) { terms(p).ring = {0, 3}; }), HasSubstr("the rank 3"));
  EXPECT_THAT(refusal([&](StepPlan& p) { terms(p).ring = {2, 2}; }), HasSubstr("twice"));
  EXPECT_THAT(refusal([&](StepPlan& p) { terms(p).ring = {}; }), HasSubstr("outside its ring"));
  EXPECT_THAT(refusal([&](StepPlan& p) { terms(p).home = 1; }), HasSubstr("outside its ring"));
  EXPECT_THAT(refusal([&](StepPlan& p) { terms(p).summaries[0][1] = {70}; }),
              HasSubstr("the page 70"));
  EXPECT_THAT(refusal([&](StepPlan& p) { terms(p).summaries.pop_back(); }), HasSubstr("groups"));
  EXPECT_THAT(refusal([&](StepPlan& p) { terms(p).attention->policy.tau = 2; }), HasSubstr("tau"));
  EXPECT_THAT(refusal([&](StepPlan& p) { terms(p).attention->policy.kind = PolicyKind::kAuto; }),
              HasSubstr("the attention 'auto:block=64;"));
  EXPECT_THAT(refusal([&](StepPlan& p) {
                terms(p).attention = ParsePolicy("dilated:segments=auto").value();
              }),
              HasSubstr("'dilated:block=64,segments=auto', which is not resolved"));
  const auto heads = [&](StepPlan& p) -> std::vector<LayerHead>& {
    return terms(p).evidence->heads;
  };
  EXPECT_THAT(refusal([&](StepPlan& p) { heads(p)[2].layer = 6; }), HasSubstr("the layer 6"));
  EXPECT_THAT(refusal([&](StepPlan& p) { heads(p)[0].head = -1; }), HasSubstr("the head -1"));
  EXPECT_THAT(refusal([&](StepPlan& p) { heads(p)[1] = heads(p)[0]; }), HasSubstr("out of order"));
  const auto ranges = [&](StepPlan& p) -> std::vector<RowRange>& {
    return terms(p).evidence->ranges;
  };
  EXPECT_THAT(refusal([&](StepPlan& p) { ranges(p)[1].begin = 69; }), HasSubstr("position 69"));
  EXPECT_THAT(refusal([&](StepPlan& p) { ranges(p)[0].end = 4; }), HasSubstr("the end 4"));
  EXPECT_THAT(refusal([&](StepPlan& p) { p.stretch = {-1, 6, true}; }), HasSubstr("first layer"));
  EXPECT_THAT(refusal([&](StepPlan& p) { p.stretch = {3, 3, false}; }), HasSubstr("end of layers"));
  EXPECT_THAT(refusal([&](StepPlan& p) { p.stretch = {3, 7, true}; }), HasSubstr("end of layers"));
  EXPECT_THAT(refusal([&](StepPlan& p) { p.stretch = {3, 6, false}; }), HasSubstr("last layer"));
  EXPECT_THAT(refusal([&](StepPlan& p) { p.stretch = {3, 5, true}; }), HasSubstr("last layer"));
  const auto tables = [](StepPlan& plan) -> std::vector<TableDelta>& {
    return plan.updates[0].tables;
  };
  EXPECT_THAT(refusal([&](StepPlan& p) { tables(p).pop_back(); }), HasSubstr("groups"));
  EXPECT_THAT(refusal([&](StepPlan& p) { tables(p)[0].append[0].page = 50; }),
              HasSubstr("the page 50"));
  EXPECT_THAT(refusal([&](StepPlan& p) { tables(p)[0].append[0].page = -1; }),
              HasSubstr("the page -1"));
  EXPECT_THAT(refusal([&](StepPlan& p) { tables(p)[0].append[1].first_position = 64; }),
              HasSubstr("gap"));
  EXPECT_THAT(refusal([&](StepPlan& p) { tables(p)[0].drop_front = -1; }), HasSubstr("dropped"));
  // The page behind it would begin where no position is.
  EXPECT_THAT(refusal([&](StepPlan& p) {
                tables(p)[0].append = {{0, 49, INT32_MAX - 15}};
              }),
              HasSubstr("the position 2147483632"));
  const auto setup = [](StepPlan& plan) -> SamplingSetup& { return *plan.updates[0].setup; };
  EXPECT_THAT(refusal([&](StepPlan& p) { setup(p).params.seed.reset(); }), HasSubstr("seed"));
  EXPECT_THAT(refusal([&](StepPlan& p) { setup(p).vocabulary = 9; }), HasSubstr("vocabulary"));
  EXPECT_THAT(refusal([&](StepPlan& p) { setup(p).prompt[0] = 1000; }), HasSubstr("1000"));
  EXPECT_THAT(refusal([&](StepPlan& p) {
                Machine machine = *setup(p).output;
                machine.thinking_end[1] = -1;
                setup(p).output = std::move(machine);
              }),
              HasSubstr("the token id -1"));
  EXPECT_THAT(refusal([&](StepPlan& p) { setup(p).params.top_p = 0; }), HasSubstr("top_p"));
  const auto item = [](StepPlan& plan) -> PlanItem& { return plan.items[0]; };
  EXPECT_THAT(refusal([&](StepPlan& p) { item(p).end = 32; }), HasSubstr("end of rows"));
  EXPECT_THAT(refusal([&](StepPlan& p) { item(p).tokens.pop_back(); }), HasSubstr("tokens"));
  EXPECT_THAT(refusal([&](StepPlan& p) { item(p).tokens[0] = -1; }), HasSubstr("token id -1"));
  EXPECT_THAT(refusal([&](StepPlan& p) { item(p).runs.pop_back(); }), HasSubstr("cover"));
  EXPECT_THAT(refusal([&](StepPlan& p) { item(p).runs[1].first_position = 34; }), HasSubstr("gap"));
  EXPECT_THAT(refusal([&](StepPlan& p) { item(p).runs[0].count = INT32_MAX; }), HasSubstr("gap"));
  EXPECT_THAT(refusal([&](StepPlan& p) {
                item(p).logits_positions = {35, 33};
              }),
              HasSubstr("row of logits"));
  EXPECT_THAT(refusal([&](StepPlan& p) {
                p.items[1].end += kMostSampledRows;
                p.items[1].tokens.resize(1 + kMostSampledRows, 1);
                p.items[1].runs[0].count += kMostSampledRows;
              }),
              HasSubstr("the number of rows to sample 17; allowed are 1 to 16"));
  EXPECT_THAT(refusal([&](StepPlan& p) { p.items[1].mode = RingMode::kPassKv; }),
              HasSubstr("not pass-Q"));
  EXPECT_THAT(refusal([&](StepPlan& p) { p.items[2].sequence = 9; }), HasSubstr("two items"));
  EXPECT_THAT(refusal([&](StepPlan& p) {
                item(p).logits_positions.clear();
                item(p).score.reset();
              }),
              HasSubstr("out of order"));
  EXPECT_THAT(refusal([&](StepPlan& p) { item(p).score->alternatives = 21; }),
              HasSubstr("alternatives 21"));
  EXPECT_THAT(refusal([&](StepPlan& p) { item(p).score->next_token = kVocabulary; }),
              HasSubstr("token id 1000"));
  EXPECT_THAT(refusal([&](StepPlan& p) { p.items[1].score.emplace(); }),
              HasSubstr("scores its prompt"));
}

TEST(StepCodec, ResultsThatCannotBeAreRefused) {
  const auto refusal = [](const std::function<void(RankResult&)>& change) {
    RankResult result = Result();
    change(result);
    return std::string(DecodeResult(Bytes(result), Plan(), Limits()).status().message());
  };
  EXPECT_THAT(refusal([](RankResult& r) { r.tokens[0].token = kVocabulary; }),
              HasSubstr("token id 1000"));
  EXPECT_THAT(refusal([](RankResult& r) { r.tokens[0].logprob->token_id = -1; }),
              HasSubstr("token id -1"));
  EXPECT_THAT(refusal([](RankResult& r) { r.logits[0].logits.pop_back(); }),
              HasSubstr("another vocabulary"));
  EXPECT_THAT(refusal([](RankResult& r) { r.tokens[1].sequence = 9; }), HasSubstr("no item asked"));
  EXPECT_THAT(refusal([](RankResult& r) { r.logits[0].position = 34; }),
              HasSubstr("no item asked"));
  EXPECT_THAT(refusal([](RankResult& r) { r.attention[0].begin = 33; }), HasSubstr("no item has"));
  EXPECT_THAT(refusal([](RankResult& r) { r.attention[0].rows[1] = 36; }),
              HasSubstr("reported row 36"));
  EXPECT_THAT(refusal([](RankResult& r) { r.attention[0].lists.Own().shape.first_block = 1; }),
              HasSubstr("block of a row"));
  EXPECT_THAT(refusal([](RankResult& r) { r.attention[0].lists.Own().chosen[0] = 3; }),
              HasSubstr("key block 3"));
  EXPECT_THAT(refusal([](RankResult& r) { r.attention[0].layer = -1; }), HasSubstr("layer -1"));
  EXPECT_THAT(refusal([](RankResult& r) { r.attention[0].lists.Own().offsets[1] = 4; }),
              HasSubstr("offset"));
  EXPECT_THAT(refusal([](RankResult& r) { r.attention[0].lists.Own().offsets.pop_back(); }),
              HasSubstr("offsets"));
  EXPECT_THAT(refusal([](RankResult& r) { r.attention[0].branches[0].rate = 0; }),
              HasSubstr("rate"));
  EXPECT_THAT(refusal([](RankResult& r) { r.logits.push_back(r.logits[0]); }),
              HasSubstr("no item asked"));
  EXPECT_THAT(refusal([](RankResult& r) { r.scored[0].position = 36; }),
              HasSubstr("no item asked"));
  EXPECT_THAT(refusal([](RankResult& r) { r.scored.push_back(r.scored[0]); }),
              HasSubstr("no item asked"));
  EXPECT_THAT(
      refusal([](RankResult& r) { r.scored[0].logprob.alternatives.emplace_back(1, -1.0f); }),
      HasSubstr("no item asked"));
  EXPECT_THAT(refusal([](RankResult& r) { r.scored[0].logprob.token_id = -1; }),
              HasSubstr("token id -1"));
  EXPECT_THAT(refusal([](RankResult& r) { r.tokens[0].shares[1].begin = 63; }),
              HasSubstr("the position 63"));
  EXPECT_THAT(refusal([](RankResult& r) { r.tokens[0].shares[1].end = 70; }),
              HasSubstr("the end 70"));
  EXPECT_THAT(refusal([](RankResult& r) {
                auto& shares = r.tokens[0].shares;
                while (shares.size() <= kMostEvidenceShares) {
                  shares.push_back({shares.back().end, shares.back().end + 1, 0.5F});
                }
              }),
              HasSubstr("the number of shares 1025"));
}

// One of these in a sum would stay in it for as long as the coordinator runs.
// Its rows are not computed yet.
TEST(StepCodec, AnswersOfASuspendedChunkAreRefused) {
  StepPlan plan = Plan();
  plan.stretch = {2, 5, false};
  const auto refusal = [&](const RankResult& result) {
    return std::string(DecodeResult(Bytes(result), plan, Limits()).status().message());
  };
  RankResult result;
  result.ring = Result().ring;
  EXPECT_EQ(refusal(result), "");
  result.tokens = {Result().tokens[0]};
  EXPECT_THAT(refusal(result), HasSubstr("chunk that is suspended"));
  result = RankResult();
  result.logits = Result().logits;
  EXPECT_THAT(refusal(result), HasSubstr("chunk that is suspended"));
  result = RankResult();
  result.scored = Result().scored;
  EXPECT_THAT(refusal(result), HasSubstr("chunk that is suspended"));
  result = RankResult();
  result.attention = Result().attention;
  EXPECT_THAT(refusal(result), HasSubstr("chunk that is suspended"));
}

TEST(StepCodec, NumbersThatCannotBeAddedUpAreRefused) {
  using Change = std::function<void(RankResult&, double)>;
  const std::vector<Change> counters = {
      [](RankResult& r, double x) { r.ring.compute_seconds = x; },
      [](RankResult& r, double x) { r.ring.wait_seconds = x; },
      [](RankResult& r, double x) { r.ring.send_seconds = x; },
      [](RankResult& r, double x) { r.tokens[0].shares[1].share = static_cast<float>(x); },
      [](RankResult& r, double x) { r.attention[0].pairs.chosen = x; },
      [](RankResult& r, double x) { r.attention[0].pairs.causal = x; },
      [](RankResult& r, double x) { r.attention[0].contract = x; },
      [](RankResult& r, double x) { r.attention[0].estimate_seconds = x; }};
  for (size_t i = 0; i < counters.size(); ++i) {
    for (const double value : {std::numeric_limits<double>::quiet_NaN(),
                               std::numeric_limits<double>::infinity(), -1e-9}) {
      SCOPED_TRACE(::testing::Message() << "counter " << i << ", " << value);
      RankResult result = Result();
      counters[i](result, value);
      const auto decoded = DecodeResult(Bytes(result), Plan(), Limits());
      EXPECT_THAT(decoded.status().message(), HasSubstr("allowed are finite numbers from 0"));
    }
  }
  RankResult result = Result();
  result.ring.bytes_pass_kv = -1;
  EXPECT_THAT(DecodeResult(Bytes(result), Plan(), Limits()).status().message(),
              HasSubstr("the bytes of a ring"));
  for (const bool alternative : {false, true}) {
    result = Result();
    TokenLogprob& logprob = *result.tokens[0].logprob;
    (alternative ? logprob.alternatives[1].second : logprob.logprob) = std::nanf("");
    EXPECT_THAT(DecodeResult(Bytes(result), Plan(), Limits()).status().message(),
                HasSubstr("not a number"));
  }
}

// Neither side makes, sends or parses a message that is longer than the limit.
TEST(StepCodec, LongMessagesAreRefusedOnBothSides) {
  const std::string plan = Bytes(Plan());
  const std::string result = Bytes(Result());
  CodecLimits limits = Limits();
  limits.bytes = plan.size();
  EXPECT_EQ(EncodePlan(Plan(), limits).status(), absl::OkStatus());
  EXPECT_EQ(DecodePlan(plan, limits).status(), absl::OkStatus());
  --limits.bytes;
  EXPECT_TRUE(absl::IsResourceExhausted(EncodePlan(Plan(), limits).status()));
  EXPECT_THAT(DecodePlan(plan, limits).status().message(), HasSubstr("at most"));
  limits.bytes = result.size() - 1;
  EXPECT_TRUE(absl::IsResourceExhausted(EncodeResult(Result(), limits).status()));
  EXPECT_THAT(DecodeResult(result, Plan(), limits).status().message(), HasSubstr("at most"));
  // Its length modulo 2^32 is that of a plan: nothing may be read of it, nor is it there.
  const absl::string_view huge(plan.data(), (size_t{1} << 32) + plan.size());
  limits.bytes = std::numeric_limits<size_t>::max();
  EXPECT_THAT(DecodePlan(huge, limits).status().message(), HasSubstr("plan of 4294"));
  EXPECT_THAT(DecodeResult(huge, Plan(), limits).status().message(), HasSubstr("result of 4294"));
}

int32_t Below(std::mt19937& random, int32_t bound) {
  return static_cast<int32_t>(random() % static_cast<uint32_t>(bound));
}

PlanItem RandomItem(SequenceId sequence, bool sampled, std::mt19937& random) {
  PlanItem item;
  item.sequence = sequence;
  item.sampled = sampled;
  item.begin = Below(random, 1 << 30);
  item.end = item.begin + 1 + Below(random, sampled ? kMostSampledRows : 40);
  item.mode = sampled || Below(random, 2) == 0 ? RingMode::kPassQ : RingMode::kPassKv;
  for (int32_t row = item.begin; row < item.end; ++row) {
    item.tokens.push_back(Below(random, kVocabulary));
    if (!sampled && Below(random, 3) == 0) item.logits_positions.push_back(row);
    if (item.runs.empty() || Below(random, 4) == 0) {
      item.runs.push_back({Below(random, 3), row, 0});
    }
    ++item.runs.back().count;
  }
  if (sampled && item.tokens.size() == 1 && Below(random, 2) == 0) item.tokens = {kLastSampled};
  if (!sampled && Below(random, 3) == 0)
    item.score = {Below(random, 21), Below(random, kVocabulary)};
  return item;
}

SequenceUpdate RandomUpdate(SequenceId sequence, std::mt19937& random) {
  SequenceUpdate update;
  update.sequence = sequence;
  update.version = random();
  if (Below(random, 2) == 0) {
    SequenceTerms& terms = update.terms.emplace();
    terms.version = update.version;
    terms.ring = {0, 1, 2};
    std::shuffle(terms.ring.begin(), terms.ring.end(), random);
    terms.ring.resize(static_cast<size_t>(1 + Below(random, 3)));
    terms.home = terms.ring.back();
    if (Below(random, 2) == 0) terms.attention = Assignment();
    if (Below(random, 2) == 0) terms.summaries.resize(2);
    for (auto& group : terms.summaries) {
      for (size_t i = 0; i < terms.ring.size(); ++i) group.push_back({Below(random, 50)});
    }
    terms.report_lists = Below(random, 2) == 0;
    terms.rope_length = Below(random, 1 << 30);
  }
  if (Below(random, 2) == 0) update.setup = Setup();
  update.tables.resize(2);
  for (TableDelta& table : update.tables) {
    table.drop_front = Below(random, 1000);
    int32_t first = 16 * Below(random, 1 << 20);
    for (int32_t pages = Below(random, 5); pages > 0; --pages, first += 16) {
      table.append.push_back({Below(random, 3), Below(random, 50), first});
    }
  }
  return update;
}

StepPlan RandomPlan(std::mt19937& random) {
  StepPlan plan;
  plan.step = (uint64_t{random()} << 32) + random();
  for (int32_t n = Below(random, 4); n > 0; --n) plan.ended.push_back(random());
  const auto sequences = static_cast<SequenceId>(Below(random, 5));
  for (SequenceId sequence = 0; sequence < sequences; ++sequence) {
    plan.updates.push_back(RandomUpdate(sequence, random));
    plan.items.push_back(RandomItem(sequence, false, random));
    if (Below(random, 2) == 0) plan.items.push_back(RandomItem(sequence, true, random));
  }
  std::stable_partition(plan.items.begin(), plan.items.end(), NeedsLastLayer);
  return plan;
}

float AnyFloat(std::mt19937& random) {
  float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
  return std::isnan(value) ? -0.0f : value;  // which equals nothing, itself included
}

double AnyCount(std::mt19937& random) {
  const double value = std::abs(AnyFloat(random));
  return std::isfinite(value) ? value : 0;
}

LayerAttention RandomReport(const PlanItem& item, std::mt19937& random) {
  LayerAttention part;
  part.sequence = item.sequence;
  part.begin = item.begin;
  part.layer = Below(random, 6);
  part.pairs = {AnyCount(random), AnyCount(random)};
  part.estimates = random();
  part.covered = {AnyFloat(random)};
  for (int32_t row = item.begin; row < item.end; ++row) part.rows.push_back(row);
  const int32_t first = item.begin / 16;
  const int32_t blocks = (item.end - 1) / 16 - first + 1;
  BlockPattern& lists = part.lists.Own();
  lists.shape = {Below(random, 2) == 0 ? 1 : 2, first, blocks};
  lists.block_tokens = 16;
  lists.offsets = {0};
  for (int32_t list = 0; list < lists.shape.head_groups * blocks; ++list) {
    for (int32_t n = Below(random, 4); n > 0; --n) lists.chosen.push_back(Below(random, first + 1));
    lists.offsets.push_back(std::ssize(lists.chosen));
  }
  return part;
}

RankResult RandomResult(const StepPlan& plan, std::mt19937& random) {
  RankResult result;
  if (Below(random, 4) == 0) result.status = absl::InternalError("a rank failed");
  result.ring = {AnyCount(random), AnyCount(random), 0, Below(random, 1 << 30), 7, 1};
  for (const PlanItem& item : plan.items) {
    if (item.sampled) {
      const TokenLogprob logprob{Below(random, kVocabulary), AnyFloat(random), {}, {}, {}};
      result.tokens.push_back({item.sequence, Below(random, kVocabulary), false, logprob, {}});
      for (int32_t n = Below(random, 4); n > 0; --n) {
        const int32_t begin = 64 * std::ssize(result.tokens.back().shares);
        result.tokens.back().shares.push_back({begin, begin + 64, 0.25F});
      }
    }
    if (item.score.has_value()) {
      TokenLogprob logprob{Below(random, kVocabulary), AnyFloat(random), {}, {}, {}};
      logprob.alternatives.resize(static_cast<size_t>(item.score->alternatives));
      result.scored.push_back({item.sequence, item.begin, logprob});
    }
    for (const int32_t position : item.logits_positions) {
      auto& row = result.logits.emplace_back(item.sequence, position, std::vector<float>());
      while (row.logits.size() < kVocabulary) row.logits.push_back(AnyFloat(random));
    }
    result.attention.push_back(RandomReport(item, random));
  }
  return result;
}

TEST(StepCodec, RandomPlansAndResultsComeBackEqual) {
  const uint32_t seed = 20240607;
  std::mt19937 random(seed);
  for (int turn = 0; turn < 300; ++turn) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed << ", turn " << turn);
    const StepPlan plan = RandomPlan(random);
    const auto decoded = DecodePlan(Bytes(plan), Limits());
    ASSERT_EQ(decoded.status(), absl::OkStatus());
    ASSERT_EQ(*decoded, plan);
    const RankResult result = RandomResult(plan, random);
    const auto answered = DecodeResult(Bytes(result), plan, Limits());
    ASSERT_EQ(answered.status(), absl::OkStatus());
    ASSERT_EQ(*answered, result);
  }
}

// Whatever bytes come: a value that holds every law above, or a refusal.
TEST(StepCodec, MutatedBytesNeverEndTheProcess) {
  const uint32_t seed = 20240607;
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const std::vector<std::string> originals = {Bytes(Plan()), Bytes(Result())};
  int refused = 0;
  for (int turn = 0; turn < 40'000; ++turn) {
    std::string bytes = originals[static_cast<size_t>(turn % 2)];
    for (uint32_t n = random() % 4 + 1; n > 0 && !bytes.empty(); --n) {
      const size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes.erase(at, random() % 8 + 1);
          break;
        case 2:
          bytes.insert(at, bytes.substr(random() % bytes.size(), random() % 16));
          break;
        default:
          bytes.resize(at);
      }
    }
    const auto plan = DecodePlan(bytes, Limits());
    if (plan.ok()) {
      EXPECT_EQ(DecodePlan(Bytes(*plan), Limits()).status(), absl::OkStatus());
    }
    const auto result = DecodeResult(bytes, Plan(), Limits());
    if (!plan.ok() && !result.ok()) ++refused;
  }
  EXPECT_GT(refused, 4000);
}

}  // namespace
}  // namespace annulus
