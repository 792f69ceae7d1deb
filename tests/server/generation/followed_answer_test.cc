// Events of a request and the calls that follow it, without an engine or a table.

#include "server/generation/followed_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "server/base/errors.h"
#include "tests/server/generation/sink_fixture.h"
#include "tests/server/test_server.h"

namespace annulus::server {
namespace {

class FollowedAnswerTest : public SinkFixture {
 protected:
  static constexpr size_t kOwnBytes = 100;

  void Add(int number) {
    answer_.Add(Number(number));
    EXPECT_TRUE(answer_.TryHold(answer_.bytes()));
    answer_.Feed();
  }
  void End(absl::Status status) {
    Completion completion;
    completion.status = std::move(status);
    answer_.End(std::move(completion));
    answer_.Feed();
  }
  // What the reader of the sink gets, in words.
  std::string Read(const std::shared_ptr<BoundedSink>& sink) {
    std::string words;
    for (const SinkEvent& event : ReadAll(answer_, sink)) {
      if (const auto* queued = std::get_if<QueuedEvent>(&event)) {
        absl::StrAppend(&words, "queued ", queued->position, " ");
      } else if (const auto* delta = std::get_if<Delta>(&event)) {
        absl::StrAppend(&words, delta->text.substr(0, delta->text.find('.')), " ");
      } else if (const auto* end = std::get_if<Completion>(&event)) {
        absl::StrAppend(&words,
                        end->status.ok() ? "end" : Details(ToGrpcStatus(end->status)).reason);
      }
    }
    return words;
  }

  // Two calls that follow while ten deltas come: the first takes them all, the second reads
  // nothing.
  std::pair<std::shared_ptr<BoundedSink>, std::shared_ptr<BoundedSink>> FastAndSlow() {
    const auto fast = NewSink();
    const auto slow = NewSink();
    answer_.Attach(fast);
    answer_.Attach(slow);
    for (int i = 0; i < 10; ++i) {
      Add(i);
      Read(fast);
    }
    return {fast, slow};
  }

  const std::shared_ptr<MemoryBudget> memory_ = std::make_shared<MemoryBudget>(50'000);
  const std::shared_ptr<MemoryBudget> tenant_ = std::make_shared<MemoryBudget>(SIZE_MAX);
  FollowedAnswer answer_{"name", kOwnBytes, memory_, tenant_};
};

TEST_F(FollowedAnswerTest, EveryCallGetsAllFromTheFirstEventOn) {
  const auto early = NewSink();
  answer_.Attach(early);
  answer_.SetQueued(2);
  answer_.SetQueued(1);
  EXPECT_EQ(Read(early), "queued 1 ");
  for (int i = 0; i < 10; ++i) Add(i);
  EXPECT_TRUE(answer_.IsBeingRead()) << "its sink holds four";
  const auto late = NewSink();
  answer_.Attach(late);
  EXPECT_EQ(Read(late), "queued 1 0 1 2 3 4 5 6 7 8 9 ");
  End(absl::OkStatus());
  EXPECT_EQ(Read(late), "end");
  EXPECT_EQ(Read(early), "0 1 2 3 4 5 6 7 8 9 end");
  EXPECT_FALSE(answer_.IsBeingRead());
  const auto last = NewSink();
  answer_.Attach(last);
  EXPECT_EQ(Read(last), "queued 1 0 1 2 3 4 5 6 7 8 9 end");
}

TEST_F(FollowedAnswerTest, WhoLeavesGetsNothingMore) {
  const auto sink = NewSink();
  answer_.Attach(sink);
  EXPECT_TRUE(answer_.Remove(*sink));
  EXPECT_FALSE(answer_.Remove(*sink));
  EXPECT_EQ(answer_.followers(), 0u);
  Add(0);
  EXPECT_EQ(Read(sink), "");
  EXPECT_TRUE(answer_.HasRoom()) << "nobody holds the engine up";
}

TEST_F(FollowedAnswerTest, AFailureIsAllThatACallGets) {
  const auto sink = NewSink();
  answer_.Attach(sink);
  for (int i = 0; i < 10; ++i) Add(i);
  const size_t before = answer_.bytes();
  End(absl::InternalError("a rank stumbled"));
  EXPECT_TRUE(answer_.failed());
  EXPECT_LT(answer_.bytes() + 9 * kDeltaBytes, before) << "nobody gets the deltas any more";
  EXPECT_EQ(Read(sink), "INTERNAL");
  const auto late = NewSink();
  answer_.Attach(late);
  EXPECT_EQ(Read(late), "INTERNAL");
}

TEST_F(FollowedAnswerTest, WhatAllHaveTakenIsFreedOnceNothingIsKept) {
  const auto sink = NewSink();
  answer_.Attach(sink);
  for (int i = 0; i < 10; ++i) {
    Add(i);
    Read(sink);
  }
  EXPECT_GT(memory_->used(), 10 * kDeltaBytes);
  EXPECT_EQ(tenant_->used(), memory_->used());
  answer_.StopKeeping();
  EXPECT_EQ(answer_.bytes(), kOwnBytes);
  EXPECT_EQ(memory_->used(), kOwnBytes);
  EXPECT_EQ(tenant_->used(), kOwnBytes);
  Add(10);
  EXPECT_EQ(answer_.bytes(), kOwnBytes) << "its sink took it at once";
  EXPECT_EQ(Read(sink), "10 ");
}

TEST_F(FollowedAnswerTest, OnceNothingIsKeptWhoIsBehindEndsIfAnotherKeepsUp) {
  const auto [fast, slow] = FastAndSlow();
  EXPECT_EQ(answer_.followers(), 2u) << "while events are kept, nobody is too slow";
  answer_.StopKeeping();
  EXPECT_EQ(answer_.followers(), 1u);
  EXPECT_EQ(Read(slow), "SLOW_READER");
  Add(10);
  EXPECT_EQ(Read(fast), "10 ");
}

// The engine parks a request that has no room; whoever reads goes on.
TEST_F(FollowedAnswerTest, ACallAloneStandsStillUntilItReads) {
  const auto sink = NewSink();
  answer_.Attach(sink);
  answer_.StopKeeping();
  for (int i = 0; i < 6; ++i) Add(i);
  EXPECT_FALSE(answer_.HasRoom());
  ASSERT_TRUE(sink->Pop().has_value());
  answer_.Refill(*sink);
  EXPECT_TRUE(answer_.HasRoom()) << "it has read, though its sink is full again";
  EXPECT_FALSE(answer_.HasRoom()) << "that counts once";
  EXPECT_EQ(Read(sink), "1 2 3 4 5 ");
  EXPECT_TRUE(answer_.HasRoom());
}

TEST_F(FollowedAnswerTest, EndBehindEndsThoseThatAreBehindAndNoOthers) {
  const auto [fast, slow] = FastAndSlow();
  End(absl::OkStatus());
  answer_.EndBehind();
  EXPECT_EQ(Read(slow), "SLOW_READER");
  EXPECT_EQ(Read(fast), "end");
  EXPECT_EQ(answer_.followers(), 1u);
}

TEST_F(FollowedAnswerTest, HoldsWhatItIsGivenRoomFor) {
  EXPECT_EQ(answer_.held_bytes(), 0u);
  EXPECT_TRUE(answer_.TryHold(20'000));
  const MemoryBudget& memory = *memory_;
  ASSERT_TRUE(memory_->TryTake(memory.available()));
  EXPECT_FALSE(answer_.TryHold(20'001));
  EXPECT_EQ(answer_.held_bytes(), 20'000u);
  EXPECT_EQ(tenant_->used(), 20'000u);
}

}  // namespace
}  // namespace annulus::server
