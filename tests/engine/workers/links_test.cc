// Links between processes, timed whenever the ring has formed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/workers/control_messages.h"
#include "tests/engine/workers/recall_ring.h"

namespace annulus {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::WorkerThread;

class LinksTest : public testing::RecallRing {
 protected:
  LinksTest() {
    options_.time_links = true;
    options_.replacement_timeout = std::chrono::milliseconds(0);
    a_.pair().ToWorker([this](std::string& bytes) {
      wire::ToWorker message = DecodeToWorker(bytes).value();
      const std::lock_guard lock(mutex_);
      if (message.has_probe()) epochs_.push_back(message.probe().epoch());
      if (message.has_probe() && message.probe().epoch() == spoiled_) {
        message.mutable_probe()->set_bytes(0);
        bytes = Encode(message);
      }
      return true;
    });
  }

  // Those in which worker "a" was asked to time links.
  std::vector<uint64_t> epochs() const {
    const std::lock_guard lock(mutex_);
    return epochs_;
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

  mutable std::mutex mutex_;  // guards the next two
  std::vector<uint64_t> epochs_;
  uint64_t spoiled_ = 0;  // an epoch whose probe cannot be done
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
  {
    const std::lock_guard lock(mutex_);
    spoiled_ = 2;
  }
  StepPlan unknown = *Plan();  // no rank knows its sequence
  unknown.updates.clear();
  ASSERT_FALSE(ranks->Run(std::make_shared<StepPlan>(unknown)).ok());
  ASSERT_TRUE(IsUpIn(*ranks, 3));
  EXPECT_THAT(epochs(), AllOf(Contains(2), Contains(3)));
  ExpectLogits(*ranks);
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
