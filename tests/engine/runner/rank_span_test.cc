#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/model/made/recall_model.h"
#include "engine/ring/open_ring.h"
#include "engine/runner/rank_set.h"
#include "tests/support/manual_clock.h"
#include "tests/support/prompt_plan.h"
#include "tests/support/step_driver.h"

namespace annulus {
namespace {

constexpr int32_t kPage = 16;
constexpr int kRanks = 3;
constexpr std::chrono::seconds kTimeout{30};

// One ring for several sets.
class SharedRing final : public RingGroup {
 public:
  explicit SharedRing(std::shared_ptr<RingGroup> ring) : ring_(std::move(ring)) {}
  RingChannel& channel(int rank) override { return ring_->channel(rank); }
  absl::Status Reset() override { return ring_->Reset(); }
  std::string description() const override { return ring_->description(); }

 private:
  const std::shared_ptr<RingGroup> ring_;
};

class RankSpanTest : public ::testing::Test {
 protected:
  RankSpanTest() {
    const OpTable& ops = *world_.registry.Available("cpu")[0];
    model_ = MakeRankModel(
        RecallConfig(3),
        LoadWeights(RecallConfig(3), *MakeRecallTensors(3), *world_.backend, ops, {}).value(), ops,
        kPage, DType::kF32);
    ring_ =
        OpenRing(RingTransport::kAuto, *world_.backend, kRanks, std::chrono::seconds(30)).value();
  }

  std::unique_ptr<RankSet> Make(RankSpan span, const Clock& clock = Clock::Real()) {
    RankSetOptions options;
    options.clock = &clock;
    options.engine.exchange_timeout = kTimeout;
    options.span = span;
    options.engine.kv_memory_bytes = static_cast<size_t>(span.local) << 22;
    options.rows_per_rank = 64;
    options.on_step_end = [this] { ++step_ends_; };
    options.ring = WiderRing{[this] { return std::make_unique<SharedRing>(ring_); }, {}};
    return RankSet::Create(model_, *world_.backend, options).value();
  }

  std::shared_ptr<const StepPlan> Plan() const { return testing::PromptPlan(model_, kRanks); }

  testing::CpuWorld world_;
  RankModel model_;
  std::shared_ptr<RingGroup> ring_;
  std::atomic<int> step_ends_{0};
};

// As processes will: each has some of the ring's ranks.
TEST_F(RankSpanTest, TwoSetsAreOneRing) {
  const std::vector<RankResult> whole =
      Make({.first = 0, .local = kRanks, .all = kRanks})->Run(Plan()).value();
  ASSERT_EQ(std::ssize(whole), kRanks);
  const auto first = Make({.first = 0, .local = 1, .all = kRanks});
  const auto rest = Make({.first = 1, .local = 2, .all = kRanks});
  ASSERT_EQ(first->Start(Plan()), absl::OkStatus());
  ASSERT_EQ(rest->Start(Plan()), absl::OkStatus());
  std::vector<RankResult> parts = first->Results().value();
  ASSERT_EQ(parts.size(), 1u);
  const std::vector<RankResult> others = rest->Results().value();
  parts.insert(parts.end(), others.begin(), others.end());
  ASSERT_EQ(std::ssize(parts), kRanks);
  for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(parts[rank].logits, whole[rank].logits);
  EXPECT_EQ(parts.back().logits.size(), 1u);  // of the last row
}

// A part cannot mend the ring alone: it fails, and waits until all parts begin anew.
TEST_F(RankSpanTest, AStepThatIsAbortedEndsAndThePartsBeginAnew) {
  const auto rest = Make({.first = 0, .local = 2, .all = kRanks});
  const auto last = Make({.first = 2, .local = 1, .all = kRanks});
  ASSERT_EQ(last->Start(Plan()), absl::OkStatus());  // waits for the pages of the others
  ASSERT_EQ(last->Start(Plan()), absl::OkStatus());
  last->Abort(absl::AbortedError("another part failed"));
  EXPECT_EQ(last->Results().status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(last->state(), RanksState::kUp);
  ASSERT_EQ(rest->Start(Plan()), absl::OkStatus());  // nobody takes its results
  ASSERT_EQ(rest->Reset(), absl::OkStatus());
  ASSERT_EQ(last->Reset(), absl::OkStatus());
  const std::vector<RankResult> whole =
      Make({.first = 0, .local = kRanks, .all = kRanks})->Run(Plan()).value();
  ASSERT_EQ(last->Start(Plan()), absl::OkStatus());
  ASSERT_EQ(rest->Start(Plan()), absl::OkStatus());
  EXPECT_EQ(last->Results().value()[0].logits, whole[2].logits);
  EXPECT_EQ(rest->Results().value()[1].logits, whole[1].logits);
  EXPECT_EQ(step_ends_, 5);  // two of each part, and the whole's; one never began
}

TEST_F(RankSpanTest, RanksWaitWhileThoseElsewhereMakeProgress) {
  testing::ManualClock clock;
  ring_ = OpenRing(RingTransport::kAuto, *world_.backend, kRanks, kTimeout, clock).value();
  const auto last = Make({.first = 2, .local = 1, .all = kRanks}, clock);
  ASSERT_EQ(last->Start(Plan()), absl::OkStatus());
  std::atomic<bool> ended{false};
  absl::Status status;
  std::thread results([&] {
    status = last->Results().status();
    ended = true;
  });
  EXPECT_TRUE(clock.WaitForWaiters(2));
  const uint64_t advances = last->work().advances;
  for (int turn = 0; turn < 10; ++turn) {
    last->NoteProgressElsewhere(clock.Now());
    EXPECT_TRUE(clock.WaitForWaiters(2));  // the rank, for its peers, and who wants its result
    EXPECT_EQ(last->work().running, 1);
    EXPECT_EQ(last->work().waiting, 1);
    clock.Advance(kTimeout * 2 / 3);
  }
  EXPECT_TRUE(clock.WaitForWaiters(2));
  EXPECT_FALSE(ended);
  EXPECT_LT(last->last_progress(), clock.Now() - 5 * kTimeout);  // that of others is not its own
  EXPECT_EQ(last->work().advances, advances);
  EXPECT_TRUE(clock.AdvanceUntil([&] { return ended.load(); }, kTimeout / 4));
  results.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_EQ(last->work().running, 0);
}

// By what those who watch from elsewhere tell a long step from one that hangs.
TEST_F(RankSpanTest, EachLayerIsProgress) {
  const auto all = Make({.first = 0, .local = kRanks, .all = kRanks});
  const uint64_t before = all->work().advances;
  ASSERT_TRUE(all->Run(Plan()).ok());
  const RankSet::Work after = all->work();
  EXPECT_GE(after.advances, before + static_cast<uint64_t>(kRanks * model_.layers()));
  EXPECT_EQ(after.running, 0);
  EXPECT_EQ(after.waiting, 0);
}

}  // namespace
}  // namespace annulus
