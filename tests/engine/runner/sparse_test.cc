// Attention policies on whole models: every row's logits against a plain forward pass under the
// same mask.

#include <cmath>
#include <random>

#include "engine/model/safetensors.h"
#include "engine/sparse/block_pattern.h"
#include "engine/sparse/dilated.h"
#include "gtest/gtest.h"
#include "tests/engine/model/plain_forward.h"
#include "tests/support/golden.h"
#include "tests/support/step_driver.h"
#include "tests/support/test_data.h"

namespace annulus {
namespace {

using testing::CpuWorld;
using testing::DriverOptions;
using testing::StepDriver;

constexpr int kPage = 16;

struct Checkpoint {
  explicit Checkpoint(const std::string& name) {
    const std::string directory = testing::TestFile("golden/" + name).string();
    config = LoadModelConfig(directory).value();
    tensors = SafetensorsCheckpoint::Open(directory).value();
  }
  RankModel Load(CpuWorld& world, const OpTable& ops) const {
    return MakeRankModel(config,
                         LoadWeights(config, *tensors, *world.backend, ops, DType::kF32).value(),
                         ops, kPage, DType::kF32);
  }

  ModelConfig config;
  std::unique_ptr<TensorSource> tensors;
};

std::vector<int32_t> Prompt(int length, int vocabulary, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids(length);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % vocabulary);
  return ids;
}

// Logits of every position under the policy's lists, applied as a dense mask.
std::vector<float> Masked(const Checkpoint& checkpoint, const AttentionPolicy& policy,
                          const std::vector<int32_t>& ids) {
  const int32_t length = static_cast<int32_t>(ids.size());
  const BlockPattern pattern =
      BuildBlockPattern(policy, ShapeFor(policy, 0, length, checkpoint.config.kv_heads));
  const std::vector<DilatedBranch> branches = DilatedBranches(policy);
  const int per_kv_head = checkpoint.config.heads / checkpoint.config.kv_heads;
  const auto mask = [&](int64_t, int64_t head, int64_t row, int64_t key) {
    if (!branches.empty()) {
      return static_cast<int>(
          std::count_if(branches.begin(), branches.end(), [&](const DilatedBranch& branch) {
            return branch.Keeps(static_cast<int>(head), row, key);
          }));
    }
    const int group = pattern.shape.head_groups == 1 ? 0 : static_cast<int>(head) / per_kv_head;
    const auto keys = pattern.keys(group, static_cast<int32_t>(row / policy.block));
    const auto block = static_cast<int32_t>(key / policy.block);
    return std::binary_search(keys.begin(), keys.end(), block) ? 1 : 0;
  };
  return testing::PlainForward(checkpoint.config, *checkpoint.tensors, mask).Logits(ids);
}

double RelativeError(const std::map<int32_t, std::vector<float>>& logits,
                     const std::vector<float>& expected, int vocabulary) {
  double worst = 0;
  double scale = 0;
  for (const auto& [position, row] : logits) {
    for (int v = 0; v < vocabulary; ++v) {
      const double value = expected[static_cast<size_t>(position) * vocabulary + v];
      worst = std::max(worst, std::abs(row[v] - value));
      scale = std::max(scale, std::abs(value));
    }
  }
  return worst / scale;
}

constexpr char kPolicies[][64] = {
    "window:sinks=16,window=40,block=16", "dilated_blocks:rates=1/2/3,block=16",
    "strided:stride=3,local=1,block=32",  "global_local:global=1,window=33,block=16",
    "random:window=20,random=2,block=16", "dilated:segments=32/96/48,rates=1/4/3,block=16",
};

TEST(Sparse, EveryRowEqualsTheSameMaskAppliedDensely) {
  CpuWorld world;
  for (const std::string name : {"llama_gqa_bf16", "llama_windows"}) {
    const Checkpoint checkpoint(name);
    const int vocabulary = checkpoint.config.vocabulary;
    const std::vector<int32_t> prompt = Prompt(203, vocabulary, 5);
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
  const Checkpoint checkpoint("llama_gqa_bf16");
  const std::vector<int32_t> prompt = Prompt(150, checkpoint.config.vocabulary, 6);
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
        const auto batched = driver.Run({prompt, Prompt(70, 50, 7), prompt}, 20);
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
