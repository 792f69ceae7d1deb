// Engines whose ranks are at workers, which are threads here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/engine_workers.h"
#include "engine/workers/control_messages.h"
#include "kernels/base/sanitizers.h"
#include "tests/engine/core/engine_fixture.h"
#include "tests/support/linked_workers.h"
#include "tests/support/wire_rings.h"

namespace annulus {
namespace {

using ::testing::AllOf;
using testing::CollectingSink;
using ::testing::HasSubstr;
using testing::LinkedPair;

class WorkersTest : public testing::EngineFixture {
 protected:
  ~WorkersTest() override {
    for (const auto& pair : pairs_) pair->Cut();
    for (std::thread& thread : threads_) thread.join();
  }

  static EngineSeams Seams() {
    EngineSeams seams;
    seams.open_carrier = [] { return testing::OpenCarrier(testing::WireKind::kMemory); };
    return seams;
  }

  LinkedPair& AddWorker(const std::string& name, int ranks) {
    const auto pair = pairs_.emplace_back(std::make_shared<LinkedPair>("the pair of " + name));
    threads_.emplace_back([this, pair, name, ranks] {
      const auto worker = CreateWorkerWith(Seams(), Options(ranks), {.name = name, .build = "1"},
                                           *backend_, registry_)
                              .value();
      const auto link = LinkedPair::End(pair, 1);
      worker->Serve(*link).IgnoreError();
    });
    source_->Add(LinkedPair::End(pair, 0));
    return *pair;
  }

  absl::StatusOr<std::unique_ptr<Engine>> MakeWithWorkers(const EngineOptions& options,
                                                          int local_ranks) {
    EngineSeams seams = Seams();
    seams.workers = {.source = source_.get(),
                     .local_ranks = local_ranks,
                     .build = "1",
                     .silence = silence_,
                     .replacement_timeout = replacement_timeout_,
                     .tolerated_ranks = tolerated_ranks_};
    return CreateEngineWith(seams, options, *backend_, registry_);
  }

  // Several at once, with guesses and drawn tokens.
  std::vector<std::shared_ptr<CollectingSink>> Ask(Engine& engine) const {
    std::vector<std::shared_ptr<CollectingSink>> sinks;
    for (uint64_t seed = 0; seed < 4; ++seed) {
      const bench::DemoDocument document = Document(1500 + 300 * seed, 7 + seed);
      RequestSpec spec = Spec(engine, document.text + document.facts[0].cue, 12);
      spec.sampling.logprobs = 2;
      if (seed % 2 == 1) {
        spec.sampling.temperature = 0.9F;
        spec.sampling.seed = seed;
      }
      sinks.push_back(Start(engine, std::move(spec)));
    }
    return sinks;
  }

  static void ExpectSame(const CollectingSink& answer, const CollectingSink& expected) {
    EXPECT_EQ(answer.ids(), expected.ids());
    const std::vector<TokenLogprob> logprobs = answer.logprobs();
    const std::vector<TokenLogprob> others = expected.logprobs();
    ASSERT_EQ(logprobs.size(), others.size());
    for (size_t t = 0; t < logprobs.size(); ++t) {
      EXPECT_EQ(logprobs[t].logprob, others[t].logprob) << "token " << t;
    }
  }

  // The worker leaves when it should hear of its n-th step: 1, 2, ..
  static void CutAt(LinkedPair& pair, int n) {
    pair.ToWorker([&pair, n, heard = std::make_shared<int>(0)](std::string& bytes) {
      if (!DecodeToWorker(bytes).value().has_run() || ++*heard < n) return true;
      pair.Cut();
      return false;
    });
  }

  // How many steps Ask takes with workers that stay.
  int CountSteps(const EngineOptions& options) {
    LinkedPair& pair = AddWorker("counts", 2);
    const auto steps = std::make_shared<std::atomic<int>>(0);
    pair.ToWorker([steps](std::string& bytes) {
      if (DecodeToWorker(bytes).value().has_run()) ++*steps;
      return true;
    });
    auto engine = MakeWithWorkers(options, 1).value();
    for (const auto& sink : Ask(*engine)) sink->Wait();
    engine.reset();  // the source is of one engine
    return *steps;
  }

  std::chrono::milliseconds silence_{2'000};
  std::chrono::milliseconds replacement_timeout_{60'000};
  int tolerated_ranks_ = 0;
  std::unique_ptr<testing::AddedWorkers> source_ = std::make_unique<testing::AddedWorkers>();
  std::vector<std::shared_ptr<LinkedPair>> pairs_;
  std::vector<std::thread> threads_;
};

TEST_F(WorkersTest, AnswersAreThoseOfOneProcess) {
  const EngineOptions options = Options(3);
  const auto alone = Make(options);
  const auto expected = Ask(*alone);
  for (const auto& sink : expected) ASSERT_EQ(sink->Wait()->status, absl::OkStatus());
  AddWorker("one", 2);
  const auto engine = MakeWithWorkers(options, 1).value();
  const auto answers = Ask(*engine);
  for (size_t i = 0; i < answers.size(); ++i) {
    ASSERT_EQ(answers[i]->Wait()->status, absl::OkStatus());
    ExpectSame(*answers[i], *expected[i]);
  }
  EXPECT_EQ(engine->Load().ring_transport, "wires between 2 processes");
  EXPECT_EQ(engine->Load().ranks.size(), 3);
  const RingLoad ring = engine->Load().ring;
  EXPECT_EQ(ring.epoch, 1u);
  ASSERT_EQ(ring.workers.size(), 1u);
  EXPECT_EQ(ring.workers[0].name, "one");
  EXPECT_EQ(ring.workers[0].peer, "the pair of one");
  EXPECT_EQ(ring.workers[0].first_rank, 1);
  EXPECT_EQ(ring.workers[0].ranks, 2);
  EXPECT_FALSE(ring.workers[0].lost);
  EXPECT_TRUE(alone->Load().ring.workers.empty());
}

// The ring goes on without the lost rank, on which the request does not fit.
TEST_F(WorkersTest, AnswersEndWithWhatIsNeededToGoOnIfNobodyTakesTheRanks) {
  EngineOptions options = Options(2);
  const auto alone = Make(options);
  RequestSpec spec = Spec(*alone, Document(3000, 1).text, 4000);
  spec.sampling.seed = 77;
  const RequestPlan plan = alone->Plan(spec, CancelFlag::Never()).value();
  int64_t needed = 0;
  for (const auto& rank : plan.ranks) needed += rank.kv_bytes;
  options.kv_memory_bytes = static_cast<size_t>(needed) * 5 / 4;
  LinkedPair& pair = AddWorker("one", 1);
  replacement_timeout_ = std::chrono::milliseconds(0);
  const auto engine = MakeWithWorkers(options, 1).value();
  const auto sink = Start(*engine, spec);
  ASSERT_TRUE(sink->WaitTokens(3));
  pair.Cut();
  const absl::Status status = sink->Wait()->status;
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("a host for rank 1"), HasSubstr("--local-ranks 1"),
                    HasSubstr("send the request again when the server is ready"),
                    HasSubstr("its seed was 77")));
  EXPECT_TRUE(engine->Load().ring.workers.at(0).lost);
  EXPECT_EQ(Start(*engine, spec)->Wait()->status.code(), absl::StatusCode::kUnavailable);
  RequestSpec small = Spec(*engine, Document(300, 1).text, 3);
  EXPECT_EQ(Start(*engine, small)->Wait()->status, absl::OkStatus());
  AddWorker("two", 1);
  EXPECT_TRUE(testing::Eventually([&] { return !engine->Load().ring.workers.at(0).lost; }));
  spec.sampling.max_tokens = 3;
  EXPECT_EQ(Start(*engine, spec)->Wait()->status, absl::OkStatus());
}

// Any worker, lost with its n-th step, while nobody takes its rank.
TEST_F(WorkersTest, AnswersGoOnOnASmallerRingBitByBit) {
  const EngineOptions options = Options(3);
  const auto alone = Make(options);
  const auto expected = Ask(*alone);
  for (const auto& sink : expected) ASSERT_EQ(sink->Wait()->status, absl::OkStatus());
  const int steps = CountSteps(options);
  replacement_timeout_ = std::chrono::milliseconds(0);
  for (const int victim : {0, 1}) {
    for (const int at : {2, steps / 2, 3 * steps / 4}) {
      SCOPED_TRACE(::testing::Message()
                   << "worker " << victim << " lost with step " << at << " of " << steps);
      source_ = std::make_unique<testing::AddedWorkers>();
      const std::string turn = absl::StrCat(victim, "-", at);
      std::vector<LinkedPair*> workers;
      for (const char* name : {"a", "b"}) workers.push_back(&AddWorker(name + turn, 1));
      const auto engine = MakeWithWorkers(options, 1).value();
      CutAt(*workers[static_cast<size_t>(victim)], at);
      const auto answers = Ask(*engine);
      for (size_t i = 0; i < answers.size(); ++i) {
        const auto done = answers[i]->Wait();
        ASSERT_TRUE(done.has_value());
        ASSERT_EQ(done->status, absl::OkStatus());
        ExpectSame(*answers[i], *expected[i]);
      }
      EXPECT_EQ(engine->Load().ring_transport, "wires between 2 processes");
      // A worker that comes later takes the rank, amid answers too.
      const auto again = Ask(*engine);
      AddWorker("c" + turn, 1);
      for (size_t i = 0; i < again.size(); ++i) {
        ASSERT_EQ(again[i]->Wait()->status, absl::OkStatus());
        ExpectSame(*again[i], *expected[i]);
      }
      EXPECT_TRUE(testing::Eventually(
          [&] { return engine->Load().ring_transport == "wires between 3 processes"; }));
    }
  }
}

// It says that it is alive, but never how a step ended.
TEST_F(WorkersTest, AnswersGoOnBitByBitIfAWorkerNeverEndsAStep) {
  EngineOptions options = Options(3);
  const auto alone = Make(options);
  const auto expected = Ask(*alone);
  for (const auto& sink : expected) ASSERT_EQ(sink->Wait()->status, absl::OkStatus());
  const int steps = CountSteps(options);
  source_ = std::make_unique<testing::AddedWorkers>();
  options.exchange_timeout = std::chrono::seconds(kSanitized ? 10 : 2);
  silence_ = options.exchange_timeout / 2;
  AddWorker("a", 1);
  LinkedPair& pair = AddWorker("b", 1);
  const auto engine = MakeWithWorkers(options, 1).value();
  pair.FromWorker([half = steps / 2](std::string& bytes) {
    const wire::FromWorker message = DecodeFromWorker(bytes).value();
    return !message.has_result() || static_cast<int>(message.result().step()) < half;
  });
  AddWorker("c", 1);
  const auto answers = Ask(*engine);
  for (size_t i = 0; i < answers.size(); ++i) {
    ASSERT_EQ(answers[i]->Wait()->status, absl::OkStatus());
    ExpectSame(*answers[i], *expected[i]);
  }
  const RingLoad ring = engine->Load().ring;
  EXPECT_GE(ring.epoch, 2u);
  EXPECT_EQ(ring.workers.at(1).name, "c");
}

// Two long requests that all ranks hold together, and of which two ranks hold one.
TEST_F(WorkersTest, RoomForTheLossOfARankIsKept) {
  EngineOptions options = Options(3);
  const auto alone = Make(options);
  RequestSpec spec = Spec(*alone, Document(3000, 1).text, 200);
  const auto expected = Start(*alone, spec);
  ASSERT_EQ(expected->Wait()->status, absl::OkStatus());
  spec.ignore_cache = true;
  const RequestPlan plan = alone->Plan(spec, CancelFlag::Never()).value();
  int64_t needed = 0;
  for (const auto& rank : plan.ranks) needed += rank.kv_bytes;
  options.kv_memory_bytes = static_cast<size_t>(needed) * 5 / 2;
  LinkedPair& pair = AddWorker("one", 1);
  AddWorker("two", 1);
  replacement_timeout_ = std::chrono::milliseconds(0);
  tolerated_ranks_ = 1;
  const auto engine = MakeWithWorkers(options, 1).value();
  RequestSpec large = spec;
  while (engine->Validate(large).ok()) ++large.sampling.max_tokens;
  EXPECT_GT(large.sampling.max_tokens, 201);
  const absl::Status refused = engine->Validate(large);
  EXPECT_EQ(refused.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("the loss of 1 of 3 ranks (--tolerate 1): keys and values of 1 to "),
                    HasSubstr(absl::StrCat("fit on the other 2; lower max_tokens to at most ",
                                           large.sampling.max_tokens - 1, ", or start")),
                    HasSubstr("or a smaller --tolerate")));
  const auto first = std::make_shared<CollectingSink>();
  first->set_full_after(3);  // it keeps its pages until its reader goes on
  ASSERT_TRUE(engine->Submit(spec, first).ok());
  ASSERT_TRUE(first->WaitTokens(3));
  EXPECT_EQ(engine->Plan(spec, CancelFlag::Never()).value().room, RoomFor::kLater);
  const auto second = Start(*engine, spec);
  pair.Cut();
  first->set_has_room(true);
  for (const auto& sink : {first, second}) {
    ASSERT_EQ(sink->Wait()->status, absl::OkStatus());
    ExpectSame(*sink, *expected);
  }
  EXPECT_GT(first->Wait()->timings.recovered, 0);
  EXPECT_TRUE(engine->Load().ring.workers.at(0).lost);
}

TEST_F(WorkersTest, RequestsWaitForAWorkerAndCanBeCancelledMeanwhile) {
  LinkedPair& pair = AddWorker("one", 1);
  const auto engine = MakeWithWorkers(Options(2), 1).value();
  const RequestSpec spec = Spec(*engine, Document(3000, 1).text, 400);
  const auto patient = Start(*engine, spec);
  auto impatient = std::make_shared<CollectingSink>();
  const RequestId id = engine->Submit(spec, impatient).value();
  ASSERT_TRUE(patient->WaitTokens(3));
  ASSERT_TRUE(impatient->WaitTokens(3));
  pair.Cut();
  EXPECT_TRUE(testing::Eventually([&] { return !engine->Load().healthy; }));
  engine->Cancel(id);
  EXPECT_EQ(impatient->Wait()->finish_reason, FinishReason::kCancelled);
  AddWorker("two", 1);
  const auto done = patient->Wait();
  EXPECT_EQ(done->status, absl::OkStatus());
  EXPECT_GT(done->timings.recovered, 0);
}

// The worker that is lost, and after how many quarters of all steps.
using Loss = std::tuple<int, int>;

class LostWorkersTest : public WorkersTest, public ::testing::WithParamInterface<Loss> {};

// Any worker, lost with its n-th step, and the one in its place too.
TEST_P(LostWorkersTest, AnswersOutliveThemBitByBit) {
  const auto [victim, quarter] = GetParam();
  const EngineOptions options = Options(3);
  const auto alone = Make(options);
  const auto expected = Ask(*alone);
  for (const auto& sink : expected) ASSERT_EQ(sink->Wait()->status, absl::OkStatus());
  const int steps = CountSteps(options);
  ASSERT_GT(steps, 8);
  const int at = std::max(2, steps * quarter / 4);
  for (const bool twice : {false, true}) {
    SCOPED_TRACE(::testing::Message()
                 << "lost with step " << at << " of " << steps << (twice ? ", twice" : ""));
    source_ = std::make_unique<testing::AddedWorkers>();
    const absl::string_view turn = twice ? "-twice" : "-once";
    std::vector<LinkedPair*> workers;
    for (const char* name : {"a", "b"}) workers.push_back(&AddWorker(absl::StrCat(name, turn), 1));
    const auto engine = MakeWithWorkers(options, 1).value();
    LinkedPair& spare = AddWorker(absl::StrCat("c", turn), 1);
    CutAt(*workers[static_cast<size_t>(victim)], at);
    if (twice) {
      CutAt(spare, 2);
      AddWorker(absl::StrCat("d", turn), 1);
    }
    const auto answers = Ask(*engine);
    int64_t recovered = 0;
    for (size_t i = 0; i < answers.size(); ++i) {
      const auto done = answers[i]->Wait();
      ASSERT_TRUE(done.has_value());
      ASSERT_EQ(done->status, absl::OkStatus());
      ExpectSame(*answers[i], *expected[i]);
      recovered += done->timings.recovered;
    }
    EXPECT_GT(recovered, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(AnyOf, LostWorkersTest,
                         ::testing::Combine(::testing::Values(0, 1), ::testing::Values(0, 2, 3)),
                         [](const auto& info) {
                           return absl::StrCat("Worker", std::get<0>(info.param), "AfterQuarters",
                                               std::get<1>(info.param));
                         });

TEST_F(WorkersTest, WhatDoesNotGoTogetherIsRefused) {
  EngineOptions options = Options(2);
  for (const int local : {-1, 2, 3}) {
    EXPECT_THAT(std::string(MakeWithWorkers(options, local).status().message()),
                HasSubstr("must be 0 to 1"));
  }
  for (const int silence : {99, 86'400'001}) {
    silence_ = std::chrono::milliseconds(silence);
    EXPECT_THAT(std::string(MakeWithWorkers(options, 1).status().message()),
                HasSubstr("allowed are 100 ms to 86400000 ms"));
  }
  silence_ = std::chrono::seconds(2);
  for (const int tolerated : {-1, 2}) {
    tolerated_ranks_ = tolerated;
    EXPECT_THAT(std::string(MakeWithWorkers(options, 1).status().message()),
                HasSubstr("is to be tolerated; that must be 0 to 1"));
  }
  tolerated_ranks_ = 0;
  options.kv_disk = "somewhere";
  const absl::Status refused = MakeWithWorkers(options, 1).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--kv-disk"));
  options.kv_disk.clear();
  options.kv_host_bytes = int64_t{64} << 20;
  options.kv_verify = KvVerify::kAll;
  EXPECT_THAT(std::string(MakeWithWorkers(options, 1).status().message()),
              HasSubstr("--kv-verify must be sample or off"));
  options.kv_verify = KvVerify::kSample;
  tolerated_ranks_ = 1;
  EXPECT_THAT(std::string(MakeWithWorkers(options, 1).status().message()),
              HasSubstr("set either --tolerate or --kv-host"));
}

}  // namespace
}  // namespace annulus
