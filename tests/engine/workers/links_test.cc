// Links between processes, timed whenever the ring has formed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/codec/status_message.h"
#include "engine/workers/control_messages.h"
#include "tests/engine/workers/recall_ring.h"
#include "tests/support/hooked_carrier.h"
#include "tests/support/manual_clock.h"

namespace annulus {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::WorkerThread;

class LinksTest : public testing::RecallRing {
 protected:
  LinksTest() {
    options_.time_links = true;
    options_.replacement_timeout = std::chrono::milliseconds(0);
    options_.on_loss = [this](RingLoss loss) {
      const std::lock_guard lock(mutex_);
      losses_.push_back(loss);
    };
    a_.pair().ToWorker([this](std::string& bytes) {
      wire::ToWorker message = DecodeToWorker(bytes).value();
      const std::lock_guard lock(mutex_);
      if (!message.has_probe()) return true;
      epochs_.push_back(message.probe().epoch());
      if (message.probe().epoch() >= spoiled_from_ && message.probe().epoch() <= spoiled_to_) {
        message.mutable_probe()->set_bytes(0);
        bytes = Encode(message);
      }
      return !drops_probes_;
    });
  }

  // Probes of these epochs cannot be done.
  void Spoil(uint64_t from, uint64_t to) {
    const std::lock_guard lock(mutex_);
    spoiled_from_ = from;
    spoiled_to_ = to;
  }
  void DropProbes() {
    const std::lock_guard lock(mutex_);
    drops_probes_ = true;
  }

  // Those in which worker "a" was asked to time links.
  std::vector<uint64_t> epochs() const {
    const std::lock_guard lock(mutex_);
    return epochs_;
  }
  bool IsAskedIn(uint64_t epoch) const {
    return testing::Eventually([&] {
      const std::vector<uint64_t> asked = epochs();
      return std::find(asked.begin(), asked.end(), epoch) != asked.end();
    });
  }
  std::vector<RingLoss> losses() const {
    const std::lock_guard lock(mutex_);
    return losses_;
  }
  // Which the ring forms anew after.
  void FailStep(RemoteRanks& ranks) {
    StepPlan unknown = *Plan();  // no rank knows its sequence
    unknown.updates.clear();
    ASSERT_FALSE(ranks.Run(std::make_shared<StepPlan>(unknown)).ok());
  }
  // The ring forms anew, as epoch `epoch`.
  static bool IsUpIn(RemoteRanks& ranks, uint64_t epoch) {
    return testing::Eventually([&] {
      ranks.TakeLost();
      return ranks.state() == RanksState::kUp && ranks.workers().epoch == epoch;
    });
  }
  void ExpectLogits(RemoteRanks& ranks) {
    EXPECT_EQ(ranks.Run(Plan()).value().back().logits, LogitsInOneProcess());
  }

  mutable std::mutex mutex_;  // guards what follows, up to a_
  std::vector<uint64_t> epochs_;
  std::vector<RingLoss> losses_;
  uint64_t spoiled_from_ = std::numeric_limits<uint64_t>::max();
  uint64_t spoiled_to_ = 0;
  bool drops_probes_ = false;
  std::atomic<int> answers_{0};  // of workers to probes, where a test counts them
  WorkerThread& a_ = ring_.Add("a", 1);
  WorkerThread& b_ = ring_.Add("b", 1);
  RemoteRanksOptions options_ = ring_.OptionsOf(1, kRanks);
};

TEST_F(LinksTest, AreTimedAgainWhenTheRingShrinks) {
  const auto ranks = ring_.Create(options_).value();
  ASSERT_TRUE(ranks->links().has_value());
  EXPECT_GT(ranks->links()->message_seconds, 0);
  EXPECT_GT(ranks->links()->bytes_per_second, 0);
  EXPECT_THAT(epochs(), AllOf(Contains(1), Not(Contains(2))));
  ExpectLogits(*ranks);
  b_.pair().Cut();
  ASSERT_TRUE(IsUpIn(*ranks, 2));
  EXPECT_FALSE(ranks->is_hosted(2));
  EXPECT_THAT(epochs(), Contains(2));
  EXPECT_TRUE(ranks->links().has_value());
  a_.pair().Cut();
  ASSERT_TRUE(IsUpIn(*ranks, 3));
  EXPECT_FALSE(ranks->links().has_value()) << "one rank has no links";
}

TEST_F(LinksTest, AProbeThatFailsEndsNobody) {
  const auto ranks = ring_.Create(options_).value();
  Spoil(2, 2);
  FailStep(*ranks);
  ASSERT_TRUE(IsUpIn(*ranks, 3));
  EXPECT_THAT(epochs(), AllOf(Contains(2), Contains(3)));
  ExpectLogits(*ranks);
}

TEST_F(LinksTest, ThatCannotBeTimedKeepNoRingFromServing) {
  const auto ranks = ring_.Create(options_).value();
  Spoil(2, 99);
  FailStep(*ranks);
  ASSERT_TRUE(IsUpIn(*ranks, 4));
  EXPECT_THAT(epochs(), AllOf(Contains(2), Contains(3), Not(Contains(4))));
  EXPECT_FALSE(ranks->links().has_value());
  ExpectLogits(*ranks);
  Spoil(99, 99);
  b_.pair().Cut();
  ASSERT_TRUE(IsUpIn(*ranks, 5));
  EXPECT_TRUE(ranks->links().has_value()) << "these are other links";
}

// Each takes the place of the one before it.
TEST_F(LinksTest, WorkersThatProbesLoseKeepNoRingFromServing) {
  WorkerThread more[] = {{world_, model_, ring_.WorkerOptionsOf("c", 1)},
                         {world_, model_, ring_.WorkerOptionsOf("d", 1)},
                         {world_, model_, ring_.WorkerOptionsOf("e", 1)}};
  const auto spoil = [](WorkerThread& worker) {
    worker.pair().FromWorker([](std::string& bytes) {
      wire::FromWorker message = DecodeFromWorker(bytes).value();
      if (message.has_probed()) message.mutable_probed()->set_seconds(-1);
      bytes = Encode(message);
      return true;
    });
  };
  options_.replacement_timeout = std::chrono::minutes(1);
  spoil(a_);
  const auto ranks = ring_.Create(options_).value();
  for (WorkerThread& worker : more) {
    spoil(worker);
    ring_.source().Add(worker.CoordinatorEnd());
  }
  ASSERT_TRUE(IsUpIn(*ranks, 3)) << ranks->awaited();
  EXPECT_EQ(losses(), std::vector<RingLoss>(2, RingLoss::kMessage));
  EXPECT_FALSE(ranks->links().has_value());
  ExpectLogits(*ranks);
  b_.pair().Cut();
  EXPECT_TRUE(testing::Eventually([&] {
    ranks->TakeLost();
    return losses().size() > 3;
  })) << "these are other links, so they are timed";
}

// It says that it is alive.
TEST_F(LinksTest, AWorkerThatDoesNotEndAProbeIsLost) {
  testing::ManualClock clock;
  WorkerThread& c = ring_.Add("c", 1);
  const auto on_loss = options_.on_loss;
  options_ = ring_.OptionsOf(0, kRanks);
  options_.time_links = true;
  options_.on_loss = on_loss;
  options_.set.clock = &clock;
  options_.silence = std::chrono::hours(24);
  const auto ranks = ring_.Create(options_).value();
  const auto answer = [this](std::string& bytes) {
    if (DecodeFromWorker(bytes).value().has_probed()) ++answers_;
    return true;
  };
  a_.pair().FromWorker(
      [](std::string& bytes) { return !DecodeFromWorker(bytes).value().has_probed(); });
  b_.pair().FromWorker(answer);
  c.pair().FromWorker(answer);
  FailStep(*ranks);
  ASSERT_TRUE(testing::Eventually([&] { return answers_ == 2; }));
  ASSERT_TRUE(clock.AdvanceUntil([&] { return !losses().empty(); }, std::chrono::seconds(1)));
  EXPECT_THAT(losses(), ElementsAre(RingLoss::kSilent));
  EXPECT_THAT(ranks->TakeLost(), ElementsAre(0));
  EXPECT_THAT(a_.Join().ToString(), HasSubstr("it has not timed its links within 61000 ms"));
}

// Its peer notices first.
TEST_F(LinksTest, ALossIsNotCountedAsOneOfMessages) {
  a_.pair().FromWorker([this](std::string& bytes) {
    if (answers_ > 0) b_.pair().Cut();
    wire::FromWorker message = DecodeFromWorker(bytes).value();
    if (!message.has_probed() || answers_++ > 0) return true;
    *message.mutable_probed()->mutable_status() =
        codec::ToMessage(absl::UnavailableError("rank 1 has lost rank 2"));
    bytes = Encode(message);
    return true;
  });
  const auto ranks = ring_.Create(options_).value();
  ASSERT_TRUE(IsUpIn(*ranks, 2));
  EXPECT_FALSE(ranks->is_hosted(2));
  EXPECT_THAT(losses(), ElementsAre(RingLoss::kClosed));
}

TEST_F(LinksTest, ACoordinatorThatLeavesWaitsForNoProbe) {
  auto ranks = ring_.Create(options_).value();
  DropProbes();
  FailStep(*ranks);
  ASSERT_TRUE(IsAskedIn(2));
  const auto begin = std::chrono::steady_clock::now();
  ranks.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, options_.set.engine.exchange_timeout);
}

TEST_F(LinksTest, AWorkerThatSaysWhatCannotBeIsLost) {
  a_.pair().FromWorker([](std::string& bytes) {
    wire::FromWorker message = DecodeFromWorker(bytes).value();
    if (message.has_probed()) message.mutable_probed()->set_seconds(std::nan(""));
    bytes = Encode(message);
    return true;
  });
  const auto ranks = ring_.Create(options_).value();
  ASSERT_TRUE(IsUpIn(*ranks, 2));  // without its rank
  EXPECT_FALSE(ranks->is_hosted(1));
  EXPECT_THAT(a_.Join().ToString(), HasSubstr("a probe of nan s"));
  EXPECT_TRUE(ranks->links().has_value());
}

// Outlives the threads of the ring's workers.
struct HangingParts {
  testing::ManualClock clock_;
  testing::Door door_{/*open=*/true};
};

// Rank 0 is here, rank 1 at worker "a" and rank 2 at "b", which has the same clock. A test has the
// wires of one of them hang in probes.
class HangingWireTest : protected HangingParts, public testing::RecallRing {
 protected:
  HangingWireTest() {
    options_.set.clock = &clock_;
    options_.silence = std::chrono::hours(24);
    options_.replacement_timeout = std::chrono::milliseconds(0);
    options_.time_links = true;
    ring_.Add("a", 1);
  }
  ~HangingWireTest() override { door_.Open(); }

  std::function<absl::StatusOr<std::unique_ptr<Carrier>>()> Hanging() {
    return [this] { return std::make_unique<testing::HookedCarrier>([this] { door_.Pass(); }); };
  }
  WorkerRanksOptions WorkerOptions() {
    WorkerRanksOptions options = ring_.WorkerOptionsOf("b", 1);
    options.clock = &clock_;
    return options;
  }
  // In a probe of the next epoch.
  void HangIn(RemoteRanks& ranks) {
    door_.Shut();
    StepPlan unknown = *Plan();  // no rank knows its sequence
    unknown.updates.clear();
    ASSERT_FALSE(ranks.Run(std::make_shared<StepPlan>(unknown)).ok());
    door_.WaitForSomebody();
  }

  RemoteRanksOptions options_ = ring_.OptionsOf(1, kRanks);
};

TEST_F(HangingWireTest, OfAWorkerEndsTheWorker) {
  std::atomic<bool> told{false};
  std::string why;
  WorkerRanksOptions options = WorkerOptions();
  options.open_carrier = Hanging();
  options.on_stuck = [&](const absl::Status& status) {
    why = std::string(status.message());
    told = true;
    door_.Open();  // instead of ending the process
  };
  WorkerThread& worker = ring_.Add(options);
  const auto ranks = ring_.Create(options_).value();
  HangIn(*ranks);
  EXPECT_TRUE(clock_.AdvanceUntil([&] { return told.load(); }));
  EXPECT_THAT(why, HasSubstr("the wire of rank 2 hangs in a probe of its links"));
  EXPECT_THAT(std::string(worker.Join().message()), HasSubstr(why));
  // The ring goes on without it.
  ASSERT_TRUE(clock_.AdvanceUntil([&] {
    ranks->TakeLost();
    return ranks->state() == RanksState::kUp && !ranks->is_hosted(2);
  }));
  EXPECT_EQ(ranks->Run(Plan(2, 2)).value().at(1).logits, LogitsInOneProcess(2, 2));
}

TEST_F(HangingWireTest, HereEndsTheRing) {
  ring_.Add(WorkerOptions());
  options_.open_carrier = Hanging();
  auto ranks = ring_.Create(options_).value();
  HangIn(*ranks);
  EXPECT_TRUE(clock_.AdvanceUntil([&] { return ranks->state() == RanksState::kLost; }));
  EXPECT_THAT(std::string(ranks->Start(Plan()).message()),
              HasSubstr("the wire of rank 0 hangs in a probe of its links; restart the process"));
  door_.Open();
  ranks.reset();  // waits for it
}

TEST_F(LinksTest, AreNotTimedUnlessSomebodyAsks) {
  options_.time_links = false;
  const auto ranks = ring_.Create(options_).value();
  EXPECT_FALSE(ranks->links().has_value());
  EXPECT_TRUE(epochs().empty());
}

TEST_F(LinksTest, AreTimedWithoutRanksHere) {
  ring_.Add("c", 1);
  options_ = ring_.OptionsOf(0, kRanks);
  options_.time_links = true;
  const auto ranks = ring_.Create(options_).value();
  EXPECT_TRUE(ranks->links().has_value());
  ExpectLogits(*ranks);
}

}  // namespace
}  // namespace annulus
