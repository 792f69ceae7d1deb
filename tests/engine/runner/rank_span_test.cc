#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/made/recall_model.h"
#include "engine/ring/open_ring.h"
#include "engine/runner/rank_set.h"
#include "tests/support/prompt_plan.h"
#include "tests/support/step_driver.h"

namespace annulus {
namespace {

constexpr int32_t kPage = 16;
constexpr int kRanks = 3;

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

  std::unique_ptr<RankSet> Make(RankSpan span) {
    RankSetOptions options;
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
  const auto first = Make({.first = 0, .local = 1, .all = kRanks});
  const auto rest = Make({.first = 1, .local = 2, .all = kRanks});
  ASSERT_EQ(first->Start(Plan()), absl::OkStatus());  // waits for the others
  ASSERT_EQ(first->Start(Plan()), absl::OkStatus());
  first->Abort(absl::AbortedError("another part failed"));
  EXPECT_EQ(first->Results().status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(first->state(), RanksState::kUp);
  ASSERT_EQ(rest->Start(Plan()), absl::OkStatus());  // its step is still under way then
  ASSERT_EQ(rest->Reset(), absl::OkStatus());
  ASSERT_EQ(first->Reset(), absl::OkStatus());
  const std::vector<RankResult> whole =
      Make({.first = 0, .local = kRanks, .all = kRanks})->Run(Plan()).value();
  ASSERT_EQ(first->Start(Plan()), absl::OkStatus());
  ASSERT_EQ(rest->Start(Plan()), absl::OkStatus());
  EXPECT_EQ(first->Results().value()[0].logits, whole[0].logits);
  EXPECT_EQ(rest->Results().value()[1].logits, whole[2].logits);
  EXPECT_EQ(step_ends_, 5);  // two of each part, and the whole's; one never began
}

}  // namespace
}  // namespace annulus
