// Engines whose ranks are at workers, which are threads here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine_workers.h"
#include "tests/engine/core/engine_fixture.h"
#include "tests/support/linked_workers.h"
#include "tests/support/wire_rings.h"

namespace annulus {
namespace {

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
    source_.Add(LinkedPair::End(pair, 0));
    return *pair;
  }

  absl::StatusOr<std::unique_ptr<Engine>> MakeWithWorkers(const EngineOptions& options,
                                                          int local_ranks) {
    EngineSeams seams = Seams();
    seams.workers = {.source = &source_, .local_ranks = local_ranks, .build = "1"};
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

  testing::AddedWorkers source_;
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
    EXPECT_EQ(answers[i]->ids(), expected[i]->ids());
    const std::vector<TokenLogprob> logprobs = answers[i]->logprobs();
    const std::vector<TokenLogprob> others = expected[i]->logprobs();
    ASSERT_EQ(logprobs.size(), others.size());
    for (size_t t = 0; t < logprobs.size(); ++t) {
      EXPECT_EQ(logprobs[t].logprob, others[t].logprob) << "token " << t << " of answer " << i;
    }
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

TEST_F(WorkersTest, ALostWorkerEndsTheAnswersWithItsName) {
  LinkedPair& pair = AddWorker("one", 1);
  const auto engine = MakeWithWorkers(Options(2), 1).value();
  const auto sink = Start(*engine, Spec(*engine, Document(3000, 1).text, 4000));
  ASSERT_TRUE(sink->WaitTokens(3));
  pair.Cut();
  const absl::Status status = sink->Wait()->status;
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.GetPayload(kCausePayload).value()),
              HasSubstr("worker \"one\" at the pair of one with rank 1 is lost"));
  EXPECT_TRUE(testing::Eventually([&] { return !engine->Load().healthy; }));
  EXPECT_TRUE(engine->Load().ring.workers.at(0).lost);
}

TEST_F(WorkersTest, WhatDoesNotGoTogetherIsRefused) {
  EngineOptions options = Options(2);
  for (const int local : {-1, 2, 3}) {
    EXPECT_THAT(std::string(MakeWithWorkers(options, local).status().message()),
                HasSubstr("must be 0 to 1"));
  }
  options.kv_host_bytes = int64_t{64} << 20;
  const absl::Status refused = MakeWithWorkers(options, 1).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--kv-host"));
  options.kv_host_bytes = 0;
  options.kv_disk = "somewhere";
  EXPECT_THAT(std::string(MakeWithWorkers(options, 1).status().message()), HasSubstr("--kv-disk"));
}

}  // namespace
}  // namespace annulus
