// What goes wrong on a worker's side of a ring.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/workers/control_messages.h"
#include "tests/engine/workers/recall_ring.h"
#include "tests/support/eventually.h"

namespace annulus {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::chrono::minutes kLimit{1};

// A door that all who come wait at until it opens.
class Door {
 public:
  void Pass() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    EXPECT_TRUE(changed_.wait_for(lock, kLimit, [this] { return open_; }));
  }
  void Open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void WaitForSomebody() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kLimit, [this] { return waiting_ > 0; }));
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int waiting_ = 0;
  bool open_ = false;
};

// A carrier of a library that hangs: whoever sends waits at the door, also if the wire was aborted.
class HangingCarrier final : public Carrier {
 public:
  explicit HangingCarrier(Door& door) : door_(door) {}
  void Start(CarrierSink& sink) override { carrier_.Start(sink); }
  const std::string& address() const override { return carrier_.address(); }
  absl::Status Connect(int own, std::span<const std::string> addresses) override {
    return carrier_.Connect(own, addresses);
  }
  void Send(int peer, const FrameHeaderBytes& header, const RingParts& parts, Done done) override {
    door_.Pass();
    carrier_.Send(peer, header, parts, std::move(done));
  }
  void Receive(uint64_t frame, std::vector<RingPlace> places, Done done) override {
    carrier_.Receive(frame, std::move(places), std::move(done));
  }
  void Drop(uint64_t frame) override { carrier_.Drop(frame); }

 private:
  Door& door_;
  testing::MemoryCarrier carrier_;
};

using WorkerFaultsTest = testing::RecallRing;

TEST_F(WorkerFaultsTest, ARankThatDoesNotEndIsReportedBeforeTheWorkerWaitsForIt) {
  Door door;
  Door told;
  std::string why;
  WorkerRanksOptions options = ring_.WorkerOptionsOf("one", 2);
  options.open_carrier = [&door] { return std::make_unique<HangingCarrier>(door); };
  options.on_stuck = [&](const absl::Status& status) {
    why = std::string(status.message());
    told.Open();
    door.Open();  // instead of ending the process
  };
  testing::WorkerThread& worker = ring_.Add(options);
  RemoteRanksOptions ring = ring_.OptionsOf(1, kRanks);
  ring.set.engine.exchange_timeout = std::chrono::milliseconds(200);
  auto ranks = ring_.Create(ring).value();
  ASSERT_EQ(ranks->Start(Plan()), absl::OkStatus());
  door.WaitForSomebody();
  ranks.reset();  // the coordinator leaves amid the step
  told.Pass();
  EXPECT_THAT(why, AllOf(HasSubstr("rank "), HasSubstr("did not answer within")));
  EXPECT_EQ(worker.Join(), absl::OkStatus());
}

TEST_F(WorkerFaultsTest, ACoordinatorThatTellsNoLimitsIsRefused) {
  using Fault = bool (*)(wire::ToWorker&);
  const std::pair<Fault, const char*> faults[] = {
      {[](wire::ToWorker& message) { return !message.has_welcome(); }, "another one first"},
      {[](wire::ToWorker& message) {
         if (!message.has_welcome()) message.mutable_welcome()->set_silence_ms(2000);
         return true;
       },
       "two messages of Welcome"},
      {[](wire::ToWorker& message) {
         if (message.has_welcome()) message.mutable_welcome()->set_silence_ms(99);
         return true;
       },
       "the silence of workers in ms 99; allowed are 100 to 86400000"},
  };
  for (const auto& [fault, why] : faults) {
    testing::WorkerRing ring(world_, model_);
    testing::WorkerThread& worker = ring.Add("one", 2);
    worker.pair().ToWorker([fault = fault](std::string& bytes) {
      wire::ToWorker message = DecodeToWorker(bytes).value();
      const bool arrives = fault(message);
      bytes = Encode(message);
      return arrives;
    });
    ring.source().EndAt("a host for");
    EXPECT_FALSE(ring.Create(ring.OptionsOf(1, kRanks)).ok());
    EXPECT_THAT(std::string(worker.Join().message()), HasSubstr(why));
  }
}

TEST_F(WorkerFaultsTest, ACoordinatorLearnsWhyWiresCannotBeOpenedAnew) {
  std::atomic<int> opened{0};
  WorkerRanksOptions options = ring_.WorkerOptionsOf("one", 2);
  options.open_carrier = [&opened]() -> absl::StatusOr<std::unique_ptr<Carrier>> {
    if (++opened > 2) return absl::ResourceExhaustedError("no file descriptor for a wire");
    return std::make_unique<testing::MemoryCarrier>();
  };
  testing::WorkerThread& worker = ring_.Add(options);
  const auto ranks = ring_.Create(ring_.OptionsOf(1, kRanks)).value();
  StepPlan unknown = *Plan();
  unknown.updates.clear();  // no rank knows the sequence
  EXPECT_FALSE(ranks->Run(std::make_shared<StepPlan>(unknown)).ok());
  ASSERT_TRUE(ring_.source().WaitForReport("no file descriptor for a wire"));
  EXPECT_THAT(ranks->awaited(), HasSubstr("worker \"one\""));
  EXPECT_THAT(std::string(worker.Join().message()), HasSubstr("no file descriptor for a wire"));
}

// Then no rank is at the coordinator, and the worker's set has the whole ring.
TEST_F(WorkerFaultsTest, AFailedStepEndsNobodyWhereOneWorkerHostsAllRanks) {
  ring_.Add("one", kRanks);
  const auto ranks = ring_.Create(ring_.OptionsOf(0, kRanks)).value();
  for (int32_t turn = 1; turn <= 3; ++turn) {
    StepPlan unknown = *Plan(turn);
    unknown.updates.clear();
    EXPECT_EQ(ranks->Run(std::make_shared<StepPlan>(unknown)).status().code(),
              absl::StatusCode::kInvalidArgument);
    ASSERT_TRUE(testing::Eventually([&] { return ranks->state() == RanksState::kUp; }));
    EXPECT_EQ(ranks->Run(Plan(turn)).value().back().logits, LogitsInOneProcess(turn));
  }
}

}  // namespace
}  // namespace annulus
