// Attention policies on whole models: every row's logits against a plain forward pass under the
// same mask.

#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "engine/sparse/block_pattern.h"
#include "engine/sparse/dilated.h"
#include "gtest/gtest.h"
#include "kernels/base/sanitizers.h"
#include "tests/engine/runner/masked_checkpoint.h"
#include "tests/support/thinned.h"

namespace annulus {
namespace {

using testing::CpuWorld;
using testing::DriverOptions;
using testing::KeptBy;
using testing::Lists;
using testing::MaskedCheckpoint;
using testing::RandomPrompt;
using testing::RelativeError;
using testing::StepDriver;
using testing::ToleranceOf;

// Logits of every position under the policy's lists, applied as a dense mask.
std::vector<float> Masked(const MaskedCheckpoint& checkpoint, const AttentionPolicy& policy,
                          const std::vector<int32_t>& ids, DType kv_dtype) {
  const int32_t length = static_cast<int32_t>(ids.size());
  const BlockPattern pattern =
      BuildBlockPattern(policy, ShapeFor(policy, 0, length, checkpoint.attention().kv_heads));
  const std::vector<DilatedBranch> branches = DilatedBranches(policy);
  const auto mask = [&](int64_t, int64_t head, int64_t row, int64_t key) {
    if (!branches.empty()) return KeptBy(branches, head, row, key);
    return Lists(pattern, checkpoint.per_kv_head(), head, row, key) ? 1 : 0;
  };
  return checkpoint.Logits(ids, mask, kv_dtype);
}

// Each leaves out something for the first head already: a model may have no other.
constexpr char kPolicies[][64] = {
    "window:sinks=16,window=40,block=16", "dilated_blocks:rates=3/1/2,block=16",
    "strided:stride=3,local=1,block=32",  "global_local:global=1,window=33,block=16",
    "random:window=20,random=2,block=16", "dilated:segments=32/96/48,rates=1/4/3,block=16",
};

// Every degree of a ring in both modes for each policy and kind of model; kernel tables, types of
// keys and values, chunks and reuse of the prompt's beginning in turn.
TEST(Sparse, EveryRowEqualsTheSameMaskAppliedDensely) {
  CpuWorld world;
  const std::vector<const OpTable*> tables = world.registry.Available("cpu");
  constexpr DType kKvDTypes[] = {DType::kF32,    DType::kBF16, DType::kF8E5M2, DType::kF16,
                                 DType::kF8E4M3, DType::kI8,   DType::kF32};
  size_t turn = 0;
  const std::vector<std::string> names = {"llama_gqa_bf16", "llama_windows", "llama_mha",
                                          "llama_rope3_sharded"};
  for (const std::string& name : testing::ThinnedIfSanitized(names, 1)) {
    const MaskedCheckpoint checkpoint(name);
    const int vocabulary = checkpoint.config.vocabulary;
    const std::vector<int32_t> prompt = RandomPrompt(203, vocabulary, 5);
    const std::vector<float> dense =
        testing::PlainForward(checkpoint.config, *checkpoint.tensors).Logits(prompt);
    for (const char* text : kPolicies) {
      const AttentionPolicy policy = ParsePolicy(text).value();
      const DType kv_dtype = kKvDTypes[turn % std::size(kKvDTypes)];
      const std::vector<float> expected = Masked(checkpoint, policy, prompt, kv_dtype);
      for (int ranks = 1; ranks <= 8; ++ranks, ++turn) {
        // Under sanitizers each degree up to 4, and the most.
        if (kSanitized && ranks > 4 && ranks < 8) continue;
        const OpTable& ops = *tables[turn % tables.size()];
        const RankModel model = checkpoint.Load(world, ops, kv_dtype);
        for (const RingMode mode : {RingMode::kPassKv, RingMode::kPassQ}) {
          DriverOptions options;
          options.ranks = ranks;
          options.mode = mode;
          options.prefill_rows = 16 + 16 * static_cast<int>(turn % 3);
          const bool reuses = (turn + turn / 8) % 2 == 1;
          options.reused_tokens = reuses ? 80 : 0;
          options.all_logits = true;
          options.attention = policy;
          const auto result = StepDriver(world, model, options).Run({prompt}, 1)[0];
          SCOPED_TRACE(::testing::Message()
                       << name << ", " << text << ", " << ops.name << ", "
                       << std::string(DTypeName(kv_dtype)) << ", " << ranks << " ranks, mode "
                       << static_cast<int>(mode) << ", " << options.prefill_rows << " rows a rank, "
                       << options.reused_tokens << " tokens reused");
          ASSERT_EQ(result.logits.size(), prompt.size() - 1 - (reuses ? 1 : 0));
          EXPECT_LE(RelativeError(result.logits, expected, vocabulary), ToleranceOf(ops, kv_dtype));
          // The control: the mask matters.
          if (kv_dtype == DType::kF32) {
            EXPECT_GT(RelativeError(result.logits, dense, vocabulary), 1e-3);
          }
        }
      }
    }
  }
}

// Lists and branches that follow from positions alone: every logit has the bits that it has on one
// rank in one chunk, also behind a beginning that was computed before.
class SparseBits : public ::testing::TestWithParam<const char*> {};

TEST_P(SparseBits, DoNotDependOnBatchChunkModeRingOrReuse) {
  CpuWorld world;
  const MaskedCheckpoint checkpoint("llama_gqa_bf16");
  const std::vector<int32_t> prompt = RandomPrompt(150, checkpoint.config.vocabulary, 6);
  constexpr int kReused = 5 * MaskedCheckpoint::kPage;
  std::vector<std::pair<int, RingMode>> rings;
  for (const int ranks : {1, 2, 3, 4}) {
    rings.emplace_back(ranks, RingMode::kPassKv);
    rings.emplace_back(ranks, RingMode::kPassQ);
  }
  for (const OpTable* ops : testing::ThinnedIfSanitized(world.registry.Available("cpu"), 2)) {
    const RankModel model = checkpoint.Load(world, *ops);
    DriverOptions options;
    options.all_logits = true;
    options.prefill_rows = 1000;
    options.attention = ParsePolicy(GetParam()).value();
    const auto base = StepDriver(world, model, options).Run({prompt}, 20)[0];
    std::map<int32_t, std::vector<float>> behind = base.logits;
    behind.erase(kReused - 1);  // the last row of what is reused was sampled
    for (const auto& [ranks, mode] : testing::ThinnedIfSanitized(rings, 4)) {
      options.ranks = ranks;
      options.mode = mode;
      for (const int rows : {16, 40}) {
        SCOPED_TRACE(::testing::Message() << ops->name << ", " << ranks << " ranks, mode "
                                          << static_cast<int>(mode) << ", rows " << rows);
        options.prefill_rows = rows;
        options.reused_tokens = 0;
        StepDriver driver(world, model, options);
        EXPECT_TRUE(driver.Run({prompt}, 20)[0].logits == base.logits);
        const auto batched = driver.Run({prompt, RandomPrompt(70, 50, 7), prompt}, 20);
        EXPECT_TRUE(batched[2].logits == base.logits);
        EXPECT_EQ(batched[0].tokens, base.tokens);
        options.reused_tokens = kReused;
        const auto reused = StepDriver(world, model, options).Run({prompt}, 20)[0];
        EXPECT_TRUE(reused.logits == behind);
        EXPECT_EQ(reused.tokens, base.tokens);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, SparseBits,
                         ::testing::Values("random:window=20,random=2,block=16",
                                           "dilated:segments=32/96,rates=1/3,block=16"));

}  // namespace
}  // namespace annulus
