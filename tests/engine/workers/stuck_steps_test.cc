// Workers that say that they are alive while their steps make no progress, or little.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "engine/workers/control_messages.h"
#include "tests/engine/workers/recall_ring.h"
#include "tests/support/eventually.h"
#include "tests/support/manual_clock.h"

namespace annulus {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::WorkerThread;

// Attention whose calls wait until a test lets each of them go on.
class HeldAttention {
 public:
  explicit HeldAttention(OpTable& ops) {
    held_ = this;
    real_ = std::exchange(ops.attention, &Attend);
  }
  ~HeldAttention() { held_ = nullptr; }

  bool holds_one() const {
    std::lock_guard lock(mutex_);
    return come_ > gone_;
  }
  void LetOne() {
    std::lock_guard lock(mutex_);
    ++gone_;
    changed_.notify_all();
  }
  void LetAll() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  static absl::Status Attend(Stream& stream, const AttentionParams& params) {
    held_->Pass();
    return held_->real_(stream, params);
  }
  void Pass() {
    std::unique_lock lock(mutex_);
    const int turn = ++come_;
    EXPECT_TRUE(changed_.wait_for(lock, 2min, [&] { return open_ || gone_ >= turn; }));
  }

  static inline HeldAttention* held_ = nullptr;
  absl::Status (*real_)(Stream&, const AttentionParams&) = nullptr;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int come_ = 0;  // calls
  int gone_ = 0;
  bool open_ = false;
};

// Outlives the threads of the ring's workers.
struct OneClock {
  testing::ManualClock clock_;
};

// Rank 0 is here, rank 1 at worker "a", and rank 2 at "b", which each test makes. All have one
// clock, which moves by the period of beats.
class StuckStepsTest : protected OneClock, public testing::RecallRing {
 protected:
  StuckStepsTest() {
    options_.set.clock = &clock_;
    options_.set.engine.exchange_timeout = 10s;
    options_.silence = kSilence;
    options_.on_loss = [this](RingLoss loss) {
      if (loss == RingLoss::kSilent) ++silent_;
      if (loss != RingLoss::kWire) ++losses_;
    };
  }

  WorkerRanksOptions WorkerOptions(const std::string& name) {
    WorkerRanksOptions options = ring_.WorkerOptionsOf(name, 1);
    options.clock = &clock_;
    return options;
  }
  // MoveOn waits for what its coordinator tells it, too.
  WorkerThread& Follow(WorkerThread& worker) {
    const auto told = told_.emplace_back(std::make_shared<std::atomic<int>>(0));
    worker.pair().ToWorker([told](std::string& bytes) {
      if (DecodeToWorker(bytes).value().has_progress()) ++*told;
      return true;
    });
    return worker;
  }
  WorkerThread& Add(const std::string& name) { return Follow(ring_.Add(WorkerOptions(name))); }
  std::unique_ptr<RemoteRanks> Make() {
    Add("a");
    return ring_.Create(options_).value();
  }
  void AddSpare(RemoteRanks& ranks) {
    Add("c");
    ASSERT_TRUE(testing::Eventually(
        [&] { return absl::StrContains(ranks.transport(), "; spare workers: c"); }));
  }

  // A beat of each worker later. They and their coordinator have heard each other then, unless one
  // is lost.
  void MoveOn(const RemoteRanks& ranks) {
    std::vector<int> before;
    for (const auto& told : told_) before.push_back(*told);
    clock_.Advance(kBeat);
    moved_ += kBeat;
    for (size_t i = 0; i < told_.size(); ++i) {
      ASSERT_TRUE(testing::Eventually([&] { return losses_ > 0 || *told_[i] > before[i]; }));
    }
    ASSERT_TRUE(testing::Eventually([&] {
      const RingLoad load = ranks.workers();
      return std::all_of(load.workers.begin(), load.workers.end(), [](const WorkerLoad& worker) {
        return worker.lost || worker.silent_seconds == 0;
      });
    }));
  }
  // Until a worker is lost. Returns how the step that was started ended.
  absl::Status MoveOnUntilALoss(RemoteRanks& ranks) {
    absl::Status ended;
    std::thread results([&] { ended = ranks.Results().status(); });
    while (silent_ == 0 && moved_ < 1min && !HasFailure()) MoveOn(ranks);
    if (silent_ == 0) clock_.Advance(1h);  // all waits end
    results.join();
    return ended;
  }
  void ExpectRuns(RemoteRanks& ranks, int32_t sequence) {
    EXPECT_EQ(ranks.Run(Plan(sequence)).value().back().logits, LogitsInOneProcess(sequence));
  }
  // Its rank is with the spare.
  void ExpectReplaced(RemoteRanks& ranks, WorkerThread& lost) {
    const std::string why =
        "worker \"b\" at the pair of b with rank 2 is lost: it says that it is alive, and its step "
        "has made no progress for 12000 ms";
    EXPECT_GE(moved_, 12s);
    EXPECT_LE(moved_, 18s) << "the coordinator may look a few beats late";
    EXPECT_TRUE(ring_.source().WaitForReport("worker \"c\" to take rank 2, as " + why));
    EXPECT_THAT(ranks.TakeLost(), ElementsAre(2));
    ASSERT_TRUE(testing::Eventually([&] { return ranks.state() == RanksState::kUp; }))
        << ranks.awaited();
    EXPECT_THAT(ranks.TakeLost(), IsEmpty());
    EXPECT_EQ(ranks.awaited(), "");
    ExpectRuns(ranks, 2);
    EXPECT_EQ(silent_, 1);
    EXPECT_THAT(std::string(lost.Join().message()), HasSubstr(why));
  }

  static constexpr std::chrono::milliseconds kSilence{2'000};
  static constexpr std::chrono::milliseconds kBeat = BeatPeriodOf(kSilence);

  RemoteRanksOptions options_ = ring_.OptionsOf(1, kRanks);
  std::chrono::milliseconds moved_{0};
  std::vector<std::shared_ptr<std::atomic<int>>> told_;  // of workers: how often
  std::atomic<int> losses_{0};                           // of workers
  std::atomic<int> silent_{0};                           // of these, by silence
};

TEST_F(StuckStepsTest, AWorkerThatNeverSaysItsResultsIsLostAndASpareTakesItsRank) {
  std::atomic<bool> ended_there{false};
  WorkerThread& lost = Add("b");
  const auto ranks = Make();
  AddSpare(*ranks);
  lost.pair().FromWorker([&ended_there](std::string& bytes) {
    if (!DecodeFromWorker(bytes).value().has_result()) return true;
    ended_there = true;
    return false;
  });
  ASSERT_EQ(ranks->Start(Plan(1)), absl::OkStatus());
  ASSERT_TRUE(testing::Eventually([&] { return ended_there.load(); }));
  const absl::Status ended = MoveOnUntilALoss(*ranks);
  EXPECT_EQ(ended.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(ended.message()), HasSubstr("worker \"b\""));
  ExpectReplaced(*ranks, lost);
}

// A worker whose attention the test holds up.
class HeldStepsTest : public StuckStepsTest {
 protected:
  ~HeldStepsTest() override { attention_.LetAll(); }

  OpTable ops_ = *model_.ops;
  HeldAttention attention_{ops_};
  const RankModel slow_ = MakeRankModel(
      RecallConfig(3),
      LoadWeights(RecallConfig(3), *MakeRecallTensors(3), *world_.backend, *model_.ops, {}).value(),
      ops_, kPage, DType::kF32);
  WorkerThread worker_{world_, slow_, WorkerOptions("b")};
};

TEST_F(HeldStepsTest, AWorkerWhoseStepHangsIsLostAndASpareTakesItsRank) {
  ring_.source().Add(Follow(worker_).CoordinatorEnd());
  const auto ranks = Make();
  AddSpare(*ranks);
  ASSERT_EQ(ranks->Start(Plan(1)), absl::OkStatus());
  ASSERT_TRUE(testing::Eventually([&] { return attention_.holds_one(); }));
  EXPECT_FALSE(MoveOnUntilALoss(*ranks).ok());
  attention_.LetAll();  // it comes too late
  ExpectReplaced(*ranks, worker_);
}

TEST_F(HeldStepsTest, AWorkerWhoseStepGoesOnSlowlyIsNotLost) {
  ring_.source().Add(Follow(worker_).CoordinatorEnd());
  const auto ranks = Make();
  ASSERT_EQ(ranks->Start(Plan(1)), absl::OkStatus());
  absl::StatusOr<std::vector<RankResult>> results = absl::UnknownError("none yet");
  std::atomic<bool> ended{false};
  std::thread taker([&] {
    results = ranks->Results();
    ended = true;
  });
  const auto waits = [&] {
    return testing::Eventually([&] { return ended || attention_.holds_one(); }) && !ended;
  };
  while (waits() && !HasFailure()) {
    for (int beat = 0; beat < 5s / kBeat; ++beat) MoveOn(*ranks);
    attention_.LetOne();
  }
  if (HasFailure()) clock_.Advance(1h);
  taker.join();
  ASSERT_EQ(results.status(), absl::OkStatus());
  EXPECT_EQ(results->back().logits, LogitsInOneProcess(1));
  EXPECT_GT(moved_, 2 * 12s) << "twice as long as a step may be silent";
  EXPECT_EQ(silent_, 0);
}

// What its beats say of its work becomes this, from the n-th on: 0, 1, ..
using ChangeBeat = void (*)(int n, wire::Beat& beat);

class WrongBeatTest : public StuckStepsTest, public ::testing::WithParamInterface<ChangeBeat> {};

TEST_P(WrongBeatTest, LosesTheWorker) {
  WorkerThread& worker = Add("b");
  const auto ranks = Make();
  worker.pair().FromWorker([n = std::make_shared<int>(0)](std::string& bytes) {
    wire::FromWorker message = DecodeFromWorker(bytes).value();
    if (message.has_beat()) GetParam()((*n)++, *message.mutable_beat());
    bytes = Encode(message);
    return true;
  });
  while (losses_ == 0 && moved_ < 10s && !HasFailure()) MoveOn(*ranks);
  ASSERT_EQ(losses_, 1);
  EXPECT_THAT(std::string(worker.Join().message()),
              AllOf(HasSubstr("worker \"b\""), HasSubstr("it sent that ")));
}

INSTANTIATE_TEST_SUITE_P(All, WrongBeatTest,
                         ::testing::Values([](int, wire::Beat& beat) { beat.set_running(2); },
                                           [](int, wire::Beat& beat) { beat.set_running(-1); },
                                           [](int, wire::Beat& beat) { beat.set_waiting(1); },
                                           [](int n, wire::Beat& beat) {
                                             beat.set_advances(static_cast<uint64_t>(9 - n));
                                           }));

}  // namespace
}  // namespace annulus
