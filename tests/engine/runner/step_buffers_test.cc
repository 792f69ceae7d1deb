// What a step's arena has room for, by the device that it is on.
#include <gtest/gtest.h>

#include "engine/memory/step_arena.h"
#include "engine/runner/rank_executor.h"

namespace annulus {
namespace {

constexpr int64_t kIntermediate = 1000;

RankModel MlpModel() {
  const auto config = ParseModelConfig(
      R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
          "hidden_size": 32, "intermediate_size": 1000, "num_hidden_layers": 2,
          "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 300,
          "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
          "tie_word_embeddings": true, "bos_token_id": 1, "eos_token_id": 2})",
      "config.json");
  static const OpTable ops;
  return MakeRankModel(config.value(), ModelWeights(), ops, 16, DType::kF32);
}

size_t DeviceBytes(int rows, int64_t wide_rows) {
  BackendCapabilities device;
  device.host_accessible = false;
  device.wide_rows = wide_rows;
  return CountStepBytes(MlpModel(), rows, /*ranks=*/1, device).device;
}

// Gate and up.
size_t GatedBytes(int64_t rows) {
  return 2 * StepArena::BytesFor<float>(static_cast<size_t>(rows * kIntermediate));
}

TEST(StepBytesTest, AnMlpHasTheRowsThatItsDeviceTakesTogether) {
  EXPECT_EQ(DeviceBytes(3000, 4096) - DeviceBytes(3000, 512), GatedBytes(3000) - GatedBytes(512));
  EXPECT_EQ(DeviceBytes(5000, 4096) - DeviceBytes(5000, 512), GatedBytes(4096) - GatedBytes(512));
}

TEST(StepBytesTest, FewerRowsNeedNoMore) {
  EXPECT_EQ(DeviceBytes(300, 4096), DeviceBytes(300, 512));
}

}  // namespace
}  // namespace annulus
