#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/made/recall_model.h"
#include "engine/ring/open_ring.h"
#include "engine/runner/rank_set.h"
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
    options.ring = WiderRing{[this] { return std::make_unique<SharedRing>(ring_); }, {}};
    return RankSet::Create(model_, *world_.backend, options).value();
  }

  // A prompt with a page of each cache group on each rank, whose last row gives logits.
  std::shared_ptr<const StepPlan> Plan() const {
    StepPlan plan;
    SequenceUpdate& update = plan.updates.emplace_back();
    update.sequence = 1;
    update.version = 1;
    update.terms.emplace().version = 1;
    update.tables.resize(model_.groups.size());
    PlanItem& item = plan.items.emplace_back();
    item.sequence = 1;
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      update.terms->ring.push_back(rank);
      for (size_t group = 0; group < model_.groups.size(); ++group) {
        update.tables[group].append.push_back({rank, static_cast<int32_t>(group), rank * kPage});
      }
      item.runs.push_back({rank, rank * kPage, kPage});
    }
    item.end = kRanks * kPage;
    for (int32_t i = 0; i < item.end; ++i) item.tokens.push_back(33 + (7 * i) % 90);
    item.logits_positions = {item.end - 1};
    return std::make_shared<const StepPlan>(plan);
  }

  testing::CpuWorld world_;
  RankModel model_;
  std::shared_ptr<RingGroup> ring_;
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

}  // namespace
}  // namespace annulus
