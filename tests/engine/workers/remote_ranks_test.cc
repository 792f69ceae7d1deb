#include "engine/workers/remote_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <random>
#include <string>

#include "engine/workers/control_messages.h"
#include "tests/engine/workers/recall_ring.h"
#include "tests/support/manual_clock.h"
#include "tests/support/thinned.h"

namespace annulus {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ManualClock;
using testing::WorkerThread;

class RemoteRanksTest : public testing::RecallRing {
 protected:
  // Rank 0 is here.
  std::unique_ptr<RemoteRanks> Make() { return Make(ring_.OptionsOf(1, kRanks)); }
  std::unique_ptr<RemoteRanks> Make(const RemoteRanksOptions& options) {
    worker_ = &ring_.Add("one", kRanks - options.set.span.local);
    return ring_.Create(options).value();
  }

  // The worker reads this instead of the next plan.
  void SpoilNextPlan() {
    worker_->pair().ToWorker([spoiled = std::make_shared<bool>(false)](std::string& bytes) {
      wire::ToWorker message = DecodeToWorker(bytes).value();
      if (message.has_run() && !std::exchange(*spoiled, true)) {
        message.mutable_run()->set_plan("no plan");
      }
      bytes = Encode(message);
      return true;
    });
  }
  void LosePlans() {
    worker_->pair().ToWorker(
        [](std::string& bytes) { return !DecodeToWorker(bytes).value().has_run(); });
  }
  // What the worker says from now on passes `change`.
  template <typename Change>
  void ChangeResults(Change change) {
    worker_->pair().FromWorker([change](std::string& bytes) {
      wire::FromWorker message = DecodeFromWorker(bytes).value();
      if (!message.has_result()) return true;
      change(message);
      bytes = Encode(message);
      return true;
    });
  }

  void ExpectLost(RemoteRanks& ranks, const absl::Status& status, const std::string& why) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("worker \"one\""), HasSubstr("ranks 1 to 2"), HasSubstr(why)));
    EXPECT_EQ(ranks.state(), RanksState::kMending);
    EXPECT_EQ(ranks.Start(Plan()), status);
    EXPECT_THAT(ranks.TakeLost(), ElementsAre(1, 2));
    EXPECT_THAT(ranks.awaited(), HasSubstr("a host for ranks 1 to 2"));
  }

  // A step has failed, and the ring forms anew.
  static bool IsUpSoon(RemoteRanks& ranks) {
    EXPECT_THAT(ranks.TakeLost(), IsEmpty());
    return testing::Eventually([&] { return ranks.state() == RanksState::kUp; });
  }

  WorkerThread* worker_ = nullptr;
};

TEST_F(RemoteRanksTest, SayWhatTheyAre) {
  const auto ranks = Make();
  ASSERT_EQ(ranks->size(), kRanks);
  EXPECT_EQ(ranks->facts()[2].pages, ranks->facts()[0].pages);
  EXPECT_EQ(ranks->transport(), "wires between 2 processes");
  EXPECT_NE(ranks->local_pages(0), nullptr);
  EXPECT_EQ(ranks->local_pages(1), nullptr);
  EXPECT_LT(ranks->visiting_pages(), ranks->facts()[0].pages);
}

TEST_F(RemoteRanksTest, AStepIsWithTheWorkersBeforeTheOneBeforeItEnds) {
  const auto ranks = Make();
  std::atomic<int> runs{0};
  worker_->pair().ToWorker([&](std::string& bytes) {
    if (DecodeToWorker(bytes).value().has_run()) ++runs;
    return true;
  });
  ASSERT_EQ(ranks->Start(Plan(1)), absl::OkStatus());
  ASSERT_EQ(ranks->Start(Plan(2)), absl::OkStatus());
  EXPECT_EQ(ranks->Results().value().back().logits, LogitsInOneProcess(1));
  EXPECT_EQ(ranks->Results().value().back().logits, LogitsInOneProcess(2));
  EXPECT_EQ(runs, 2);
}

TEST_F(RemoteRanksTest, AFailedStepEndsNobody) {
  const auto ranks = Make();
  for (int turn = 0; turn < 3; ++turn) {
    SpoilNextPlan();
    ASSERT_EQ(ranks->Start(Plan(1)), absl::OkStatus());
    ASSERT_EQ(ranks->Start(Plan(2)), absl::OkStatus());
    const absl::Status failed = ranks->Results().status();
    EXPECT_EQ(failed.code(), absl::StatusCode::kInvalidArgument) << failed;
    EXPECT_THAT(std::string(failed.message()), HasSubstr("worker \"one\": the peer sent bytes"));
    ASSERT_TRUE(IsUpSoon(*ranks));
    EXPECT_EQ(ranks->Run(Plan(turn + 1)).value().back().logits, LogitsInOneProcess(turn + 1));
    // A failure of all ranks: none knows the sequence.
    StepPlan unknown = *Plan(turn + 2);
    unknown.updates.clear();
    EXPECT_EQ(ranks->Run(std::make_shared<StepPlan>(unknown)).status().code(),
              absl::StatusCode::kInvalidArgument);
    ASSERT_TRUE(IsUpSoon(*ranks));
  }
}

TEST_F(RemoteRanksTest, WithoutRanksHereAFailedStepEndsNobody) {
  const auto ranks = Make(ring_.OptionsOf(0, kRanks));
  SpoilNextPlan();
  ASSERT_EQ(ranks->Start(Plan()), absl::OkStatus());
  EXPECT_EQ(ranks->Results().status().code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(IsUpSoon(*ranks));
  EXPECT_EQ(ranks->Run(Plan()).value().back().logits, LogitsInOneProcess());
}

TEST_F(RemoteRanksTest, AWorkerThatGoesAmidAStepIsLost) {
  const auto ranks = Make();
  LosePlans();
  ASSERT_EQ(ranks->Start(Plan()), absl::OkStatus());  // the rank here waits for the others
  worker_->pair().Cut();
  ExpectLost(*ranks, ranks->Results().status(), "the connection broke");
  EXPECT_EQ(worker_->Join().code(), absl::StatusCode::kUnavailable);
}

TEST_F(RemoteRanksTest, AWorkerThatGoesBetweenStepsIsLost) {
  const auto ranks = Make();
  ASSERT_TRUE(ranks->Run(Plan()).ok());
  worker_->pair().Cut();
  ASSERT_TRUE(testing::Eventually([&] { return ranks->state() == RanksState::kMending; }));
  ExpectLost(*ranks, ranks->Start(Plan()), "the connection broke");
}

TEST_F(RemoteRanksTest, ASilentWorkerIsLost) {
  ManualClock clock;
  RemoteRanksOptions options = ring_.OptionsOf(0, kRanks);
  options.set.clock = &clock;
  options.silence = std::chrono::seconds(2);
  worker_ = &ring_.Add("one", 3);
  const auto ranks = ring_.Create(options).value();
  worker_->pair().FromWorker([](std::string&) { return false; });
  ASSERT_TRUE(clock.AdvanceUntil([&] { return ranks->state() == RanksState::kMending; }));
  EXPECT_THAT(std::string(ranks->Start(Plan()).message()),
              HasSubstr("ranks 0 to 2 is lost: it has said nothing for 2000 ms"));
}

TEST_F(RemoteRanksTest, BeatsBringStatistics) {
  const auto ranks = Make();
  ASSERT_TRUE(testing::Eventually([&] { return ranks->Statistics(2).memory.held > 0; }));
  EXPECT_EQ(ranks->Statistics(2).memory.limit, ranks->Statistics(1).memory.limit);
}

TEST_F(RemoteRanksTest, AWorkerThatSaysWhatNobodyUnderstandsIsLost) {
  const auto ranks = Make();
  ChangeResults([](wire::FromWorker& message) { message.Clear(); });
  ASSERT_EQ(ranks->Start(Plan()), absl::OkStatus());
  ExpectLost(*ranks, ranks->Results().status(), "are no control message");
}

TEST_F(RemoteRanksTest, AWorkerWhoseResultTheCodecRefusesIsLost) {
  const auto ranks = Make();
  ChangeResults(
      [](wire::FromWorker& message) { message.mutable_result()->set_results(1, "no result"); });
  ASSERT_EQ(ranks->Start(Plan()), absl::OkStatus());
  ExpectLost(*ranks, ranks->Results().status(), "bytes that are no");
}

class WrongAnswerTest : public RemoteRanksTest,
                        public ::testing::WithParamInterface<void (*)(wire::StepResult&)> {};

TEST_P(WrongAnswerTest, LosesTheWorker) {
  const auto ranks = Make();
  ChangeResults([](wire::FromWorker& message) { GetParam()(*message.mutable_result()); });
  ASSERT_EQ(ranks->Start(Plan()), absl::OkStatus());
  ExpectLost(*ranks, ranks->Results().status(), "it sent results of");
}

INSTANTIATE_TEST_SUITE_P(All, WrongAnswerTest,
                         ::testing::Values([](wire::StepResult& result) { result.set_step(2); },
                                           [](wire::StepResult& result) { result.set_epoch(9); },
                                           [](wire::StepResult& result) {
                                             result.add_results("one too many");
                                           }));

TEST_F(RemoteRanksTest, AFailureNeedsAReason) {
  const auto ranks = Make();
  ChangeResults([](wire::FromWorker& message) { message.mutable_result()->mutable_status(); });
  ASSERT_EQ(ranks->Start(Plan()), absl::OkStatus());
  EXPECT_THAT(std::string(ranks->Results().status().message()),
              HasSubstr("it sent OK as the reason of a failure"));
}

TEST_F(RemoteRanksTest, ResultsOfAnEarlierEpochAreDropped) {
  const auto ranks = Make();
  SpoilNextPlan();
  ASSERT_EQ(ranks->Start(Plan()), absl::OkStatus());
  ASSERT_FALSE(ranks->Results().ok());
  ASSERT_TRUE(IsUpSoon(*ranks));
  // Its beats become results of the epoch before.
  std::atomic<int> late{0};
  worker_->pair().FromWorker([&](std::string& bytes) {
    wire::FromWorker message = DecodeFromWorker(bytes).value();
    if (!message.has_beat()) return true;
    message.mutable_result()->set_epoch(1);
    message.mutable_result()->set_step(1);
    bytes = Encode(message);
    ++late;
    return true;
  });
  ASSERT_TRUE(testing::Eventually([&] { return late >= 2; }));
  EXPECT_EQ(ranks->Run(Plan()).value().back().logits, LogitsInOneProcess());
}

TEST_F(RemoteRanksTest, AWorkerThatDoesNotFormTheRingAnewIsLost) {
  ManualClock clock;
  RemoteRanksOptions options = ring_.OptionsOf(0, kRanks);
  options.set.clock = &clock;
  options.silence = std::chrono::hours(24);
  const auto ranks = Make(options);
  worker_->pair().ToWorker([](std::string& bytes) {
    wire::ToWorker message = DecodeToWorker(bytes).value();
    if (message.has_run()) message.mutable_run()->set_plan("no plan");
    bytes = Encode(message);
    return !message.has_abort();
  });
  ASSERT_EQ(ranks->Start(Plan()), absl::OkStatus());
  EXPECT_EQ(ranks->Results().status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(ranks->TakeLost(), IsEmpty());
  EXPECT_TRUE(
      clock.AdvanceUntil([&] { return !ranks->awaited().empty(); }, std::chrono::seconds(10)));
  EXPECT_THAT(std::string(ranks->Start(Plan()).message()),
              HasSubstr("is lost: it did not open its wires within 120000 ms"));
  EXPECT_THAT(ranks->TakeLost(), ElementsAre(0, 1, 2));
}

TEST_F(RemoteRanksTest, WorkersEndWellWithTheirCoordinator) {
  auto ranks = Make();
  ASSERT_EQ(ranks->Start(Plan()), absl::OkStatus());
  ranks.reset();
  EXPECT_EQ(worker_->Join(), absl::OkStatus());
}

TEST_F(RemoteRanksTest, AWorkerRefusesACoordinatorThatSpeaksNonsense) {
  const auto ranks = Make();
  worker_->pair().ToWorker([](std::string& bytes) {
    bytes = "GET / HTTP/1.1";
    return true;
  });
  ASSERT_EQ(ranks->Start(Plan()), absl::OkStatus());
  EXPECT_THAT(std::string(worker_->Join().message()), HasSubstr("are no control message"));
}

// A flipped byte in any message but Hello, from either side: the worker is lost, the step fails, or
// nobody notices; nothing ends the process, and nothing waits for ever.
TEST_F(RemoteRanksTest, FlippedBytesEndInTime) {
  std::mt19937 random(static_cast<uint32_t>(testing::TestSeed()));
  for (int turn = 0; turn < (kSanitized ? 20 : 60); ++turn) {
    SCOPED_TRACE(::testing::Message() << "turn " << turn);
    testing::WorkerRing ring(world_, model_);
    RemoteRanksOptions options = ring.OptionsOf(turn % 2, kRanks);
    options.set.engine.exchange_timeout = std::chrono::milliseconds(100);
    options.silence = std::chrono::seconds(2);
    options.forming_timeout = std::chrono::seconds(1);
    WorkerThread& worker = ring.Add("one", kRanks - turn % 2);
    const bool to_worker = turn % 4 < 2;
    const int at = static_cast<int>(random() % 6) + (to_worker ? 0 : 1);
    const auto flip = [at, place = random(), bit = random() % 8,
                       seen = std::make_shared<int>(0)](std::string& bytes) {
      if ((*seen)++ == at && !bytes.empty()) {
        char& flipped = bytes[place % bytes.size()];
        flipped = static_cast<char>(flipped ^ (1 << bit));
      }
      return true;
    };
    if (to_worker) {
      worker.pair().ToWorker(flip);
    } else {
      worker.pair().FromWorker(flip);
    }
    ring.source().EndAt("a host for");  // nobody replaces it, if it is lost before the ring serves
    auto ranks = ring.Create(options);
    for (int32_t sequence = 1; ranks.ok() && sequence <= 3; ++sequence) {
      (*ranks)->Run(Plan(sequence)).status().IgnoreError();
    }
  }
}

}  // namespace
}  // namespace annulus
