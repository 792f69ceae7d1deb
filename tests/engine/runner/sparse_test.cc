// Attention policies on whole models: every row's logits against a plain forward pass under the
// same mask.

#include <cmath>
#include <random>

#include "engine/sparse/block_pattern.h"
#include "engine/sparse/dilated.h"
#include "gtest/gtest.h"
#include "tests/engine/runner/masked_checkpoint.h"

namespace annulus {
namespace {

using testing::CpuWorld;
using testing::DriverOptions;
using testing::Lists;
using testing::MaskedCheckpoint;
using testing::RandomPrompt;
using testing::RelativeError;
using testing::StepDriver;

// Logits of every position under the policy's lists, applied as a dense mask.
std::vector<float> Masked(const MaskedCheckpoint& checkpoint, const AttentionPolicy& policy,
                          const std::vector<int32_t>& ids) {
  const int32_t length = static_cast<int32_t>(ids.size());
  const BlockPattern pattern =
      BuildBlockPattern(policy, ShapeFor(policy, 0, length, checkpoint.config.kv_heads));
  const std::vector<DilatedBranch> branches = DilatedBranches(policy);
  const auto mask = [&](int64_t, int64_t head, int64_t row, int64_t key) {
    if (!branches.empty()) {
      return static_cast<int>(
          std::count_if(branches.begin(), branches.end(), [&](const DilatedBranch& branch) {
            return branch.Keeps(static_cast<int>(head), row, key);
          }));
    }
    return Lists(pattern, checkpoint.per_kv_head(), head, row, key) ? 1 : 0;
  };
  return checkpoint.Logits(ids, mask);
}

constexpr char kPolicies[][64] = {
    "window:sinks=16,window=40,block=16", "dilated_blocks:rates=1/2/3,block=16",
    "strided:stride=3,local=1,block=32",  "global_local:global=1,window=33,block=16",
    "random:window=20,random=2,block=16", "dilated:segments=32/96/48,rates=1/4/3,block=16",
};

TEST(Sparse, EveryRowEqualsTheSameMaskAppliedDensely) {
  CpuWorld world;
  for (const std::string name : {"llama_gqa_bf16", "llama_windows"}) {
    const MaskedCheckpoint checkpoint(name);
    const int vocabulary = checkpoint.config.vocabulary;
    const std::vector<int32_t> prompt = RandomPrompt(203, vocabulary, 5);
    const std::vector<float> dense =
        testing::PlainForward(checkpoint.config, *checkpoint.tensors).Logits(prompt);
    for (const char* text : kPolicies) {
      const AttentionPolicy policy = ParsePolicy(text).value();
      const std::vector<float> expected = Masked(checkpoint, policy, prompt);
      for (const OpTable* ops : world.registry.Available("cpu")) {
        const RankModel model = checkpoint.Load(world, *ops);
        for (const int ranks : {1, 3, 4}) {
          for (const RingMode mode : {RingMode::kPassKv, RingMode::kPassQ}) {
            DriverOptions options;
            options.ranks = ranks;
            options.mode = mode;
            options.prefill_rows = 32;
            options.all_logits = true;
            options.attention = policy;
            const auto result = StepDriver(world, model, options).Run({prompt}, 1)[0];
            ASSERT_EQ(result.logits.size(), prompt.size() - 1);
            EXPECT_LE(RelativeError(result.logits, expected, vocabulary), 1e-4)
                << name << ", " << text << ", " << ops->name << ", " << ranks << " ranks, mode "
                << static_cast<int>(mode);
            // The control: the mask matters.
            EXPECT_GT(RelativeError(result.logits, dense, vocabulary), 1e-3) << text;
          }
        }
      }
    }
  }
}

class SparseBits : public ::testing::TestWithParam<const char*> {};

TEST_P(SparseBits, DoNotDependOnBatchChunkOrMode) {
  CpuWorld world;
  const MaskedCheckpoint checkpoint("llama_gqa_bf16");
  const std::vector<int32_t> prompt = RandomPrompt(150, checkpoint.config.vocabulary, 6);
  for (const OpTable* ops : world.registry.Available("cpu")) {
    const RankModel model = checkpoint.Load(world, *ops);
    DriverOptions options;
    options.ranks = 3;
    options.all_logits = true;
    options.prefill_rows = 1000;
    options.attention = ParsePolicy(GetParam()).value();
    const auto base = StepDriver(world, model, options).Run({prompt}, 20)[0];
    for (const RingMode mode : {RingMode::kPassKv, RingMode::kPassQ}) {
      for (const int rows : {16, 40}) {
        options.mode = mode;
        options.prefill_rows = rows;
        StepDriver driver(world, model, options);
        EXPECT_TRUE(driver.Run({prompt}, 20)[0].logits == base.logits) << ops->name;
        const auto batched = driver.Run({prompt, RandomPrompt(70, 50, 7), prompt}, 20);
        EXPECT_TRUE(batched[2].logits == base.logits) << ops->name;
        EXPECT_EQ(batched[0].tokens, base.tokens) << ops->name;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, SparseBits,
                         ::testing::Values("random:window=20,random=2,block=16",
                                           "dilated:segments=32/96,rates=1/3,block=16"));

}  // namespace
}  // namespace annulus
