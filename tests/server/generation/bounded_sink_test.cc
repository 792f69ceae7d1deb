#include "server/generation/bounded_sink.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>
#include <utility>

namespace annulus::server {
namespace {

using std::chrono::milliseconds;

class CountingReader : public SinkReader {
 public:
  void OnReady() override { ++ready; }
  std::atomic<int> ready{0};
};

class BoundedSinkTest : public ::testing::Test {
 protected:
  std::shared_ptr<BoundedSink> NewSink(SinkLimits limits = {}) {
    return std::make_shared<BoundedSink>(limits, delivery_, reader_);
  }
  static Delta Text(const std::string& text) {
    Delta delta;
    delta.text = text;
    return delta;
  }

  CountingReader reader_;
  DeliveryThread delivery_;
};

TEST_F(BoundedSinkTest, GivesEventsInOrder) {
  const auto sink = NewSink();
  sink->OnQueued(1);
  sink->OnProgress({});
  sink->OnDelta(Text("a"));
  sink->OnDelta(Text("b"));
  sink->OnDone({});
  EXPECT_TRUE(std::holds_alternative<QueuedEvent>(*sink->Pop()));
  EXPECT_TRUE(std::holds_alternative<PromptProgress>(*sink->Pop()));
  EXPECT_EQ(std::get<Delta>(*sink->Pop()).text, "a");
  EXPECT_EQ(std::get<Delta>(*sink->Pop()).text, "b");
  EXPECT_TRUE(std::holds_alternative<Completion>(*sink->Pop()));
  EXPECT_FALSE(sink->Pop().has_value());
}

// Texts of tokens count as what they take: 20 alternatives may be most of a delta.
TEST_F(BoundedSinkTest, CountsTheTextsOfTokens) {
  Delta delta = Text("a");
  TokenLogprob& logprob = delta.logprobs.emplace_back();
  logprob.alternatives.resize(20);
  const size_t bare = DeltaBytes(delta);
  logprob.texts.assign(21, std::string(100, 'x'));
  EXPECT_GE(DeltaBytes(delta), bare + 21 * 100);
}

// One who takes a part and comes again lets others have their turn.
TEST_F(BoundedSinkTest, WhoComesAgainIsBehindOthers) {
  struct Log final : SinkReader {
    Log(std::string& order, char name) : order(order), name(name) {}
    void OnReady() override {
      if (name == 'a' && order.empty()) begun.get_future().wait();
      order += name;
      if (name == 'a' && order.size() < 3) sink->ComeAgain();
      if (name == 'a' && order.size() >= 3) done.set_value();
    }
    std::string& order;
    const char name;
    std::promise<void> begun;  // the other is posted too
    std::promise<void> done;
    std::shared_ptr<BoundedSink> sink;
  };
  std::string order;
  Log a(order, 'a');
  Log b(order, 'b');
  a.sink = std::make_shared<BoundedSink>(SinkLimits(), delivery_, a);
  b.sink = std::make_shared<BoundedSink>(SinkLimits(), delivery_, b);
  a.sink->OnQueued(1);
  b.sink->OnQueued(1);
  a.begun.set_value();
  a.done.get_future().wait();
  a.sink->Detach();
  b.sink->Detach();
  EXPECT_EQ(order, "aba");
}

TEST_F(BoundedSinkTest, KeepsOnlyTheNewestPositionAndProgress) {
  const auto sink = NewSink();
  for (int i = 9; i >= 0; --i) sink->OnQueued(i);
  PromptProgress progress;
  for (progress.processed = 1; progress.processed <= 1000; ++progress.processed) {
    sink->OnProgress(progress);
  }
  EXPECT_EQ(std::get<QueuedEvent>(*sink->Pop()).position, 0);
  EXPECT_EQ(std::get<PromptProgress>(*sink->Pop()).processed, 1000);
  EXPECT_FALSE(sink->Pop().has_value());
}

TEST_F(BoundedSinkTest, NeverGoesBackToAnEarlierStage) {
  const auto sink = NewSink();
  sink->OnProgress({});
  sink->OnQueued(3);
  sink->OnDelta(Text("a"));
  sink->OnProgress({});
  EXPECT_TRUE(std::holds_alternative<PromptProgress>(*sink->Pop()));
  EXPECT_TRUE(std::holds_alternative<Delta>(*sink->Pop()));
  EXPECT_FALSE(sink->Pop().has_value());
}

TEST_F(BoundedSinkTest, RoomEndsAtEitherLimitAndComesBack) {
  const auto by_count = NewSink({.max_bytes = 1 << 20, .max_deltas = 2});
  by_count->OnDelta(Text("a"));
  EXPECT_TRUE(by_count->HasRoom());
  by_count->OnDelta(Text("b"));
  EXPECT_FALSE(by_count->HasRoom());
  by_count->Pop();
  EXPECT_TRUE(by_count->HasRoom());

  const auto by_bytes = NewSink({.max_bytes = 1000, .max_deltas = 100});
  by_bytes->OnDelta(Text(std::string(2000, 'x')));
  EXPECT_FALSE(by_bytes->HasRoom());
  by_bytes->Pop();
  EXPECT_TRUE(by_bytes->HasRoom());
}

TEST_F(BoundedSinkTest, TheFirstCompletionWins) {
  const auto sink = NewSink();
  Completion first;
  first.status = absl::CancelledError("first");
  sink->OnDone(first);
  sink->OnDone({});
  sink->OnDelta(Text("late"));
  EXPECT_EQ(std::get<Completion>(*sink->Pop()).status.message(), "first");
  EXPECT_FALSE(sink->Pop().has_value());
}

TEST_F(BoundedSinkTest, AFailureDropsWhatWaits) {
  const auto sink = NewSink();
  sink->OnDelta(Text("never sent"));
  Completion failure;
  failure.status = absl::UnavailableError("a rank failed");
  sink->OnDone(failure);
  EXPECT_TRUE(std::holds_alternative<Completion>(*sink->Pop()));
}

TEST_F(BoundedSinkTest, TheReaderIsToldOnAnotherThread) {
  const auto sink = NewSink();
  sink->OnQueued(1);
  while (reader_.ready == 0) std::this_thread::yield();
  EXPECT_GE(reader_.ready, 1);
}

TEST_F(BoundedSinkTest, AfterDetachNobodyIsCalledAndNothingIsKept) {
  const auto sink = NewSink({.max_bytes = 1 << 20, .max_deltas = 1});
  sink->OnDelta(Text("a"));
  sink->Detach();
  const int ready = reader_.ready;
  EXPECT_TRUE(sink->HasRoom());
  sink->OnDelta(Text("b"));
  sink->OnDone({});
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(reader_.ready, ready);
  EXPECT_TRUE(sink->HasRoom());
}

// Detach must wait for an OnReady under way: the reader is destroyed right after.
class SlowReader : public SinkReader {
 public:
  void OnReady() override {
    entered.set_value();
    std::this_thread::sleep_for(milliseconds(50));
    left = true;
  }
  std::promise<void> entered;
  std::atomic<bool> left{false};
};

TEST_F(BoundedSinkTest, DetachWaitsForACallUnderWay) {
  SlowReader reader;
  const auto sink = std::make_shared<BoundedSink>(SinkLimits{}, delivery_, reader);
  sink->OnQueued(1);
  reader.entered.get_future().wait();
  sink->Detach();
  EXPECT_TRUE(reader.left);
}

TEST_F(BoundedSinkTest, OutlivesItsDeliveryThread) {
  std::shared_ptr<BoundedSink> sink;
  {
    CountingReader reader;
    DeliveryThread delivery;
    sink = std::make_shared<BoundedSink>(SinkLimits{}, delivery, reader);
    sink->OnQueued(0);
    sink->Detach();
  }
  sink->OnDelta(Text("nobody is there"));
  sink->OnDone({});
}

}  // namespace
}  // namespace annulus::server
