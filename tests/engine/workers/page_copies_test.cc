// When a coordinator has workers copy pages, and what becomes of those who answer as they may not,
// or cannot be told what they must know.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/codec/status_message.h"
#include "engine/workers/control_messages.h"
#include "engine/workers/ring_crew.h"
#include "tests/support/linked_workers.h"
#include "tests/support/manual_clock.h"

namespace annulus {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using testing::LinkedPair;
using testing::ScriptedWorker;

constexpr auto kPatience = 60s;

// Rank 0 is here, rank 1 at the worker "a", rank 2 at "b".
class PageCopiesTest : public ::testing::Test {
 protected:
  PageCopiesTest() {
    one_ = Dial("a");
    two_ = Dial("b");
    auto gathered = std::async(std::launch::async, [this] { return crew_.Gather(); });
    for (const auto& [worker, name] : {std::pair(one_.get(), "a"), std::pair(two_.get(), "b")}) {
      wire::FromWorker message;
      message.mutable_hello()->set_protocol(kWorkerProtocol);
      message.mutable_hello()->set_name(name);
      message.mutable_hello()->set_ranks(1);
      worker->Say(Encode(message));
    }
    EXPECT_EQ(gathered.get(), absl::OkStatus());
    OpenWires(1);
    EXPECT_EQ(crew_.Form(1, {"here"}).status(), absl::OkStatus());
    wire::FromWorker ready;
    *ready.mutable_ready()->add_ranks() = ToMessage(RankFacts{8, 64, "a device"});
    ready.mutable_ready()->set_visiting_pages(1);
    one_->Say(Encode(ready));
    two_->Say(Encode(ready));
    EXPECT_EQ(crew_.AwaitReady().status(), absl::OkStatus());
    EXPECT_EQ(crew_.Found(), absl::OkStatus());
  }

  std::unique_ptr<ScriptedWorker> Dial(const std::string& name) {
    const auto pair = pairs_[name] = std::make_shared<LinkedPair>(name);
    auto worker = std::make_unique<ScriptedWorker>(LinkedPair::End(pair, 1));
    source_.Add(LinkedPair::End(pair, 0));
    return worker;
  }
  void OpenWires(uint64_t epoch) {
    wire::FromWorker message;
    message.mutable_wire_ready()->set_epoch(epoch);
    message.mutable_wire_ready()->add_addresses("there");
    one_->Say(Encode(message));
    two_->Say(Encode(message));
  }

  RingCrewOptions Options() const {
    RingCrewOptions options;
    options.first_rank = 1;
    options.ranks = 3;
    options.silence = options.step_silence = options.step_limit = 24h;
    options.hello_timeout = options.forming_timeout = options.replacement_timeout = 24h;
    options.patience = kPatience;
    options.clock = &clock_;
    return options;
  }

  static std::string Text(const absl::StatusOr<bool>& result) {
    return std::string(result.status().message());
  }

  std::future<absl::StatusOr<bool>> BeginCopy(int rank) {
    return std::async(std::launch::async, [this, rank] {
      return crew_.Copy({wire::CopyPage::KIND_SAME, {rank, 3}, 0, {}, {rank, 4}});
    });
  }
  // The ticket of the next copy that the worker is asked for; 0: none came within a minute.
  static uint64_t HearCopy(ScriptedWorker& worker) {
    const auto heard = worker.Hear(
        [](const std::string& bytes) { return DecodeToWorker(bytes).value().has_copy(); });
    return heard.has_value() ? DecodeToWorker(*heard).value().copy().ticket() : 0;
  }
  static void SayCopied(ScriptedWorker& worker, uint64_t ticket) {
    wire::FromWorker message;
    message.mutable_copied()->set_ticket(ticket);
    message.mutable_copied()->set_same(true);
    worker.Say(Encode(message));
  }

  // There is no memory to send messages of this kind to the worker.
  void FailSends(const std::string& name, bool (wire::ToWorker::*has_kind)() const) {
    pairs_.at(name)->FailSends([has_kind](const std::string& bytes) {
      return (DecodeToWorker(bytes).value().*has_kind)();
    });
  }
  // The epoch of the next Form, or Abort, that the worker hears; 0: none came within a minute.
  static uint64_t HearForm(ScriptedWorker& worker) {
    const auto heard = worker.Hear(
        [](const std::string& bytes) { return DecodeToWorker(bytes).value().has_form(); });
    return heard.has_value() ? DecodeToWorker(*heard).value().form().epoch() : 0;
  }
  static uint64_t HearAbort(ScriptedWorker& worker) {
    const auto heard = worker.Hear(
        [](const std::string& bytes) { return DecodeToWorker(bytes).value().has_abort(); });
    return heard.has_value() ? DecodeToWorker(*heard).value().abort().epoch() : 0;
  }

  testing::ManualClock clock_;
  testing::AddedWorkers source_;
  std::map<std::string, std::shared_ptr<LinkedPair>> pairs_;
  RingCrew crew_{Options(), source_};
  std::unique_ptr<ScriptedWorker> one_;
  std::unique_ptr<ScriptedWorker> two_;
};

TEST_F(PageCopiesTest, AWorkerIsAskedAndAnswers) {
  auto copied = BeginCopy(1);
  SayCopied(*one_, HearCopy(*one_));
  const absl::StatusOr<bool> same = copied.get();
  ASSERT_EQ(same.status(), absl::OkStatus());
  EXPECT_TRUE(*same);
}

// Whatever that step still writes, others have got its pages since.
TEST_F(PageCopiesTest, NoWorkerIsAskedBeforeItHasEndedAnAbortedStep) {
  crew_.Abort(absl::InternalError("a fault"));
  auto late = BeginCopy(1);
  ASSERT_TRUE(clock_.WaitForWaiters(2)) << "the crew's watcher, and the copy";
  clock_.Advance(kPatience);
  const absl::StatusOr<bool> refused = late.get();
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Text(refused), HasSubstr("rank 1 has not ended a step within 60000 ms"));
  auto copied = BeginCopy(1);
  OpenWires(2);
  const uint64_t ticket = HearCopy(*one_);
  EXPECT_EQ(ticket, 1u) << "the first that it was asked for";
  SayCopied(*one_, ticket);
  EXPECT_EQ(copied.get().status(), absl::OkStatus());
  EXPECT_EQ(crew_.lost(), absl::OkStatus());
}

TEST_F(PageCopiesTest, RanksHereEndAnAbortedStepFirstToo) {
  EXPECT_EQ(crew_.AwaitAborted(0), absl::OkStatus());
  crew_.Abort(absl::InternalError("a fault"));
  auto late = std::async(std::launch::async, [this] { return crew_.AwaitAborted(0); });
  ASSERT_TRUE(clock_.WaitForWaiters(2));
  clock_.Advance(kPatience);
  EXPECT_EQ(late.get().code(), absl::StatusCode::kUnavailable);
  // They have let go of all steps, and wait for the others.
  auto formed = std::async(std::launch::async, [this] { return crew_.Form(2, {"here"}).status(); });
  EXPECT_EQ(crew_.AwaitAborted(0), absl::OkStatus());
  OpenWires(2);
  EXPECT_EQ(formed.get(), absl::OkStatus());
}

// There may have been no memory for the abort: what the ranks do is the same.
TEST_F(PageCopiesTest, NoPageIsCopiedWhileTheEpochIsBrokenAndNotAborted) {
  crew_.Run("a plan");
  wire::FromWorker failed;
  failed.mutable_result()->set_epoch(1);
  failed.mutable_result()->set_step(1);
  *failed.mutable_result()->mutable_status() = codec::ToMessage(absl::InternalError("a fault"));
  two_->Say(Encode(failed));
  ASSERT_THAT(std::string(crew_.AwaitResults().status().message()), HasSubstr("a fault"));
  for (const int rank : {0, 1}) {
    auto late = std::async(std::launch::async, [&] { return crew_.AwaitAborted(rank); });
    ASSERT_TRUE(clock_.WaitForWaiters(2)) << "the crew's watcher, and the wait";
    clock_.Advance(kPatience);
    EXPECT_EQ(late.get().code(), absl::StatusCode::kUnavailable) << rank;
  }
  EXPECT_EQ(crew_.lost(), absl::OkStatus());
}

// The others are told all the same.
TEST_F(PageCopiesTest, WhoeverCannotBeToldOfAnAbortIsLost) {
  FailSends("a", &wire::ToWorker::has_abort);
  crew_.Abort(absl::InternalError("a fault"));
  EXPECT_THAT(std::string(one_->WaitClosed().message()), HasSubstr("no memory to send it"));
  EXPECT_EQ(HearAbort(*two_), 1u);
  EXPECT_THAT(std::string(crew_.lost().message()), HasSubstr("worker \"a\""));
}

// Who has heard of no epoch must not hear that it is over.
TEST_F(PageCopiesTest, WhoeverCannotBeToldOfAnEpochIsLost) {
  crew_.Abort(absl::InternalError("a fault"));
  OpenWires(2);
  FailSends("a", &wire::ToWorker::has_form);
  EXPECT_EQ(crew_.Form(2, {"here"}).status(), absl::OkStatus());
  EXPECT_THAT(std::string(one_->WaitClosed().message()), HasSubstr("no memory to send it"));
  const absl::Status why = crew_.AwaitReady().status();
  EXPECT_THAT(std::string(why.message()), HasSubstr("worker \"a\""));
  crew_.Abort(why);
  EXPECT_EQ(HearAbort(*two_), 1u);
  EXPECT_EQ(HearForm(*two_), 2u);
  EXPECT_EQ(HearAbort(*two_), 2u);
}

// It may have been asked.
TEST_F(PageCopiesTest, WhoeverCannotBeAskedIsLost) {
  FailSends("a", &wire::ToWorker::has_copy);
  EXPECT_THAT(Text(BeginCopy(1).get()), HasSubstr("the worker with rank 1 is lost"));
  EXPECT_THAT(std::string(one_->WaitClosed().message()), HasSubstr("no memory to send it"));
}

TEST_F(PageCopiesTest, WhoeverDoesNotAnswerIsLostWithoutMemoryToSayWho) {
  auto copied = BeginCopy(1);
  ASSERT_NE(HearCopy(*one_), 0u);
  ASSERT_TRUE(clock_.WaitForWaiters(2));
  pairs_.at("a")->FailNames();
  clock_.Advance(kPatience);
  EXPECT_THAT(Text(copied.get()), HasSubstr("the worker with rank 1 is lost"));
  EXPECT_THAT(std::string(one_->WaitClosed().message()), HasSubstr("no memory to say which"));
}

TEST_F(PageCopiesTest, AnAnswerCountsOnce) {
  auto copied = BeginCopy(1);
  const uint64_t ticket = HearCopy(*one_);
  SayCopied(*one_, ticket);
  EXPECT_EQ(copied.get().status(), absl::OkStatus());
  SayCopied(*one_, ticket);
  EXPECT_THAT(std::string(one_->WaitClosed().message()),
              HasSubstr("copy 1 of a page, which is not due"));
}

TEST_F(PageCopiesTest, AnAnswerCountsOnTheLinkOfTheQuestion) {
  auto copied = BeginCopy(1);
  const uint64_t ticket = HearCopy(*one_);
  SayCopied(*two_, ticket);
  EXPECT_THAT(std::string(two_->WaitClosed().message()), HasSubstr("which is not due"));
  EXPECT_EQ(copied.wait_for(0s), std::future_status::timeout);
  SayCopied(*one_, ticket);
  EXPECT_EQ(copied.get().status(), absl::OkStatus());
}

TEST_F(PageCopiesTest, AStrangerAnswersNothing) {
  const auto stranger = Dial("stranger");
  SayCopied(*stranger, 1);
  EXPECT_THAT(std::string(stranger->WaitClosed().message()),
              HasSubstr("another message than Hello first"));
  EXPECT_EQ(crew_.lost(), absl::OkStatus());
}

TEST_F(PageCopiesTest, WhoeverDoesNotAnswerIsLost) {
  auto copied = BeginCopy(1);
  ASSERT_NE(HearCopy(*one_), 0u);
  ASSERT_TRUE(clock_.WaitForWaiters(2));
  clock_.Advance(kPatience);
  EXPECT_EQ(copied.get().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(one_->WaitClosed().message()),
              HasSubstr("it has not copied a page within 60000 ms"));
  const absl::StatusOr<bool> none = crew_.Copy({wire::CopyPage::KIND_SAVE, {1, 3}, 0, {}, {}});
  EXPECT_THAT(Text(none), HasSubstr("no worker has rank 1 now"));
}

TEST_F(PageCopiesTest, ACopyEndsWithItsWorker) {
  auto copied = BeginCopy(1);
  ASSERT_NE(HearCopy(*one_), 0u);
  one_.reset();
  const absl::StatusOr<bool> lost = copied.get();
  EXPECT_EQ(lost.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Text(lost), HasSubstr("the worker with rank 1 is lost"));
}

TEST_F(PageCopiesTest, ACopyEndsWithTheRing) {
  auto copied = BeginCopy(2);
  ASSERT_NE(HearCopy(*two_), 0u);
  crew_.Stop();
  EXPECT_EQ(copied.get().status().code(), absl::StatusCode::kCancelled);
}

// A worker that answers later has done nothing wrong.
TEST_F(PageCopiesTest, CopiesCanEndBeforeTheRing) {
  auto copied = BeginCopy(1);
  const uint64_t ticket = HearCopy(*one_);
  ASSERT_NE(ticket, 0u);
  crew_.StopCopies();
  EXPECT_EQ(copied.get().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(BeginCopy(2).get().status().code(), absl::StatusCode::kCancelled);
  SayCopied(*one_, ticket);
  SayCopied(*one_, ticket + 1);
  EXPECT_THAT(std::string(one_->WaitClosed().message()),
              HasSubstr(absl::StrCat("copy ", ticket + 1, " of a page, which is not due")));
}

TEST_F(PageCopiesTest, NoCopyWaitsForAnAbortedStepOnceCopiesEnd) {
  crew_.Abort(absl::InternalError("a fault"));
  auto remote = BeginCopy(1);
  auto here = std::async(std::launch::async, [this] { return crew_.AwaitAborted(0); });
  ASSERT_TRUE(clock_.WaitForWaiters(3)) << "the crew's watcher, and the two";
  crew_.StopCopies();
  EXPECT_EQ(remote.get().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(here.get().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace annulus
