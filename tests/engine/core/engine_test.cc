// The whole engine behind engine/api.h, with the builtin recall model.

#include <algorithm>
#include <bit>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "bench/demo/document.h"
#include "engine/api.h"
#include "engine/base/sha256.h"
#include "gtest/gtest.h"
#include "kernels/base/sanitizers.h"
#include "nlohmann/json.hpp"
#include "tests/engine/core/engine_fixture.h"
#include "tests/support/collecting_sink.h"
#include "tests/support/manual_clock.h"
#include "tests/support/test_data.h"
#include "tests/support/thinned.h"

namespace annulus {
namespace {

using testing::CollectingSink;
using testing::ManualClock;
using namespace std::chrono_literals;

class EngineTest : public testing::EngineFixture {};

TEST_F(EngineTest, FindsFactsAtEveryRankCountAloneAndTogether) {
  // Three chunks under sanitizers, which make attending slow.
  const bench::DemoDocument document = Document(kSanitized ? 1500 : 6000, 3);
  std::vector<std::pair<int, RingMode>> rings;
  for (const int ranks : {1, 2, 3, 4}) {
    for (const RingMode mode : {RingMode::kPassKv, RingMode::kPassQ, RingMode::kAuto}) {
      rings.emplace_back(ranks, mode);
    }
  }
  for (const auto& [ranks, mode] : testing::ThinnedIfSanitized(rings, 4)) {
    EngineOptions options = Options(ranks);
    options.ring_mode = mode;
    auto engine = Make(options);
    std::vector<std::shared_ptr<CollectingSink>> sinks;
    for (const bench::DemoFact& fact : document.facts) {
      RequestSpec spec = Spec(*engine, document.text + fact.cue);
      spec.sampling.stop = {"\n"};
      sinks.push_back(Start(*engine, std::move(spec)));
    }
    for (size_t i = 0; i < sinks.size(); ++i) {
      const auto done = sinks[i]->Wait();
      ASSERT_TRUE(done.has_value());
      ASSERT_TRUE(done->status.ok()) << done->status;
      EXPECT_EQ(sinks[i]->text(), document.facts[i].answer) << ranks << " ranks";
      EXPECT_EQ(done->finish_reason, FinishReason::kStop);
      EXPECT_EQ(done->matched_stop, "\n");
      EXPECT_EQ(done->attention.ring_degree, ranks);
      EXPECT_GT(done->timings.time_to_first_token, 0);
      EXPECT_GE(done->timings.total, done->timings.time_to_first_token);
    }
    EXPECT_EQ(PagesHeldSoon(*engine), 0);
  }
}

// Clients cannot read a message with text that is not UTF-8.
TEST_F(EngineTest, DetokenizedTextIsUtf8WhateverTheIds) {
  const auto engine = Make(Options(1));
  const auto text = [&](std::vector<int32_t> ids) {
    return engine->Detokenize(ids, false, CancelFlag::Never()).value();
  };
  EXPECT_EQ(text({'a', 0xC3, 0xA4}), "a\u00e4");
  EXPECT_EQ(text({'a', 0xC3}), "a\uFFFD");
  EXPECT_EQ(text({0x80, 'b', 0xF0, 0x9F, 0x98}), "\uFFFDb\uFFFD");
}

TEST_F(EngineTest, ProgressGrowsToTheWholePrompt) {
  auto engine = Make(Options());
  const bench::DemoDocument document = Document(4000, 4);
  RequestSpec spec = Spec(*engine, document.text, 2);
  const int64_t total = static_cast<int64_t>(spec.prompt.size());
  auto sink = Start(*engine, std::move(spec));
  ASSERT_TRUE(sink->Wait().has_value());
  int64_t last = 0;
  for (const PromptProgress& progress : sink->progress()) {
    EXPECT_EQ(progress.total, total);
    EXPECT_GE(progress.processed, last);
    EXPECT_EQ(progress.ring_degree, 2);
    last = progress.processed;
  }
  EXPECT_EQ(last, total);
  EXPECT_GT(sink->progress().size(), 4u);  // chunks of 512
  EXPECT_EQ(sink->done_calls(), 1);
}

// A prompt that ends with an answer has that answer's bits, on any ring, though parts of it are
// cached.
TEST_F(EngineTest, PromptsHaveTheLogProbabilitiesThatAnswersHad) {
  const bench::DemoDocument document = Document(kSanitized ? 700 : 1500, 4);
  for (const int ranks : {1, 3}) {
    auto engine = Make(Options(ranks));
    RequestSpec spec = Spec(*engine, document.text + document.facts[0].cue, 12);
    spec.sampling.logprobs = 3;
    spec.sampling.ignore_eos = true;
    const auto answered = Start(*engine, spec);
    ASSERT_TRUE(answered->Wait().has_value());
    EXPECT_TRUE(answered->prompt_logprobs().empty());
    const std::vector<TokenLogprob> expected = answered->logprobs();
    const size_t before = spec.prompt.size();
    const std::vector<int32_t> ids = answered->ids();
    spec.prompt.insert(spec.prompt.end(), ids.begin(), ids.end());
    spec.sampling.prompt_logprobs = 3;
    spec.sampling.max_tokens = 1;
    const auto scored = Start(*engine, spec);
    const auto done = scored->Wait();
    ASSERT_TRUE(done.has_value() && done->status.ok());
    EXPECT_EQ(done->usage.cached_tokens, 0);
    const std::vector<TokenLogprob> logprobs = scored->prompt_logprobs();
    ASSERT_EQ(logprobs.size(), spec.prompt.size() - 1);
    for (size_t i = 0; i < logprobs.size(); ++i) {
      ASSERT_EQ(logprobs[i].token_id, spec.prompt[i + 1]);
    }
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(logprobs[before - 1 + i], expected[i])
          << "token " << i << ", " << ranks << " ranks";
    }
    EXPECT_EQ(PagesHeldSoon(*engine), 0);
  }
}

TEST_F(EngineTest, CancelStopsWithinAChunkAndFreesPages) {
  auto engine = Make(Options());
  auto sink = std::make_shared<CollectingSink>();
  const RequestId id = engine->Submit(Spec(*engine, std::string(200'000, 'x')), sink).value();
  ASSERT_TRUE(sink->WaitProgress(1));
  engine->Cancel(id);
  engine->Cancel(id);
  const auto done = sink->Wait();
  ASSERT_TRUE(done.has_value());
  EXPECT_EQ(done->status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(done->finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(PagesHeldSoon(*engine), 0);
  EXPECT_LT(sink->progress().back().processed, 200'000);
}

TEST_F(EngineTest, DeadlinesEndWaitingAndRunningRequests) {
  EngineOptions options = Options();
  options.max_running = 1;
  ManualClock clock;
  auto engine = Make(options, clock);
  RequestSpec running = Spec(*engine, std::string(200'000, 'x'));
  running.deadline = clock.Now() + 20s;
  const auto a = Start(*engine, std::move(running));
  ASSERT_TRUE(a->WaitProgress(1));
  RequestSpec waiting = Spec(*engine, "abc");
  waiting.deadline = clock.Now() + 10s;
  RequestSpec late = Spec(*engine, "abc");
  late.deadline = clock.Now();
  const auto b = Start(*engine, std::move(waiting));
  const auto c = Start(*engine, std::move(late));
  // Each ends at its time, and not before.
  const std::vector<std::shared_ptr<CollectingSink>> in_order = {c, b, a};
  for (size_t i = 0; i < in_order.size(); ++i) {
    const auto done = in_order[i]->Wait();
    ASSERT_TRUE(done.has_value());
    EXPECT_EQ(done->status.code(), absl::StatusCode::kDeadlineExceeded);
    for (size_t next = i + 1; next < in_order.size(); ++next) {
      EXPECT_EQ(in_order[next]->done_calls(), 0);
    }
    clock.Advance(10s);
  }
  EXPECT_EQ(PagesHeldSoon(*engine), 0);
}

TEST_F(EngineTest, ASlowReaderStopsOnlyItself) {
  ManualClock clock;
  auto engine = Make(Options(), clock);
  RequestSpec spec = Spec(*engine, "some words, some words, ", 5000);
  spec.sampling.ignore_eos = true;
  auto slow = std::make_shared<CollectingSink>();
  ASSERT_TRUE(engine->Submit(spec, slow).ok());
  ASSERT_TRUE(slow->WaitTokens(3));
  slow->set_has_room(false);
  auto other = Start(*engine, Spec(*engine, "some words, some words, ", 10));
  EXPECT_TRUE(other->Wait()->status.ok());
  EXPECT_EQ(slow->done_calls(), 0);
  EXPECT_TRUE(clock.AdvanceUntil([&] { return slow->done_calls() > 0; }, 1s));
  const auto done = slow->Wait();
  ASSERT_TRUE(done.has_value());
  EXPECT_EQ(done->status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_LT(slow->ids().size(), 5000u);
  EXPECT_EQ(PagesHeldSoon(*engine), 0);
}

// Every place is taken by a request that nobody reads; the next ones are answered all the same, and
// whoever reads again gets what it would have got alone.
TEST_F(EngineTest, ReadersThatStopReadingHoldNoPlaceOfOthers) {
  constexpr int kPlaces = 3;
  EngineOptions options = Options();
  options.max_running = kPlaces;
  auto engine = Make(options);
  const auto spec = [&](int i) {
    RequestSpec request = Spec(*engine, Document(500, 70 + i).text, 60);
    request.sampling.temperature = 1;
    request.sampling.seed = 7 + i;
    request.sampling.ignore_eos = true;
    return request;
  };
  std::vector<std::vector<int32_t>> alone;
  for (int i = 0; i < kPlaces; ++i) {
    auto sink = Start(*engine, spec(i));
    ASSERT_TRUE(sink->Wait()->status.ok());
    alone.push_back(sink->ids());
  }
  std::vector<std::shared_ptr<CollectingSink>> unread;
  for (int i = 0; i < kPlaces; ++i) {
    unread.push_back(std::make_shared<CollectingSink>());
    unread.back()->set_full_after(5 + 7 * i);
    ASSERT_TRUE(engine->Submit(spec(i), unread.back()).ok());
  }
  for (int i = 0; i < kPlaces; ++i) ASSERT_TRUE(unread[i]->WaitTokens(5 + 7 * i));
  for (int i = 0; i < 2 * kPlaces; ++i) {
    const auto fresh = Start(*engine, Spec(*engine, "some words, some words, ", 10));
    const auto done = fresh->Wait(20);
    ASSERT_TRUE(done.has_value() && done->status.ok()) << i;
  }
  for (const auto& sink : unread) {
    EXPECT_EQ(sink->done_calls(), 0);
    sink->set_has_room(true);
  }
  for (int i = 0; i < kPlaces; ++i) {
    const auto done = unread[i]->Wait();
    ASSERT_TRUE(done.has_value() && done->status.ok());
    EXPECT_EQ(unread[i]->ids(), alone[i]) << i;
  }
  EXPECT_EQ(PagesHeldSoon(*engine), 0);
}

TEST_F(EngineTest, AFullQueueRefusesWithARetryHint) {
  EngineOptions options = Options();
  options.max_running = 1;
  options.max_waiting = 2;
  auto engine = Make(options);
  std::vector<std::pair<RequestId, std::shared_ptr<CollectingSink>>> taken;
  absl::Status refused;
  for (int i = 0; i < 10 && refused.ok(); ++i) {
    auto sink = std::make_shared<CollectingSink>();
    const auto id = engine->Submit(Spec(*engine, std::string(100'000, 'x')), sink);
    if (id.ok()) {
      taken.emplace_back(*id, sink);
    } else {
      refused = id.status();
    }
  }
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(refused.GetPayload(kRetryPayload).has_value());
  for (const auto& [id, sink] : taken) engine->Cancel(id);
  for (const auto& [id, sink] : taken) EXPECT_TRUE(sink->Wait().has_value());
  // The queue is free again.
  EXPECT_TRUE(Start(*engine, Spec(*engine, "abc", 1))->Wait()->status.ok());
}

TEST_F(EngineTest, RefusesWhatCanNeverFitWithNumbers) {
  EngineOptions options = Options();
  options.kv_memory_bytes = 4 << 20;
  options.max_context = 1'000'000;
  auto engine = Make(options);
  RequestSpec spec = Spec(*engine, "x", 500'000);
  const absl::Status memory = engine->Validate(spec);
  EXPECT_EQ(memory.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(memory.GetPayload(kLimitPayload), absl::Cord("answer"));
  EXPECT_EQ(memory.GetPayload(kFieldPayload), absl::Cord("sampling.max_tokens"));
  EXPECT_NE(memory.message().find("500001 tokens need"), absl::string_view::npos) << memory;
  spec.sampling.max_tokens = 1'000'000;
  const absl::Status context = engine->Validate(spec);
  EXPECT_EQ(context.code(), absl::StatusCode::kOutOfRange);
  EXPECT_NE(context.message().find("999999"), absl::string_view::npos) << context;
  EXPECT_EQ(context.GetPayload(kLimitPayload), absl::Cord("context"));
  EXPECT_EQ(context.GetPayload(kFieldPayload), absl::Cord("sampling.max_tokens"));
  RequestSpec prompt = Spec(*engine, std::string(500'000, 'x'), 1);
  EXPECT_EQ(engine->Validate(prompt).GetPayload(kLimitPayload), absl::Cord("memory"));
  EXPECT_EQ(engine->Validate(prompt).GetPayload(kFieldPayload), absl::Cord("input"));
  spec.sampling.max_tokens = 1;
  for (const int32_t id : {-1, 257, INT32_MAX}) {
    spec.prompt = {1, id};
    const absl::Status bad = engine->Validate(spec);
    EXPECT_EQ(bad.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(bad.message().find("index 1"), absl::string_view::npos) << bad;
  }
  spec.prompt = {};
  EXPECT_EQ(engine->Validate(spec).GetPayload(kFieldPayload), absl::Cord("input"));
  spec.prompt = {1};
  spec.sampling.top_p = 0;
  EXPECT_EQ(engine->Validate(spec).GetPayload(kFieldPayload), absl::Cord("sampling.top_p"));
  auto sink = std::make_shared<CollectingSink>();
  EXPECT_FALSE(engine->Submit(spec, sink).ok());
  EXPECT_EQ(sink->done_calls(), 0);
}

TEST_F(EngineTest, SeedsRepeatAndLogprobsAreGiven) {
  auto engine = Make(Options());
  RequestSpec spec = Spec(*engine, "abcabcabc", 40);
  spec.sampling.temperature = 2;
  spec.sampling.seed = 42;
  spec.sampling.logprobs = 3;
  spec.sampling.ignore_eos = true;
  const auto a = Start(*engine, spec);
  const auto b = Start(*engine, spec);
  ASSERT_TRUE(a->Wait()->status.ok());
  ASSERT_TRUE(b->Wait()->status.ok());
  EXPECT_EQ(a->ids(), b->ids());
  EXPECT_EQ(a->ids().size(), 40u);
  ASSERT_EQ(a->logprobs().size(), 40u);
  EXPECT_LE(a->logprobs()[0].alternatives.size(), 3u);
  EXPECT_LE(a->logprobs()[0].logprob, 0);
  // Each token by itself, as Detokenize gives it.
  for (const TokenLogprob& each : a->logprobs()) {
    std::vector<int32_t> ids = {each.token_id};
    for (const auto& [id, value] : each.alternatives) ids.push_back(id);
    ASSERT_EQ(each.texts.size(), ids.size());
    for (size_t i = 0; i < ids.size(); ++i) {
      EXPECT_EQ(each.texts[i],
                engine->Detokenize(std::span(&ids[i], 1), false, CancelFlag::Never()).value_or(""));
    }
  }
  EXPECT_EQ(a->Wait()->finish_reason, FinishReason::kLength);
}

// Alone or together, on any ring, cached or not, and whether log probabilities are asked for.
TEST_F(EngineTest, DigestsAreOfTokensAndBitsAndAlwaysTheSame) {
  std::string digest;
  for (const int ranks : {1, 2, 3}) {
    auto engine = Make(Options(ranks));
    RequestSpec spec = Spec(*engine, std::string(700, 'a') + "bcabcabc", 40);
    spec.sampling.temperature = 2;
    spec.sampling.seed = 42;
    spec.sampling.ignore_eos = true;
    const auto plain = Start(*engine, spec);
    EXPECT_EQ(plain->Wait()->digest, "");
    spec.digest = true;
    spec.sampling.logprobs = 2;
    const auto told = Start(*engine, spec);
    spec.sampling.logprobs.reset();
    const auto beside = Start(*engine, spec);
    ASSERT_TRUE(told->Wait()->status.ok());
    ASSERT_TRUE(beside->Wait()->status.ok());
    std::string bytes;
    for (const TokenLogprob& each : told->logprobs()) {
      for (const uint32_t value :
           {static_cast<uint32_t>(each.token_id), std::bit_cast<uint32_t>(each.logprob)}) {
        for (int shift = 0; shift < 32; shift += 8)
          bytes.push_back(static_cast<char>(value >> shift));
      }
    }
    EXPECT_EQ(bytes.size(), 40u * 8);
    EXPECT_EQ(told->Wait()->digest, Sha256Of(bytes));
    EXPECT_TRUE(beside->logprobs().empty());
    EXPECT_EQ(beside->Wait()->digest, told->Wait()->digest);
    if (digest.empty()) digest = told->Wait()->digest;
    EXPECT_EQ(told->Wait()->digest, digest) << ranks << " ranks";
    spec.prompt.back() = 'x';
    EXPECT_NE(Start(*engine, spec)->Wait()->digest, digest);
  }
}

TEST_F(EngineTest, DestructionEndsEveryRequestOnce) {
  std::vector<std::shared_ptr<CollectingSink>> sinks;
  {
    EngineOptions options = Options();
    options.max_running = 2;
    auto engine = Make(options);
    for (int i = 0; i < 6; ++i) {
      sinks.push_back(Start(*engine, Spec(*engine, std::string(50'000, 'x'))));
    }
  }
  for (const auto& sink : sinks) {
    EXPECT_EQ(sink->done_calls(), 1);
    EXPECT_EQ(sink->Wait(0)->status.code(), absl::StatusCode::kUnavailable);
  }
}

TEST_F(EngineTest, RandomTrafficLeavesNothingBehind) {
  const uint32_t seed = 17;
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  EngineOptions options = Options(3);
  options.max_running = 5;
  auto engine = Make(options);
  std::vector<std::pair<RequestId, std::shared_ptr<CollectingSink>>> all;
  for (int i = 0; i < 120; ++i) {
    // Few letters, so that prompts share beginnings.
    RequestSpec spec = Spec(*engine, std::string(pick(1, 2000), 'a' + pick(0, 2)), pick(1, 30));
    for (int n = pick(0, 5); n > 0; --n) {
      spec.shared_prefixes.push_back(pick(0, static_cast<int>(spec.prompt.size())));
    }
    std::sort(spec.shared_prefixes.begin(), spec.shared_prefixes.end());
    if (pick(0, 9) == 0) spec.deadline = std::chrono::steady_clock::now() + 1ms * pick(0, 50);
    auto sink = std::make_shared<CollectingSink>();
    all.emplace_back(engine->Submit(std::move(spec), sink).value(), sink);
    if (pick(0, 3) == 0) engine->Cancel(all[pick(0, static_cast<int>(all.size()) - 1)].first);
  }
  for (const auto& [id, sink] : all) {
    ASSERT_TRUE(sink->Wait().has_value()) << "request " << id << " is lost";
    EXPECT_EQ(sink->done_calls(), 1);
  }
  EXPECT_EQ(PagesHeldSoon(*engine), 0);
  EXPECT_EQ(engine->Load().running, 0);
  EXPECT_EQ(engine->Load().waiting, 0);
}

TEST_F(EngineTest, OptionsOutOfRangeAreNamed) {
  const auto refused = [&](auto change) {
    EngineOptions options = Options();
    change(options);
    return std::string(CreateEngine(options, *backend_, registry_).status().message());
  };
  EXPECT_NE(refused([](EngineOptions& o) { o.ranks = 0; }).find("ranks is 0"), std::string::npos);
  EXPECT_NE(refused([](EngineOptions& o) { o.page_tokens = 48; }).find("is 48; allowed are 16, 32"),
            std::string::npos);
  EXPECT_NE(refused([](EngineOptions& o) { o.model = "builtin:x"; }).find("builtin:recall"),
            std::string::npos);
  EXPECT_NE(refused([](EngineOptions& o) { o.kv_memory_bytes = 1; }).find("page"),
            std::string::npos);
  EXPECT_NE(refused([](EngineOptions& o) { o.model = "/nowhere/at/all"; }), "");
}

TEST_F(EngineTest, StreamsWaitAQuarterSecondUnlessToldOtherwise) {
  EngineOptions options = Options(1);
  options.stall_budget = std::nullopt;
  EXPECT_DOUBLE_EQ(Make(options)->Load().stall_budget_seconds, 0.25);
  options.stall_budget = 40ms;
  EXPECT_DOUBLE_EQ(Make(options)->Load().stall_budget_seconds, 0.04);
}

TEST_F(EngineTest, MetricsAndLoadTellWhatHappened) {
  auto engine = Make(Options());
  ASSERT_TRUE(Start(*engine, Spec(*engine, "hello", 3))->Wait().has_value());
  bool found = false;
  for (const MetricFamily& family : engine->Metrics()) {
    if (family.name != "annulus_generation_tokens_total") continue;
    found = true;
    EXPECT_EQ(family.samples.at(0).value, 3);
  }
  EXPECT_TRUE(found);
  const EngineLoad load = engine->Load();
  EXPECT_TRUE(load.healthy);
  ASSERT_EQ(load.ranks.size(), 2u);
  EXPECT_GT(load.ranks[0].memory_bytes.at("weights"), 0);
  EXPECT_GT(load.ranks[1].kv_bytes_total, 0);
}

// A trained model of the optional test data: greedy ids that Transformers gave.
TEST_F(EngineTest, TrainedModelGivesItsExpectedGreedyIds) {
  const auto directory = testing::TestData("models/stories260K");
  if (!directory.has_value()) GTEST_SKIP() << "the test data is absent";
  std::ifstream file(*directory / "expected_greedy.json");
  const nlohmann::json cases = nlohmann::json::parse(file);
  for (const int ranks : {1, 3}) {
    EngineOptions options = Options(ranks);
    options.model = directory->string();
    options.tokens_per_rank = 16;
    options.page_tokens = 16;
    auto engine = Make(options);
    for (const auto& one : cases) {
      RequestSpec spec;
      spec.prompt = one.at("prompt_ids").get<std::vector<int32_t>>();
      const auto expected = one.at("greedy_ids").get<std::vector<int32_t>>();
      spec.sampling.temperature = 0;
      spec.sampling.ignore_eos = true;
      spec.sampling.max_tokens = static_cast<int32_t>(expected.size());
      auto sink = Start(*engine, std::move(spec));
      ASSERT_TRUE(sink->Wait()->status.ok());
      EXPECT_EQ(sink->ids(), expected) << ranks << " ranks";
    }
  }
}

}  // namespace
}  // namespace annulus
