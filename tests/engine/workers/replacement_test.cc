// Rings that outlive their workers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "engine/codec/status_message.h"
#include "engine/workers/control_messages.h"
#include "tests/engine/workers/recall_ring.h"
#include "tests/support/manual_clock.h"

namespace annulus {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::LinkedPair;
using testing::ManualClock;
using ::testing::Not;
using testing::ScriptedWorker;
using testing::WorkerThread;

class ReplacementTest : public testing::RecallRing {
 protected:
  // Rank 0 is here, and workers "a" and "b" host one each; or one of them hosts all.
  std::unique_ptr<RemoteRanks> Make(int local = 1) {
    first_ = &ring_.Add("a", 1);
    second_ = &ring_.Add("b", kRanks - local - 1);
    options_ = ring_.OptionsOf(local, kRanks);
    options_.set.clock = clock_;
    return ring_.Create(options_).value();
  }
  WorkerThread& AddSpare(RemoteRanks& ranks, const std::string& name, int count = 1) {
    WorkerThread& spare = ring_.Add(name, count);
    EXPECT_TRUE(testing::Eventually([&] {
      const std::string transport = ranks.transport();
      return absl::StrContains(transport, "; spare workers: ") && absl::EndsWith(transport, name);
    })) << ranks.awaited();
    return spare;
  }
  // The worker does not hear of the next step, and leaves.
  static void LoseAtNextStep(WorkerThread& worker) {
    worker.pair().ToWorker([&worker](std::string& bytes) {
      if (!DecodeToWorker(bytes).value().has_run()) return true;
      worker.pair().Cut();
      return false;
    });
  }
  static bool IsUpSoon(RemoteRanks& ranks) {
    return testing::Eventually([&] { return ranks.state() == RanksState::kUp; });
  }
  void ExpectRuns(RemoteRanks& ranks, int32_t sequence = 1, int over = kRanks) {
    EXPECT_EQ(ranks.Run(Plan(sequence, over)).value().at(over - 1).logits,
              LogitsInOneProcess(sequence, over));
  }

  const Clock* clock_ = &Clock::Real();
  RemoteRanksOptions options_;
  WorkerThread* first_ = nullptr;
  WorkerThread* second_ = nullptr;
};

TEST_F(ReplacementTest, ASpareTakesTheRanksOfAWorkerThatIsLostAmidAStep) {
  for (const int local : {0, 1}) {
    SCOPED_TRACE(::testing::Message() << local << " ranks here");
    testing::WorkerRing ring(world_, model_);
    ring.Add("a", 1);
    WorkerThread& second = ring.Add("b", kRanks - local - 1);
    const auto ranks = ring.Create(ring.OptionsOf(local, kRanks)).value();
    ring.Add("c", kRanks - local - 1);
    ASSERT_TRUE(testing::Eventually(
        [&] { return ranks->transport().find("spare workers: c") != std::string::npos; }));
    ExpectRuns(*ranks);
    LoseAtNextStep(second);
    ASSERT_EQ(ranks->Start(Plan(2)), absl::OkStatus());
    ASSERT_EQ(ranks->Start(Plan(3)), absl::OkStatus());
    EXPECT_THAT(std::string(ranks->Results().status().message()),
                AllOf(HasSubstr("worker \"b\""), HasSubstr("is lost")));
    EXPECT_EQ(ranks->TakeLost(),
              local == 0 ? std::vector<int32_t>({1, 2}) : std::vector<int32_t>({2}));
    ASSERT_TRUE(IsUpSoon(*ranks)) << ranks->awaited();
    EXPECT_THAT(ranks->TakeLost(), IsEmpty());
    EXPECT_EQ(ranks->awaited(), "");
    EXPECT_THAT(ranks->transport(), Not(HasSubstr("spare")));
    ExpectRuns(*ranks, 4);
  }
}

TEST_F(ReplacementTest, ARingThatFindsNoMemoryOrThreadsFormsLater) {
  std::atomic<int> lacks{0};
  ring_.Add("a", 1);
  ring_.Add("b", 1);
  options_ = ring_.OptionsOf(1, kRanks);
  options_.open_carrier = [&lacks, open = options_.open_carrier] {
    if (lacks == 0) return open();
    if (--lacks == 1) throw std::bad_alloc();
    throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
  };
  const auto ranks = ring_.Create(options_).value();
  lacks = 2;
  StepPlan unknown = *Plan();  // no rank knows its sequence
  unknown.updates.clear();
  ASSERT_FALSE(ranks->Run(std::make_shared<StepPlan>(unknown)).ok());
  ASSERT_TRUE(IsUpSoon(*ranks)) << ranks->awaited();
  EXPECT_EQ(lacks, 0);
  EXPECT_EQ(ranks->workers().epoch, 2u) << "none began that nobody formed";
  ExpectRuns(*ranks);
}

// What was lost before is no reason to try again at once.
TEST_F(ReplacementTest, ARingThatFindsNoMemoryAfterALossFormsLater) {
  std::vector<SteadyTime> attempts;  // by whoever mends
  bool lacks = false;
  first_ = &ring_.Add("a", 1);
  ring_.Add("b", 1);
  options_ = ring_.OptionsOf(1, kRanks);
  options_.open_carrier = [&, open = options_.open_carrier] {
    attempts.push_back(std::chrono::steady_clock::now());
    if (std::exchange(lacks, false)) throw std::bad_alloc();
    return open();
  };
  const auto ranks = ring_.Create(options_).value();
  AddSpare(*ranks, "c");
  lacks = true;
  LoseAtNextStep(*first_);
  ASSERT_FALSE(ranks->Run(Plan()).ok());
  EXPECT_THAT(ranks->TakeLost(), ElementsAre(1));
  ASSERT_TRUE(IsUpSoon(*ranks)) << ranks->awaited();
  ASSERT_EQ(attempts.size(), 3u) << "the first, one without memory, and one with";
  EXPECT_GE(attempts[2] - attempts[1], 1s);
}

// The others miss a worker whose link still stands: it closes after their next beat.
TEST_F(ReplacementTest, WhoeverIsMissedFirstIsTheOneThatIsLost) {
  const auto ranks = Make();
  first_->pair().FromWorker([this, said = std::make_shared<bool>(false)](std::string& bytes) {
    wire::FromWorker message = DecodeFromWorker(bytes).value();
    if (message.has_beat() && *said) second_->pair().Cut();
    if (!message.has_result()) return true;
    *said = true;
    message.mutable_result()->clear_results();
    *message.mutable_result()->mutable_status() =
        codec::ToMessage(absl::UnavailableError("rank 1 has lost rank 2"));
    bytes = Encode(message);
    return true;
  });
  ASSERT_EQ(ranks->Start(Plan()), absl::OkStatus());
  EXPECT_THAT(std::string(ranks->Results().status().message()), HasSubstr("worker \"b\""));
  EXPECT_THAT(ranks->TakeLost(), ElementsAre(2));
}

TEST_F(ReplacementTest, NothingRunsBeforeWhatWasLostBetweenStepsIsTaken) {
  const auto ranks = Make();
  AddSpare(*ranks, "c");
  first_->pair().Cut();
  ASSERT_TRUE(testing::Eventually([&] { return ranks->state() == RanksState::kMending; }));
  EXPECT_FALSE(ranks->Start(Plan()).ok());
  EXPECT_THAT(ranks->TakeLost(), ElementsAre(1));
  ASSERT_TRUE(IsUpSoon(*ranks)) << ranks->awaited();
  ExpectRuns(*ranks);
}

TEST_F(ReplacementTest, WithoutASpareTheNextThatDialsIsAwaited) {
  const auto ranks = Make();
  second_->pair().Cut();
  ASSERT_TRUE(ring_.source().WaitForReport(
      "a host for rank 2 of a worker with --local-ranks 1, as worker \"b\""));
  EXPECT_EQ(ranks->state(), RanksState::kMending);
  EXPECT_THAT(ranks->TakeLost(), ElementsAre(2));
  ring_.source().ForgetReports();
  ring_.Add("b", 1);  // it was started again
  ASSERT_TRUE(IsUpSoon(*ranks)) << ranks->awaited();
  EXPECT_TRUE(ring_.source().WaitForReport(""));
  ExpectRuns(*ranks);
}

// Then no rank is left to go on with.
TEST_F(ReplacementTest, TheRingServesAgainWhenWorkersComeAfterTheTimeout) {
  ManualClock clock;
  clock_ = &clock;
  const auto ranks = Make(0);
  first_->pair().Cut();
  second_->pair().Cut();
  std::set<int32_t> lost;
  ASSERT_TRUE(testing::Eventually([&] {
    for (const int32_t rank : ranks->TakeLost()) lost.insert(rank);
    return lost.size() == kRanks;
  }));
  EXPECT_EQ(ranks->state(), RanksState::kMending);
  clock.Advance(59s);
  EXPECT_EQ(ranks->state(), RanksState::kMending);
  clock.Advance(1s);
  EXPECT_EQ(ranks->state(), RanksState::kFailed);
  EXPECT_THAT(ranks->awaited(), HasSubstr("a host for rank 0"));
  EXPECT_EQ(ranks->Start(Plan()).code(), absl::StatusCode::kUnavailable);
  // The ring may go on with the first one alone for a while.
  ring_.Add("c", 1);
  ring_.Add("d", 2);
  ASSERT_TRUE(testing::Eventually([&] {
    ranks->TakeLost();
    return ranks->state() == RanksState::kUp && ranks->awaited().empty();
  })) << ranks->awaited();
  ExpectRuns(*ranks);
}

TEST_F(ReplacementTest, TheRingGoesOnWithoutRanksThatNobodyTakesUntilSomebodyDoes) {
  ManualClock clock;
  clock_ = &clock;
  const auto ranks = Make();
  const auto is_up_after = [&](int32_t rank) {
    return testing::Eventually([&] { return ranks->TakeLost() == std::vector<int32_t>{rank}; }) &&
           IsUpSoon(*ranks);
  };
  for (int32_t turn = 0; turn < 2; ++turn) {
    SCOPED_TRACE(turn);
    second_->pair().Cut();
    ASSERT_TRUE(testing::Eventually([&] { return ranks->state() == RanksState::kMending; }));
    EXPECT_THAT(ranks->TakeLost(), ElementsAre(2));
    EXPECT_TRUE(ranks->is_hosted(2));
    clock.Advance(59s);
    EXPECT_EQ(ranks->state(), RanksState::kMending);
    clock.Advance(1s);
    ASSERT_TRUE(is_up_after(2)) << ranks->awaited();
    EXPECT_FALSE(ranks->is_hosted(2));
    EXPECT_TRUE(ranks->is_hosted(1));
    EXPECT_EQ(ranks->transport(), "wires between 2 processes");
    EXPECT_THAT(ranks->awaited(), HasSubstr("a host for rank 2"));
    ExpectRuns(*ranks, 2 * turn + 1, 2);
    // Whoever comes amid a step waits for its end.
    ASSERT_EQ(ranks->Start(Plan(2 * turn + 2, 2)), absl::OkStatus());
    second_ = &ring_.Add("c" + std::to_string(turn), 1);
    ASSERT_TRUE(testing::Eventually([&] { return !ranks->takes_successors(); }));
    EXPECT_EQ(ranks->state(), RanksState::kUp);
    EXPECT_EQ(ranks->Results().status(), absl::OkStatus());
    EXPECT_EQ(ranks->state(), RanksState::kMending);
    EXPECT_THAT(ranks->TakeLost(), IsEmpty());
    ASSERT_TRUE(is_up_after(2)) << ranks->awaited();
    EXPECT_TRUE(ranks->is_hosted(2));
    EXPECT_EQ(ranks->awaited(), "");
    ExpectRuns(*ranks, 2 * turn + 1);
  }
}

TEST_F(ReplacementTest, TwoAtOnceAndTwiceRunning) {
  const auto ranks = Make();
  std::vector<WorkerThread*> hosts = {first_, second_};
  for (int turn = 0; turn < 3; ++turn) {
    SCOPED_TRACE(::testing::Message() << "turn " << turn);
    for (WorkerThread* const host : hosts) LoseAtNextStep(*host);
    hosts.clear();
    for (const char* name : {"x", "y"}) {
      hosts.push_back(&AddSpare(*ranks, name + std::to_string(turn)));
    }
    ASSERT_EQ(ranks->Start(Plan(turn + 1)), absl::OkStatus());
    EXPECT_FALSE(ranks->Results().ok());
    std::set<int32_t> lost;
    ASSERT_TRUE(testing::Eventually([&] {
      for (const int32_t rank : ranks->TakeLost()) lost.insert(rank);
      return ranks->state() == RanksState::kUp;
    })) << ranks->awaited();
    EXPECT_THAT(lost, ElementsAre(1, 2));
  }
  ExpectRuns(*ranks);
}

TEST_F(ReplacementTest, ASpareThatCannotTakeTheRanksMakesRoomForTheNext) {
  const auto ranks = Make();
  WorkerRanksOptions small = ring_.WorkerOptionsOf("small", 1);
  small.check_memory = [](const RankSetOptions&) {
    return absl::ResourceExhaustedError("8 MiB are wanted, and 5 MiB are free");
  };
  WorkerThread& spare = ring_.Add(small);
  ASSERT_TRUE(
      testing::Eventually([&] { return ranks->transport().find("small") != std::string::npos; }));
  first_->pair().Cut();
  ASSERT_TRUE(ring_.source().WaitForReport("a host for rank 1"));
  EXPECT_EQ(spare.Join().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(ring_.source().WaitForReport("5 MiB are free"));
  EXPECT_THAT(ranks->TakeLost(), ElementsAre(1));
  EXPECT_EQ(ranks->state(), RanksState::kMending);
  ring_.Add("c", 1);
  ASSERT_TRUE(IsUpSoon(*ranks)) << ranks->awaited();
  ExpectRuns(*ranks);
}

// Cut at each word that it hears on its way into the ring.
TEST_F(ReplacementTest, ASpareThatDiesWhileItIsTakenLeadsToTheNext) {
  using Heard = bool (*)(const wire::ToWorker&);
  const Heard words[] = {[](const auto& word) { return word.has_assign(); },
                         [](const auto& word) { return word.has_form(); }};
  for (const Heard heard : words) {
    testing::WorkerRing ring(world_, model_);
    WorkerThread& first = ring.Add("a", 2);
    const auto ranks = ring.Create(ring.OptionsOf(1, kRanks)).value();
    WorkerThread& spare = ring.Add("b", 2);
    spare.pair().ToWorker([&spare, heard](std::string& bytes) {
      if (!heard(DecodeToWorker(bytes).value())) return true;
      spare.pair().Cut();
      return false;
    });
    ASSERT_TRUE(testing::Eventually(
        [&] { return ranks->transport().find("spare workers: b") != std::string::npos; }));
    ring.Add("c", 2);
    ASSERT_TRUE(testing::Eventually(
        [&] { return ranks->transport().find("spare workers: b, c") != std::string::npos; }));
    first.pair().Cut();
    ASSERT_TRUE(testing::Eventually([&] { return ranks->state() != RanksState::kUp; }));
    ASSERT_TRUE(testing::Eventually([&] {
      ranks->TakeLost();
      return ranks->state() == RanksState::kUp;
    })) << ranks->awaited();
    EXPECT_EQ(ranks->transport(), "wires between 2 processes");
    ExpectRuns(*ranks);
  }
}

TEST_F(ReplacementTest, AWorkerThatFitsNobodysPlaceIsRefused) {
  const auto ranks = Make();
  WorkerThread& big = ring_.Add("big", 2);
  EXPECT_THAT(std::string(big.Join().message()),
              AllOf(HasSubstr("hosts 2 ranks"), HasSubstr("those of this ring host 1")));
  EXPECT_EQ(ranks->state(), RanksState::kUp);
}

TEST_F(ReplacementTest, ASpareIsToldThatItIsOne) {
  const auto ranks = Make();
  const auto pair = std::make_shared<LinkedPair>("x");
  ScriptedWorker spare(LinkedPair::End(pair, 1));
  ring_.source().Add(LinkedPair::End(pair, 0));
  wire::FromWorker message;
  wire::Hello& hello = *message.mutable_hello();
  hello.set_protocol(kWorkerProtocol);
  hello.set_name("c");
  hello.set_build(options_.agreement.build);
  hello.set_kernels(options_.agreement.kernels);
  hello.set_page_layout(options_.agreement.page_layout);
  hello.set_fingerprint(options_.agreement.fingerprint);
  hello.set_ranks(1);
  spare.Say(Encode(message));
  EXPECT_TRUE(spare.Hear(
      [](const std::string& bytes) { return DecodeToWorker(bytes).value().has_spare(); }));
  // A spare that says what only hosts say is at fault, and disturbs nobody.
  message.mutable_result()->set_epoch(1);
  spare.Say(Encode(message));
  EXPECT_THAT(std::string(spare.WaitClosed().message()), HasSubstr("before it has ranks"));
  ExpectRuns(*ranks);
}

TEST_F(ReplacementTest, RanksThatWaitForAWorkerEndAtOnce) {
  auto ranks = Make();
  first_->pair().Cut();
  ASSERT_TRUE(testing::Eventually([&] { return ranks->state() == RanksState::kMending; }));
  ranks->TakeLost();
  ranks.reset();
  EXPECT_EQ(second_->Join(), absl::OkStatus());
}

TEST_F(ReplacementTest, AWorkerBeatsAndLetsGoByWhatItsCoordinatorHasTold) {
  for (const auto& [silence, beat, limit] :
       {std::tuple(800ms, 100ms, "600 ms"), std::tuple(2000ms, 250ms, "1500 ms"),
        std::tuple(60'000ms, 250ms, "45000 ms")}) {
    SCOPED_TRACE(limit);
    ManualClock clock;
    testing::WorkerRing ring(world_, model_);
    WorkerRanksOptions options = ring.WorkerOptionsOf("a", 2);
    options.clock = &clock;
    WorkerThread& worker = ring.Add(options);
    RemoteRanksOptions told = ring.OptionsOf(1, kRanks);
    told.silence = silence;
    told.set.clock = &clock;
    std::atomic<int> beats{0};
    worker.pair().FromWorker([&beats](std::string& bytes) {
      if (DecodeFromWorker(bytes).value().has_beat()) ++beats;
      return true;
    });
    const auto ranks = ring.Create(told).value();
    ExpectRuns(*ranks);
    const auto have_come = [&beats](int n) {
      return testing::Eventually([&beats, n] { return beats == n; });
    };
    ASSERT_TRUE(have_come(1));
    clock.Advance(250ms);  // the first wait may have begun before the worker was told
    ASSERT_TRUE(have_come(2));
    for (int n = 3; n < 6; ++n) {
      clock.Advance(beat - 1ms);
      EXPECT_LT(beats, n);
      clock.Advance(1ms);
      ASSERT_TRUE(have_come(n));
    }
    worker.pair().ToWorker([](std::string&) { return false; });
    std::atomic<bool> over{false};
    absl::Status ended;
    std::thread waiter([&] {
      ended = worker.Join();
      over = true;
    });
    for (int n = 6; !over && !HasFailure(); ++n) {
      clock.Advance(beat);
      EXPECT_TRUE(testing::Eventually([&, n] { return over || beats >= n; }));
    }
    if (!over) worker.pair().Cut();
    waiter.join();
    EXPECT_EQ(ended,
              absl::UnavailableError("the coordinator has said nothing for " + std::string(limit)));
    ASSERT_TRUE(testing::Eventually([&] { return ranks->state() == RanksState::kMending; }));
  }
}

}  // namespace
}  // namespace annulus
