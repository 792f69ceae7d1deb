// Requests beside each other in the whole engine. Each test has the name of a complaint.

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bench/demo/document.h"
#include "engine/api.h"
#include "engine/engine_seams.h"
#include "gtest/gtest.h"
#include "kernels/base/sanitizers.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/register.h"
#include "tests/support/collecting_sink.h"
#include "tests/support/eventually.h"
#include "tests/support/manual_clock.h"
#include "tests/support/plain_options.h"
#include "tests/support/thinned.h"

namespace annulus {
namespace {

using testing::CollectingSink;
using namespace std::chrono_literals;

// A long prompt takes seconds, of which a test waits for a part only.
constexpr int kLong = kThreadSanitizer ? 20'000 : 200'000;

class ServingEngineTest : public ::testing::Test {
 protected:
  ServingEngineTest() : backend_(CreateCpuBackend().value()) { RegisterCpuKernels(registry_); }

  static EngineOptions Options(int ranks = 2) {
    EngineOptions options = testing::PlainOptions();
    options.ranks = ranks;
    options.threads = ranks;
    options.kv_memory_bytes = 512 << 20;
    options.chunk_tokens = 512;
    options.tokens_per_rank = 256;
    return options;
  }

  void Make(const EngineOptions& options, const Clock& clock = Clock::Real()) {
    auto engine =
        CreateEngineWith({.clock = &clock, .through_bytes = true}, options, *backend_, registry_);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
  }

  RequestSpec Spec(const std::string& text, int max_tokens = 8) const {
    RequestSpec spec;
    spec.prompt = engine_->Tokenize(text, true, CancelFlag::Never()).value();
    spec.sampling.temperature = 0;
    spec.sampling.max_tokens = max_tokens;
    return spec;
  }

  struct Started {
    RequestId id = 0;
    std::shared_ptr<CollectingSink> sink = std::make_shared<CollectingSink>();
  };
  Started Start(RequestSpec spec) {
    Started started;
    const auto id = engine_->Submit(std::move(spec), started.sink);
    EXPECT_TRUE(id.ok()) << id.status();
    started.id = id.value_or(0);
    return started;
  }

  double Metric(const std::string& name) const {
    for (const MetricFamily& family : engine_->Metrics()) {
      if (family.name == "annulus_" + name) return family.samples.at(0).value;
    }
    ADD_FAILURE() << "no metric " << name;
    return 0;
  }

  static bench::DemoDocument Document(int64_t bytes, uint64_t seed) {
    bench::DemoOptions options;
    options.bytes = bytes;
    options.seed = seed;
    return bench::MakeDemoDocument(options).value();
  }

  // Waits until so many requests run, or wait and were looked at.
  bool WaitLoad(int EngineLoad::*figure, int requests) const {
    return testing::Eventually([&] { return engine_->Load().*figure == requests; });
  }

  // Tokens that the memory for keys and values takes.
  int64_t Room() const {
    int64_t bytes = 0;
    for (const RankLoad& rank : engine_->Load().ranks) bytes += rank.kv_bytes_total;
    return bytes / engine_->model().kv_bytes_per_token;
  }

  std::unique_ptr<Backend> backend_;
  KernelRegistry registry_;
  testing::ManualClock clock_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(ServingEngineTest, AShortRequestDoesNotQueueBehindALongPrompt) {
  Make(Options());
  const Started large = Start(Spec(std::string(kLong, 'x')));
  ASSERT_TRUE(large.sink->WaitProgress(1));
  const Started small = Start(Spec("some words, some words, "));
  ASSERT_TRUE(small.sink->Wait().has_value());
  EXPECT_LT(large.sink->progress().back().processed, kLong);
  EXPECT_EQ(large.sink->ids().size(), 0u);
  engine_->Cancel(large.id);
}

TEST_F(ServingEngineTest, ARequestThatFitsIsNotHeldByOneThatDoesNot) {
  EngineOptions options = Options(1);
  options.kv_memory_bytes = 32 << 20;
  Make(options);
  const auto part = [&](double share) { return static_cast<int>(share * Room()); };
  // Half of the room for one that nobody reads.
  RequestSpec holding = Spec("x", part(0.5));
  auto holder = std::make_shared<CollectingSink>();
  holder->set_has_room(false);
  const auto held = engine_->Submit(holding, holder);
  ASSERT_TRUE(held.ok());
  ASSERT_TRUE(WaitLoad(&EngineLoad::running, 1));
  const Started large = Start(Spec("large ", part(0.8)));
  const Started small = Start(Spec("some words, some words, "));
  const auto done = small.sink->Wait(20);
  ASSERT_TRUE(done.has_value());
  EXPECT_TRUE(done->status.ok());
  EXPECT_EQ(large.sink->done_calls(), 0);
  // Its turn comes as well.
  engine_->Cancel(*held);
  ASSERT_TRUE(large.sink->WaitTokens(1));
  engine_->Cancel(large.id);
}

// Room is gathered for a large request, and one that would not leave it to it is refused. What was
// kept for others is not given up for that.
TEST_F(ServingEngineTest, ARefusedRequestCostsNoCachedPrefix) {
  EngineOptions options = Options(1);
  options.kv_memory_bytes = 32 << 20;
  Make(options, clock_);
  const auto part = [&](double share) { return static_cast<int>(share * Room()); };
  RequestSpec kept = Spec(std::string(part(0.25), 'k'), 1);
  kept.shared_prefixes = {part(0.25) / 64 * 64 - 64};
  ASSERT_TRUE(Start(kept).sink->Wait()->status.ok());
  RequestSpec holding = Spec("x", part(0.5));
  auto holder = std::make_shared<CollectingSink>();
  holder->set_has_room(false);
  const auto held = engine_->Submit(holding, holder);
  ASSERT_TRUE(held.ok());
  ASSERT_TRUE(WaitLoad(&EngineLoad::running, 1));
  const Started large = Start(Spec("large ", part(0.85)));
  ASSERT_TRUE(WaitLoad(&EngineLoad::waiting, 1));
  clock_.Advance(1100ms);  // from then on room is gathered for it
  const Started small = Start(Spec("some words, some words, ", part(0.35)));
  ASSERT_TRUE(WaitLoad(&EngineLoad::waiting, 2));
  EXPECT_EQ(small.sink->ids().size(), 0u);
  // The small one goes first: were the large one gone before it, it would rightly be admitted.
  engine_->Cancel(small.id);
  ASSERT_TRUE(small.sink->Wait().has_value());
  for (const RequestId id : {large.id, *held}) engine_->Cancel(id);
  const auto again = Start(kept).sink->Wait();
  ASSERT_TRUE(again.has_value() && again->status.ok());
  EXPECT_EQ(again->usage.cached_tokens, kept.shared_prefixes[0]);
}

TEST_F(ServingEngineTest, LongRequestsOfOneClientDoNotLeaveAnotherUnanswered) {
  EngineOptions options = Options();
  options.max_running = 8;
  Make(options);
  std::vector<Started> many;
  for (int i = 0; i < 30; ++i) {
    RequestSpec spec = Spec(std::string(kLong / 20, static_cast<char>('a' + i % 26)));
    spec.client = "many";
    many.push_back(Start(std::move(spec)));
  }
  ASSERT_TRUE(many[0].sink->WaitProgress(1));
  RequestSpec spec = Spec("some words, some words, ");
  spec.client = "alone";
  const Started other = Start(std::move(spec));
  ASSERT_TRUE(other.sink->Wait().has_value());
  const auto ended = std::count_if(many.begin(), many.end(), [](const Started& started) {
    return started.sink->done_calls() > 0;
  });
  EXPECT_LT(ended, 8);
  for (const Started& started : many) engine_->Cancel(started.id);
}

TEST_F(ServingEngineTest, AQueuedRequestIsToldAtOnce) {
  EngineOptions options = Options();
  options.max_running = 1;
  Make(options);
  const Started running = Start(Spec(std::string(kLong, 'x')));
  ASSERT_TRUE(running.sink->WaitProgress(1));
  const Started first = Start(Spec("abc"));
  EXPECT_EQ(first.sink->queued(), std::vector<int>{0});
  engine_->Cancel(running.id);
  EXPECT_TRUE(first.sink->Wait().has_value());
}

// Eight questions sent at once over one document.
TEST_F(ServingEngineTest, EightQuestionsAtOnceReadTheirDocumentOnce) {
  const int bytes = kSanitized ? 1500 : 6000;
  const bench::DemoDocument document = Document(bytes, 5);
  const std::vector<std::pair<int, bool>> ways = {{1, true}, {1, false}, {3, true}, {3, false}};
  for (const auto& [ranks, told] : testing::ThinnedIfSanitized(ways, 2)) {
    Make(Options(ranks));
    std::vector<Started> asked;
    for (int i = 0; i < 8; ++i) {
      const bench::DemoFact& fact = document.facts[i % document.facts.size()];
      RequestSpec spec =
          Spec(document.text + fact.cue + std::string(i / document.facts.size(), ' '), 4);
      if (told) spec.shared_prefixes = {bytes};
      asked.push_back(Start(std::move(spec)));
    }
    int64_t cached = 0;
    int64_t prompts = 0;
    for (const Started& one : asked) {
      const auto done = one.sink->Wait();
      ASSERT_TRUE(done.has_value() && done->status.ok());
      cached += done->usage.cached_tokens;
      prompts += done->usage.prompt_tokens;
    }
    // The recall model has windows, so a prefix can only be taken up where it was told to end.
    EXPECT_GE(cached, told ? 7 * (bytes / 64 * 64) : 0) << ranks << " ranks";
    EXPECT_EQ(Metric("prompt_tokens_total"), prompts - cached) << ranks << " ranks";
  }
}

TEST_F(ServingEngineTest, WhenTheOneThatReadsADocumentGoesTheNextContinues) {
  Make(Options(2));
  const bench::DemoDocument document = Document(kSanitized ? 6000 : 60'000, 6);
  const auto spec = [&] {
    RequestSpec request = Spec(document.text + document.facts[0].cue, 64);
    request.shared_prefixes = {static_cast<int32_t>(document.text.size())};
    request.sampling.stop = {"\n"};
    return request;
  };
  const Started first = Start(spec());
  ASSERT_TRUE(first.sink->WaitProgress(1024));
  const Started second = Start(spec());
  engine_->Cancel(first.id);
  ASSERT_TRUE(first.sink->Wait().has_value());
  const int64_t reached = first.sink->progress().back().processed;
  const auto done = second.sink->Wait();
  ASSERT_TRUE(done.has_value() && done->status.ok());
  EXPECT_GE(done->usage.cached_tokens, std::min(reached, done->usage.prompt_tokens) / 64 * 64 - 64);
  EXPECT_GE(done->usage.cached_tokens, 1024);
  EXPECT_EQ(second.sink->text(), document.facts[0].answer);
}

TEST_F(ServingEngineTest, ARetryOfACancelledPromptContinuesThere) {
  Make(Options(2));
  const std::string text(kLong, 'x');
  const Started first = Start(Spec(text));
  ASSERT_TRUE(first.sink->WaitProgress(1024));
  engine_->Cancel(first.id);
  ASSERT_TRUE(first.sink->Wait().has_value());
  const Started again = Start(Spec(text));
  ASSERT_TRUE(again.sink->WaitProgress(1));
  EXPECT_GE(again.sink->progress().front().cached, 1024);
  engine_->Cancel(again.id);
}

// A budget that one chunk of 512 tokens is far beyond: chunks shrink while a stream runs, and no
// token changes.
TEST_F(ServingEngineTest, AStreamIsNotStalledByALongPromptAndNoBitChanges) {
  const bench::DemoDocument document = Document(kSanitized ? 1500 : 12'000, 7);
  std::vector<int32_t> ids;
  std::vector<TokenLogprob> logprobs;
  for (const auto budget : {0ms, 1ms}) {
    EngineOptions options = Options(2);
    options.stall_budget = budget;
    Make(options);
    RequestSpec streaming = Spec("some words, some words, ", 5000);
    streaming.sampling.ignore_eos = true;
    const Started stream = Start(std::move(streaming));
    ASSERT_TRUE(stream.sink->WaitTokens(3));
    RequestSpec spec = Spec(document.text + document.facts[0].cue, 16);
    spec.sampling.logprobs = 2;
    const Started reads = Start(std::move(spec));
    ASSERT_TRUE(reads.sink->Wait()->status.ok());
    engine_->Cancel(stream.id);
    const auto streamed = stream.sink->Wait();
    ASSERT_TRUE(streamed.has_value());
    EXPECT_GT(streamed->timings.longest_gap, 0);
    EXPECT_LE(streamed->timings.longest_gap, streamed->timings.decode);
    const auto stalls = static_cast<double>(streamed->timings.stalls);
    EXPECT_EQ(Metric("stall_violations_total"),
              stalls + static_cast<double>(reads.sink->Wait()->timings.stalls));
    if (budget == 0ms) {
      EXPECT_EQ(Metric("stall_violations_total"), 0);
      ids = reads.sink->ids();
      logprobs = reads.sink->logprobs();
      continue;
    }
    EXPECT_EQ(reads.sink->ids(), ids);
    ASSERT_EQ(reads.sink->logprobs().size(), logprobs.size());
    for (size_t i = 0; i < logprobs.size(); ++i) {
      EXPECT_EQ(reads.sink->logprobs()[i].logprob, logprobs[i].logprob);
    }
    int64_t last = 0;
    for (const PromptProgress& progress : reads.sink->progress()) {
      EXPECT_LT(progress.processed - last, 512);
      last = progress.processed;
    }
    EXPECT_GT(Metric("step_cost_error_ratio"), 0);
    EXPECT_GT(Metric("smallest_chunk_seconds"), 0);
  }
}

// Pages that take many times the budget, on real ranks: chunks are suspended between layers, beside
// a stream and a short prompt, and no bit changes.
TEST_F(ServingEngineTest, APromptOfWhichNoPageFitsChangesNoBit) {
  const bench::DemoDocument document = Document(kSanitized ? 1500 : 6000, 8);
  for (const int ranks : {1, 3}) {
    if (kSanitized && ranks == 1) continue;  // 3 ranks do what one does, and more
    std::vector<int32_t> ids;
    std::vector<float> bits;
    for (const auto budget : {0ms, 1ms}) {
      EngineOptions options = Options(ranks);
      options.page_tokens = 256;
      options.chunk_tokens = 256 * ranks;
      options.stall_budget = budget;
      Make(options);
      RequestSpec streaming = Spec("some words, some words, ", 5000);
      streaming.sampling.ignore_eos = true;
      const Started stream = Start(std::move(streaming));
      ASSERT_TRUE(stream.sink->WaitTokens(3));
      RequestSpec spec = Spec(document.text + document.facts[0].cue, 16);
      spec.sampling.logprobs = 2;
      const Started reads = Start(std::move(spec));
      ASSERT_TRUE(reads.sink->WaitProgress(1));
      const Started small = Start(Spec("abc", 2));
      ASSERT_TRUE(small.sink->Wait()->status.ok());
      ASSERT_TRUE(reads.sink->Wait()->status.ok());
      engine_->Cancel(stream.id);
      ASSERT_TRUE(stream.sink->Wait().has_value());
      std::vector<float> logprobs;
      for (const TokenLogprob& each : reads.sink->logprobs()) logprobs.push_back(each.logprob);
      if (budget == 0ms) {
        EXPECT_EQ(Metric("chunk_stretches_total"), 0);
        ids = reads.sink->ids();
        bits = logprobs;
        continue;
      }
      EXPECT_GT(Metric("chunk_stretches_total"), 0) << ranks << " ranks";
      EXPECT_EQ(reads.sink->ids(), ids) << ranks << " ranks";
      EXPECT_EQ(logprobs, bits) << ranks << " ranks";
    }
  }
}

// What a completion tells of its own request, histograms tell of all.
TEST_F(ServingEngineTest, HistogramsTellWhatCompletionsDo) {
  EngineOptions options = Options();
  options.speculation = Speculation::kNgram;
  Make(options);
  std::string text;  // repeats itself, so that some guesses are right
  for (int i = 0; i < 12; ++i) text += "some words, some words, ";
  constexpr int kMaxTokens = 40;
  std::vector<Completion> ended;
  for (int i = 0; i < 3; ++i) {
    RequestSpec spec = Spec(text, kMaxTokens);
    spec.shared_prefixes = {128};
    spec.sampling.ignore_eos = true;
    const auto done = Start(std::move(spec)).sink->Wait();
    ASSERT_TRUE(done.has_value() && done->status.ok());
    ended.push_back(*done);
  }
  EXPECT_GT(ended.back().usage.cached_tokens, 0);
  std::map<std::string, MetricSample> histograms;
  // The client hears of an end before it is counted; the longest gap is counted last.
  ASSERT_TRUE(testing::Eventually([&] {
    for (const MetricFamily& family : engine_->Metrics()) {
      if (family.type != MetricFamily::Type::kHistogram) continue;
      histograms[family.name] = family.samples.at(0);
    }
    return histograms.at("annulus_request_longest_gap_seconds").count == ended.size();
  }));
  const auto expect = [&](const std::string& name, const auto& figure) {
    const MetricSample& sample = histograms.at("annulus_" + name);
    double sum = 0;
    for (const Completion& one : ended) sum += static_cast<double>(figure(one));
    EXPECT_EQ(sample.count, ended.size()) << name;
    EXPECT_NEAR(sample.sum, sum, 1e-9) << name;
  };
  using One = const Completion&;
  expect("request_queue_time_seconds", [](One one) { return one.timings.queue; });
  expect("request_prefill_time_seconds", [](One one) { return one.timings.prefill; });
  expect("request_decode_time_seconds", [](One one) { return one.timings.decode; });
  expect("request_inference_time_seconds",
         [](One one) { return one.timings.total - one.timings.queue; });
  expect("time_to_first_token_seconds", [](One one) { return one.timings.time_to_first_token; });
  expect("request_ring_wait_seconds", [](One one) { return one.timings.ring_wait; });
  expect("request_host_time_seconds", [](One one) { return one.timings.host; });
  expect("request_max_num_generation_tokens", [](One /*one*/) { return kMaxTokens; });
  expect("request_cached_tokens", [](One one) { return one.usage.cached_tokens; });
  expect("request_stalls", [](One one) { return one.timings.stalls; });
  expect("request_preemptions", [](One one) { return one.timings.preemptions; });
  double computed = 0;  // of prompts
  double drafted = 0;
  double accepted = 0;
  for (const Completion& one : ended) {
    computed += static_cast<double>(one.usage.prompt_tokens - one.usage.cached_tokens);
    drafted += static_cast<double>(one.usage.drafted_tokens);
    accepted += static_cast<double>(one.usage.accepted_tokens);
  }
  EXPECT_GT(accepted, 0);
  EXPECT_EQ(histograms.at("annulus_request_accepted_tokens").sum, accepted);
  EXPECT_EQ(Metric("spec_decode_num_draft_tokens_total"), drafted);
  EXPECT_EQ(Metric("spec_decode_num_accepted_tokens_total"), accepted);
  // The rows of answers count too; those of the last step may be counted only after the end.
  EXPECT_GT(histograms.at("annulus_iteration_tokens").sum, computed);
}

// Two families tell of the same pages, which a step may change while a scrape goes on.
TEST_F(ServingEngineTest, AScrapeIsOfOneMoment) {
  EngineOptions options = Options(1);
  options.chunk_tokens = 64;
  Make(options);
  const Started prompt = Start(Spec(std::string(kLong, 'x')));
  ASSERT_TRUE(prompt.sink->WaitProgress(1));
  std::set<double> seen;
  for (int scrape = 0; scrape < 10'000 && seen.size() < 100; ++scrape) {
    std::map<std::string, double> reserved;
    for (const MetricFamily& family : engine_->Metrics()) {
      for (const MetricSample& sample : family.samples) {
        const auto is = [&](const char* value) {
          return std::any_of(sample.labels.begin(), sample.labels.end(),
                             [&](const auto& label) { return label.second == value; });
        };
        if (is("kv_reserved") || (is("rank0-pages") && is("reserved"))) {
          reserved[family.name] = sample.value;
        }
      }
    }
    ASSERT_EQ(reserved.size(), 2u);
    EXPECT_EQ(reserved.at("annulus_rank_memory_bytes"), reserved.at("annulus_pool_bytes"));
    seen.insert(reserved.at("annulus_pool_bytes"));
  }
  EXPECT_GT(seen.size(), 1u) << "the prompt changed nothing meanwhile";
  engine_->Cancel(prompt.id);
}

}  // namespace
}  // namespace annulus
