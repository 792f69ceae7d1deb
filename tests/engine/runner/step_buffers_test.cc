// What a step's arenas have room for: the byte plan and what steps take are one list.
#include "engine/runner/step/step_buffers.h"

#include <gtest/gtest.h>

#include <string>

#include "engine/ring/subtrees.h"
#include "tests/support/fake_backend.h"
#include "tests/support/golden.h"
#include "tests/support/test_data.h"

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

size_t DeviceBytes(const RankModel& model, int rows, int64_t wide_rows) {
  BackendCapabilities device;
  device.host_accessible = false;
  device.wide_rows = wide_rows;
  return CountStepBytes(model, rows, /*ranks=*/1, device).device;
}
size_t DeviceBytes(int rows, int64_t wide_rows) { return DeviceBytes(MlpModel(), rows, wide_rows); }

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

// Whoever adds an operation need not tell the byte plan.
TEST(StepBytesTest, AnArrayIsForeseenBecauseAnOperationNamesIt) {
  RankModel model = MlpModel();
  const size_t before = DeviceBytes(model, 30, 512);
  LayerGraph& layer = model.graph[1];
  layer.columns[static_cast<size_t>(LayerArray::kExpertOutput)] = 77;
  layer.attention.push_back(
      {Operation::Kind::kNorm, LayerArray::kNormed, LayerArray::kExpertOutput});
  EXPECT_EQ(DeviceBytes(model, 30, 512) - before, StepArena::BytesFor<float>(30 * 77));
}

// Slices of the gated block are at their own rows of an array that lives outside of it.
TEST(StepBytesTest, AnArrayOutsideTheBlockHasTheRowsOfAllSlices) {
  RankModel model = MlpModel();
  const size_t before = DeviceBytes(model, 3000, 512);
  LayerGraph& layer = model.graph[1];
  layer.columns[static_cast<size_t>(LayerArray::kExpertOutput)] = 77;
  layer.block.push_back(
      {Operation::Kind::kNorm, LayerArray::kNormed, LayerArray::kExpertOutput, LayerRows::kSlices});
  EXPECT_EQ(DeviceBytes(model, 3000, 512) - before, StepArena::BytesFor<float>(3000 * 77));
}

// Takes everything that a step may have at a time, in arenas of exactly the planned bytes.
void ExpectFilled(const RankModel& model, int rows, int ranks, bool host_accessible) {
  SCOPED_TRACE(::testing::Message() << rows << " rows, " << ranks << " ranks, "
                                    << (host_accessible ? "on the host" : "on a device"));
  BackendCapabilities capabilities;
  capabilities.host_accessible = host_accessible;
  capabilities.wide_rows = 32;
  const StepBytes bytes = CountStepBytes(model, rows, ranks, capabilities);
  testing::FakeBackend backend;
  BufferPool pool(backend, {.limit_bytes = size_t{64} << 20, .name = "rank0"});
  StepArena device(*pool.Allocate(bytes.device, Lifetime::kStep), pool.host_accessible());
  StepArena apart(*pool.Allocate(bytes.host, Lifetime::kStep), pool.host_accessible());
  StepArena& host = host_accessible ? device : apart;
  const StateCounts states = MostStates(ranks, ShardsOf(*model.ops, ranks));
  StepBuffers buffers(
      {.model = model,
       .rows = rows,
       .states = {int64_t{rows} * (ranks - 1) * states.states, rows * (states.kept_slots - 1)},
       .wide_rows = capabilities.wide_rows,
       .in_place = host_accessible});
  for (const auto phase :
       {StepBuffers::Phase::kStep, StepBuffers::Phase::kBlock, StepBuffers::Phase::kHead}) {
    const absl::Status taken = buffers.Take(phase, device, host);
    EXPECT_TRUE(taken.ok()) << taken;
  }
  EXPECT_EQ(device.used(), device.capacity());
  EXPECT_EQ(apart.used(), apart.capacity());
  for (const LayerGraph& layer : model.graph) {
    ForEachOperation(layer, [&](const Operation& operation) {
      const bool part = operation.input == LayerArray::kActiveStream;
      EXPECT_FALSE(buffers.of(part ? LayerArray::kStreams : operation.input).empty());
      for (const Product& product : operation.products) {
        EXPECT_FALSE(buffers.of(product.output).empty());
      }
    });
  }
}

TEST(StepBuffersTest, AStepOfAnyFamilyTakesWhatIsPlanned) {
  static const OpTable ops;
  for (const std::string& name : testing::GoldenNames()) {
    SCOPED_TRACE(name);
    const auto config = LoadModelConfig(testing::TestFile("golden/" + name).string());
    ASSERT_TRUE(config.ok()) << config.status();
    const RankModel model = MakeRankModel(*config, ModelWeights(), ops, 16, DType::kF32);
    for (const int rows : {1, 40}) {
      for (const int ranks : {1, 3}) {
        ExpectFilled(model, rows, ranks, /*host_accessible=*/true);
        ExpectFilled(model, rows, ranks, /*host_accessible=*/false);
      }
    }
  }
}

}  // namespace
}  // namespace annulus
