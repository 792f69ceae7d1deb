#include "engine/coordinator/command_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "engine/base/error_payloads.h"
#include "engine/text/tokenizer.h"
#include "tests/support/collecting_sink.h"
#include "tests/support/manual_clock.h"

namespace annulus::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CommandQueueTest : public ::testing::Test {
 protected:
  absl::Status Submit(RequestId id, std::shared_ptr<CollectingSink> sink = {}) {
    return queue_.Submit(Make(id, "", std::move(sink)));
  }
  std::unique_ptr<Request> Make(RequestId id, std::string client,
                                std::shared_ptr<CollectingSink> sink = {}) {
    RequestSpec spec;
    spec.prompt = {1, 2, 3};
    spec.client = std::move(client);
    if (sink == nullptr) sink = std::make_shared<CollectingSink>();
    return std::make_unique<Request>(id, std::move(spec), std::move(sink), *tokenizer_, clock_);
  }
  std::vector<RequestId> TakeRequests() {
    std::vector<RequestId> ids;
    for (const auto& request : queue_.Take().requests) {
      if (request != nullptr) ids.push_back(request->id());
    }
    return ids;
  }

  ManualClock clock_;
  EngineMetrics metrics_{1, ModelInfo()};
  std::unique_ptr<Tokenizer> tokenizer_ = MakeByteTokenizer();
  CommandQueue queue_{/*max_waiting=*/2, metrics_, clock_};
};

// They count until they run or end, not until the loop has taken them.
TEST_F(CommandQueueTest, NoMoreThanSoManyRequestsWait) {
  ASSERT_TRUE(Submit(1).ok() && Submit(2).ok());
  queue_.set_turnover(0.75);
  const absl::Status full = Submit(3);
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(full.GetPayload(kRetryPayload), absl::Cord("1500"));
  EXPECT_EQ(queue_.Check(""), full);
  EXPECT_THAT(TakeRequests(), ElementsAre(1, 2));
  EXPECT_FALSE(queue_.Check("").ok()) << "they still wait";
  queue_.EndWait(1);
  EXPECT_TRUE(queue_.Check("").ok());
  queue_.EndWait(1);
  ASSERT_TRUE(Submit(4).ok());
  EXPECT_FALSE(queue_.Check("").ok()) << "it has ended its wait once already";
  queue_.Forget(4);
  queue_.WaitAgain(1);
  EXPECT_FALSE(queue_.Check("").ok()) << "it was preempted";
  queue_.Forget(1);
  queue_.EndWait(2);
  EXPECT_TRUE(Submit(5).ok());
}

// What waits of one client leaves an eighth of the places to others.
TEST_F(CommandQueueTest, OneClientDoesNotTakeAllPlaces) {
  CommandQueue queue(/*max_waiting=*/16, metrics_, clock_);
  const std::string eager = ShareName{TenantId().name(), "eager"}.owner();
  const std::string other = ShareName{TenantId().name(), "other"}.owner();
  RequestId id = 0;
  while (queue.Check(eager).ok()) ASSERT_TRUE(queue.Submit(Make(++id, "eager")).ok());
  EXPECT_EQ(id, 14u);
  const absl::Status refused = queue.Submit(Make(100, "eager"));
  EXPECT_EQ(refused, queue.Check(eager));
  EXPECT_THAT(refused.message(), HasSubstr("your share of the queue is full: at most 14 requests"));
  EXPECT_TRUE(queue.Check(other).ok());
  EXPECT_TRUE(queue.Submit(Make(101, "other")).ok());
  queue.EndWait(1);
  EXPECT_TRUE(queue.Submit(Make(102, "eager")).ok());
  EXPECT_TRUE(queue.Submit(Make(103, "other")).ok());
  EXPECT_THAT(queue.Check(other).message(), HasSubstr("the queue is full: at most 16 requests"));
}

// A step may be long, and clients may come and leave while it runs.
TEST_F(CommandQueueTest, ACancelledRequestMakesRoomAtOnce) {
  for (RequestId id = 1; id <= 4000; ++id) {
    ASSERT_TRUE(Submit(id).ok()) << id;
    queue_.Cancel(id);
  }
  ASSERT_TRUE(Submit(5001).ok() && Submit(5002).ok()) << "a place for each";
  EXPECT_FALSE(Submit(5003).ok());
  const CommandQueue::Commands commands = queue_.Take();
  EXPECT_EQ(commands.cancels.size(), 4000u);
  EXPECT_EQ(commands.requests.size(), 4003u) << "one wake-up for all";
  for (const RequestId id : commands.cancels) queue_.Forget(id);
  EXPECT_FALSE(queue_.Check("").ok()) << "each leaves once";
}

// Its cancel may come between two of the loop's steps.
TEST_F(CommandQueueTest, ACancelledRequestThatIsPreemptedDoesNotWait) {
  ASSERT_TRUE(Submit(1).ok() && Submit(2).ok());
  queue_.EndWait(1);
  queue_.Cancel(1);
  queue_.WaitAgain(1);
  EXPECT_TRUE(Submit(3).ok());
}

TEST_F(CommandQueueTest, ACancelIsTakenOnceAndOnlyForWhoIsThere) {
  queue_.Cancel(1);
  EXPECT_THAT(queue_.Take().cancels, IsEmpty()) << "it is unknown";
  ASSERT_TRUE(Submit(1).ok() && Submit(2).ok());
  queue_.Cancel(1);
  queue_.Cancel(1);
  EXPECT_THAT(queue_.Take().cancels, ElementsAre(1));
  EXPECT_THAT(queue_.Take().cancels, IsEmpty());
  queue_.Cancel(2);
  queue_.Forget(2);
  EXPECT_THAT(queue_.Take().cancels, IsEmpty()) << "it ended before the loop took that";
  queue_.Cancel(2);
  EXPECT_THAT(queue_.Take().cancels, IsEmpty());
}

TEST_F(CommandQueueTest, TellsOnlyIfTheLoopIsBusyThatARequestWaits) {
  const auto idle = std::make_shared<CollectingSink>();
  ASSERT_TRUE(Submit(1, idle).ok());
  EXPECT_THAT(idle->queued(), IsEmpty());
  queue_.set_busy(true);
  const auto busy = std::make_shared<CollectingSink>();
  ASSERT_TRUE(Submit(2, busy).ok());
  EXPECT_THAT(busy->queued(), ElementsAre(1));
}

TEST_F(CommandQueueTest, WaitEndsWithARequestAWakeUpOrTheTime) {
  queue_.Wake();
  EXPECT_EQ(queue_.Wait(SteadyTime::max()), nullptr);
  ASSERT_TRUE(Submit(1).ok());
  const auto request = queue_.Wait(SteadyTime::max());
  ASSERT_NE(request, nullptr);
  EXPECT_EQ(request->id(), 1u);
  EXPECT_EQ(queue_.Wait(clock_.Now()), nullptr);
}

TEST_F(CommandQueueTest, AfterCloseWhatWasAcceptedIsStillTaken) {
  ASSERT_TRUE(Submit(1).ok());
  queue_.Close();
  EXPECT_FALSE(Submit(2).ok());
  EXPECT_THAT(TakeRequests(), ElementsAre(1));
  queue_.Forget(1);
  EXPECT_TRUE(queue_.Check("").ok());
}

}  // namespace
}  // namespace annulus::testing
