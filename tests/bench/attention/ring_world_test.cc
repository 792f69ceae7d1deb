#include "bench/attention/ring_world.h"

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/register.h"

namespace annulus::bench {
namespace {

class BenchRingWorld : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    RegisterCpuKernels(kernels_);
    backend_ = CreateCpuBackend().value();
    shape_.tokens = 300;
    shape_.heads = 4;
    shape_.kv_heads = 2;
    shape_.head_dim = 16;
    shape_.ranks = GetParam();
    shape_.threads = GetParam();
    shape_.chunk_tokens = 100;
    world_ = RingWorld::Create(shape_, 2, *backend_, *kernels_.Available("cpu").front()).value();
  }

  // Runs the plan and returns the rows that were attended.
  int32_t Rows(const RingWorld::Plan& plan) {
    int32_t rows = 0;
    const auto seconds = world_->Run(plan, [&](int32_t count) { rows += count; });
    EXPECT_TRUE(seconds.ok()) << seconds.status();
    EXPECT_GT(*seconds, 0);
    return rows;
  }

  KernelRegistry kernels_;
  std::unique_ptr<Backend> backend_;
  AttentionShape shape_;
  std::unique_ptr<RingWorld> world_;
};

TEST_P(BenchRingWorld, AttendsEveryRowOnceInBothModes) {
  for (const RingMode mode : {RingMode::kPassKv, RingMode::kPassQ}) {
    const RingWorld::Plan plan = world_->PlanPrefill(AttentionPolicy(), mode, 0);
    EXPECT_EQ(plan.pairs, 300 * 301 / 2);
    EXPECT_EQ(plan.density, 1);
    EXPECT_EQ(Rows(plan), 300);
    EXPECT_EQ(Rows(plan), 300);
  }
}

TEST_P(BenchRingWorld, CountsThePairsOfAPolicy) {
  const AttentionPolicy window = *ParsePolicy("window:sinks=64,window=64");
  const RingWorld::Plan plan = world_->PlanPrefill(window, RingMode::kPassKv, 0);
  // Blocks of 64 rows (the last of 44) see the diagonal, the block before it and the first one.
  const double diagonal = 4 * 64 * 65 / 2 + 44 * 45 / 2;
  const double others = 64 * 64 + 2 * (2 * 64 * 64) + 2 * 44 * 64;
  EXPECT_EQ(plan.pairs, diagonal + others);
  EXPECT_DOUBLE_EQ(plan.density, plan.pairs / (300 * 301 / 2));
  EXPECT_EQ(Rows(plan), 300);
}

TEST_P(BenchRingWorld, RunsSomeChunksForAll) {
  const AttentionPolicy window = *ParsePolicy("window:sinks=64,window=64");
  const RingWorld::Plan all = world_->PlanPrefill(window, RingMode::kPassKv, 0);
  const int chunks = static_cast<int>(all.chunks.size());
  EXPECT_EQ(all.share, 1);
  EXPECT_GT(all.list_bytes, 0u);
  for (int most = 1; most <= chunks + 1; ++most) {
    const RingWorld::Plan some = world_->PlanPrefill(window, RingMode::kPassKv, most);
    ASSERT_EQ(static_cast<int>(some.chunks.size()), std::min(most, chunks));
    EXPECT_EQ(some.pairs, all.pairs);
    EXPECT_EQ(some.density, all.density);
    EXPECT_EQ(some.list_bytes, all.list_bytes);
    EXPECT_EQ(some.share == 1, most >= chunks);
    EXPECT_LT(Rows(some), most < chunks ? 300 : 301);
  }
}

TEST_P(BenchRingWorld, ADecodeStepVisitsEveryCopy) {
  const RingWorld::Plan plan = world_->PlanDecode(AttentionPolicy());
  EXPECT_EQ(plan.pairs, 2 * 300);
  EXPECT_EQ(Rows(plan), 2);
}

// Policies that choose from content do so in every chunk that is long enough, for all rows.
TEST_P(BenchRingWorld, ChunksChooseFromStructuredHeads) {
  shape_.tokens = 2000;
  shape_.chunk_tokens = 512;
  world_ = RingWorld::Create(shape_, 1, *backend_, *kernels_.Available("cpu").front()).value();
  for (const char* text : {"adaptive", "adaptive:coverage=0.9", "hierarchical:near=2"}) {
    const AttentionPolicy policy = *ParsePolicy(text);
    const RingWorld::Plan plan = world_->PlanPrefill(policy, RingMode::kPassKv, 0);
    ASSERT_TRUE(world_->UseStructuredHeads(plan, 1).ok());
    EXPECT_EQ(Rows(plan), 2000);
    PairCount pairs = plan.known;
    for (const LayerAttention& report : world_->Reports()) pairs += report.pairs;
    EXPECT_EQ(pairs.causal, 2000.0 * 2001 / 2) << text;
    EXPECT_LT(pairs.density(), 1) << text;
    EXPECT_GT(pairs.density(), 0.02) << text;
  }
}

TEST_P(BenchRingWorld, ADecodeStepChoosesPagesOfEveryCopy) {
  shape_.tokens = 2000;
  world_ = RingWorld::Create(shape_, 2, *backend_, *kernels_.Available("cpu").front()).value();
  const RingWorld::Plan plan = world_->PlanDecode(*ParsePolicy("top_pages:pages=3"));
  ASSERT_TRUE(world_->UseStructuredHeads(plan, 1).ok());
  for (int run = 0; run < 2; ++run) {
    EXPECT_EQ(Rows(plan), 2);
    PairCount pairs;
    for (const LayerAttention& report : world_->Reports()) pairs += report.pairs;
    EXPECT_EQ(pairs.causal, 2 * 2000);
    // Three pages, and the row's own: 16 of its 64 slots.
    EXPECT_EQ(pairs.chosen, 2 * (3 * 64 + 16));
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, BenchRingWorld, ::testing::Values(1, 3, 7));

}  // namespace
}  // namespace annulus::bench
