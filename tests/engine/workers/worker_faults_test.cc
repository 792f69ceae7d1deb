// What goes wrong on a worker's side of a ring.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/workers/control_messages.h"
#include "tests/engine/workers/recall_ring.h"
#include "tests/support/eventually.h"
#include "tests/support/hooked_carrier.h"

namespace annulus {
namespace {

using ::testing::AllOf;
using testing::Door;
using ::testing::HasSubstr;

using WorkerFaultsTest = testing::RecallRing;

TEST_F(WorkerFaultsTest, ARankThatDoesNotEndIsReportedBeforeTheWorkerWaitsForIt) {
  Door door;
  Door told;
  std::string why;
  WorkerRanksOptions options = ring_.WorkerOptionsOf("one", 2);
  options.open_carrier = [&door] {
    return std::make_unique<testing::HookedCarrier>([&door] { door.Pass(); });
  };
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
