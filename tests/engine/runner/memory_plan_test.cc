// What the engine plans of a device's memory, and that steps take nothing more.
#include "engine/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine_seams.h"
#include "engine/runner/work_shape.h"
#include "kernels/base/device_error.h"
#include "tests/engine/runner/device_fixture.h"
#include "tests/support/collecting_sink.h"
#include "tests/support/cuda/emulated_device.h"
#include "tests/support/float8_directory.h"
#include "tests/support/plain_options.h"
#include "tests/support/temp_directory.h"
#include "tests/support/thinned.h"

namespace annulus {
namespace {

using cuda::EmulatedDevice;
using ::testing::AllOf;
using testing::DeviceTest;
using testing::DriverOptions;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using testing::StepDriver;

constexpr size_t kMiB = size_t{1} << 20;

class MemoryPlanTest : public DeviceTest {
 protected:
  ~MemoryPlanTest() override {
    EmulatedDevice::Get().held_by_others = 0;
    EmulatedDevice::Get().products = false;
  }

  // Leaves nothing of any device but what this process has.
  static void FillDevices() { EmulatedDevice::Get().held_by_others = EmulatedDevice::kMemoryBytes; }

  static std::vector<int32_t> Prompt(int tokens) {
    std::vector<int32_t> prompt;
    for (int32_t i = 0; i < tokens; ++i) prompt.push_back(i * i * 7 % 101);
    return prompt;
  }

  absl::StatusOr<std::unique_ptr<Engine>> Open(size_t kv_memory_bytes) {
    EngineOptions options = testing::PlainOptions();
    options.kv_memory_bytes = kv_memory_bytes;
    options.chunk_tokens = 128;
    return CreateEngineWith({.through_bytes = true}, options, *backend_, registry_);
  }
};

// Prompts, answers, policies that look at content or not, held back or not, with a library of
// products and without: nothing is taken of a device from the first step on, and what a choice by
// content pins of the host is kept for the next.
TEST_F(MemoryPlanTest, StepsTakeNothingOfTheDevice) {
  struct Case {
    const char* model;
    DType dtype;
    int ranks;
    bool graphs;
    const char* policy;
    const char* table = "";  // empty: the first
  };
  const std::vector<Case> cases = {
      {"llama_gqa_bf16", DType::kBF16, 1, true, ""},
      {"llama_gqa_bf16", DType::kF32, 2, false, ""},
      {"llama_gqa_bf16", DType::kBF16, 2, true, "adaptive:block=16,tau=0.6,stride=8"},
      {"llama_gqa_bf16", DType::kF32, 1, true, "top_pages:pages=3,block=16"},
      {"llama_gqa_bf16", DType::kBF16, 1, true, "window:sinks=16,window=48,block=16,coverage=0.9"},
      {"mixtral", DType::kBF16, 1, true, ""},
      {"gemma2", DType::kF32, 3, true, ""},
      {"gemma3n", DType::kBF16, 1, true, ""},
  };
  std::vector<Case> chosen = testing::Thinned(cases, 4);
  chosen.push_back({"gemma2", DType::kBF16, 2, true, "", "cuda/sm90-invariant"});
  for (const Case& c : chosen) {
    SCOPED_TRACE(::testing::Message()
                 << c.model << " " << DTypeName(c.dtype) << ", " << c.ranks << " ranks, graphs "
                 << c.graphs << ", " << c.policy << " " << c.table);
    EmulatedDevice& device = EmulatedDevice::Get();
    device.products = c.dtype == DType::kBF16 && c.ranks == 1;
    UseDevices(1);
    const RankModel model = *c.table == '\0' ? Load(c.model, c.dtype)
                                             : Load(c.model, c.dtype, *backend_, *Find(c.table));
    DriverOptions options = testing::AllLogits(c.ranks, RingMode::kPassKv);
    options.all_logits = false;
    options.prefill_rows = 160;
    options.graphs = c.graphs;
    if (*c.policy != '\0') options.attention = *ParsePolicy(c.policy);
    StepDriver driver(*backend_, model, options);
    std::vector<size_t> planned;
    for (int rank = 0; rank < c.ranks; ++rank) {
      planned.push_back(driver.ranks().Statistics(rank).workspace_bytes);
      EXPECT_GT(planned.back(), 0u);
    }
    FillDevices();
    const size_t allocated = device.allocated;
    const auto first = driver.Run({Prompt(270), Prompt(35)}, 3);
    const int64_t warm = device.memory_calls;
    EXPECT_EQ(driver.Run({Prompt(270), Prompt(35)}, 3)[0].tokens, first[0].tokens);
    EXPECT_EQ(device.memory_calls, warm);
    EXPECT_EQ(device.allocated, allocated);
    for (int rank = 0; rank < c.ranks; ++rank) {
      EXPECT_EQ(driver.ranks().Statistics(rank).workspace_bytes, planned[rank]);
    }
    device.held_by_others = 0;
  }
}

// Its messages and scores are the host's; what these pin is kept for the next step.
TEST_F(MemoryPlanTest, EvidenceTakesNothingOfTheDevice) {
  for (const int ranks : {1, 2}) {
    SCOPED_TRACE(ranks);
    EmulatedDevice& device = EmulatedDevice::Get();
    UseDevices(1);
    const RankModel model = Load("llama_gqa_bf16", DType::kBF16);
    DriverOptions options = testing::AllLogits(ranks, RingMode::kPassKv);
    options.all_logits = false;
    options.evidence.emplace();
    for (int layer = 0; layer < model.layers(); ++layer) {
      for (int head = 0; head < model.attention(layer).heads; ++head) {
        options.evidence->heads.push_back({layer, head});
      }
    }
    // Blocks that begin and end inside of pages.
    options.evidence->ranges = {{4, 90}, {101, 102}, {103, 250}};
    StepDriver driver(*backend_, model, options);
    FillDevices();
    const size_t allocated = device.allocated;
    const auto first = driver.Run({Prompt(270)}, 3);
    EXPECT_FALSE(first[0].shares[0].empty());
    const int64_t warm = device.memory_calls;
    EXPECT_EQ(driver.Run({Prompt(270)}, 3)[0].tokens, first[0].tokens);
    EXPECT_EQ(device.memory_calls, warm);
    EXPECT_EQ(device.allocated, allocated);
    device.held_by_others = 0;
  }
}

class MemoryPlanOfTwoDevicesTest : public MemoryPlanTest {};

TEST_F(MemoryPlanOfTwoDevicesTest, StepsTakeNothingOfEither) {
  const std::vector<RingTransport> transports = {RingTransport::kPeer, RingTransport::kStaged,
                                                 RingTransport::kNccl};
  for (const RingTransport transport : testing::Thinned(transports, 2)) {
    SCOPED_TRACE(static_cast<int>(transport));
    UseDevices(2);
    const RankModel model = Load("llama_gqa_bf16", DType::kBF16);
    DriverOptions options = testing::AllLogits(2, RingMode::kPassQ);
    options.transport = transport;
    options.all_logits = false;
    StepDriver driver(*backend_, model, options);
    FillDevices();
    const auto first = driver.Run({Prompt(50)}, 2);
    const int64_t warm = EmulatedDevice::Get().memory_calls;
    EXPECT_EQ(driver.Run({Prompt(50)}, 2)[0].tokens, first[0].tokens);
    EXPECT_EQ(EmulatedDevice::Get().memory_calls, warm);
    EmulatedDevice::Get().held_by_others = 0;
  }
}

// What others hold counts, and the message has the numbers.
TEST_F(MemoryPlanTest, OnlyWhatIsFreeIsPlanned) {
  EmulatedDevice::Get().held_by_others = 600 * kMiB;
  const absl::Status refused = Open(400 * kMiB).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("keys and values 400 MiB"), HasSubstr("kernel workspace"),
                    HasSubstr("reserve for the driver 64 MiB"), HasSubstr("the device's 1 GiB"),
                    HasSubstr("lower --kv-memory, --chunk-tokens or --ranks"),
                    HasSubstr("or stop other programs")));
  EXPECT_TRUE(IsOfDevice(refused)) << "others' memory";
  EXPECT_TRUE(Open(200 * kMiB).ok());
  EmulatedDevice::Get().held_by_others = 0;
  const absl::Status too_large = Open(1000 * kMiB).status();
  EXPECT_THAT(std::string(too_large.message()), HasSubstr("lower --kv-memory"));
  EXPECT_FALSE(IsOfDevice(too_large)) << "no other start would find more";
}

// Without tiers too. The program alone has more than this.
TEST_F(MemoryPlanTest, TheHostNeedsRoomForEvidence) {
  EngineOptions options = testing::PlainOptions();
  options.kv_memory_bytes = 200 * kMiB;
  options.chunk_tokens = 128;
  options.host_memory_bytes = kMiB;
  const absl::Status refused = CreateEngine(options, *backend_, registry_).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  EXPECT_THAT(std::string(refused.message()),
              AllOf(StartsWith("evidence ("), HasSubstr("of the host's memory, but of its 1 MiB"),
                    HasSubstr("are left for it; lower --max-context")));
}

// The plan is of one device, and the option that is to change of all ranks.
TEST_F(MemoryPlanTest, TheAdviceCountsAllRanks) {
  MemoryPlan plan;
  plan.ranks = 1;
  plan.total = 1024 * kMiB;
  plan.free = 500 * kMiB;
  plan.step = 100 * kMiB;
  plan.kv = 600 * kMiB;
  EXPECT_THAT(CheckPlan(plan, 1).message(), HasSubstr("--kv-memory may be at most 400MiB"));
  EXPECT_THAT(CheckPlan(plan, 2).message(), HasSubstr("--kv-memory may be at most 800MiB"));
  plan.ranks = 2;  // on the device with most of the three
  EXPECT_THAT(CheckPlan(plan, 3).message(), HasSubstr("--kv-memory may be at most 600MiB"));
}

// Without a number: a quarter, or what is left of it once all else has its place.
TEST_F(MemoryPlanTest, TheDefaultIsWhatIsFree) {
  const auto alone = Open(0).value();
  const MemoryPlan whole = alone->Load().plan;
  EXPECT_EQ(whole.kv, EmulatedDevice::kMemoryBytes / 4);
  EXPECT_GT(whole.workspace, 0u);
  EXPECT_EQ(static_cast<size_t>(alone->Load().memory.workspace), whole.workspace);
  EXPECT_EQ(static_cast<size_t>(alone->Load().ranks[0].memory_bytes["workspace"]), whole.workspace);
  EmulatedDevice::Get().held_by_others = 600 * kMiB;
  const auto engine = Open(0).value();
  const MemoryPlan plan = engine->Load().plan;
  EXPECT_LT(plan.kv, EmulatedDevice::kMemoryBytes / 4);
  EXPECT_LE(plan.needed(), plan.free);
  EXPECT_GT(plan.needed(), plan.free - kMiB) << "memory that nobody uses";
  FillDevices();
  const absl::Status full = Open(0).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted) << full;
  EXPECT_TRUE(IsOfDevice(full)) << full;
  testing::AllowHostAccess();
  auto sink = std::make_shared<testing::CollectingSink>();
  ASSERT_TRUE(engine->Submit(testing::GateQuestion(*engine), sink).ok());
  ASSERT_TRUE(sink->Wait().has_value());
  EXPECT_EQ(sink->text(), "0417");
}

TEST_F(MemoryPlanTest, EveryProductOfAStepIsPlanned) {
  RankModel model = Load("llama_gqa_bf16", DType::kBF16);
  RankSetOptions options;
  options.engine.kv_memory_bytes = 8 * kMiB;
  options.rows_per_rank = 164;
  const WorkShape shape = WorkShapeOf(model, options, backend_->capabilities());
  EXPECT_EQ(shape.rows, 164);
  EXPECT_EQ(shape.pages.kv_heads, model.attention(0).kv_heads);
  EXPECT_TRUE(shape.lists);
  // Seven products of each layer, and the head.
  EXPECT_EQ(shape.products.size(), 7u * static_cast<size_t>(model.layers()) + 1);
  EXPECT_EQ(shape.products.back().out, model.config.vocabulary);
  for (const ProductShape& product : shape.products) EXPECT_EQ(product.dtype, DType::kBF16);
  // Whoever adds an operation need not tell the plan.
  model.graph[0].attention.push_back(
      {.kind = Operation::Kind::kProducts, .products = {{.own = &LayerWeights::query}}});
  EXPECT_EQ(WorkShapeOf(model, options, backend_->capabilities()).products.size(),
            shape.products.size() + 1);
}

// Matrices that a float8 checkpoint left alone take float inputs, and so other workspace.
TEST_F(MemoryPlanTest, ProductsArePlannedWithTheInputsThatTheyTake) {
  const std::string golden = testing::TestFile("golden/llama_gqa_bf16").string();
  const testing::TempDirectory directory;
  testing::WriteFloat8Directory(golden, testing::Float8Scales::kRow, directory, "down_proj");
  const ModelConfig config = LoadModelConfig(directory.path().string()).value();
  const auto tensors = SafetensorsCheckpoint::Open(directory.path().string()).value();
  RankModel model =
      MakeRankModel(config, LoadWeights(config, *tensors, *backend_, ops(), std::nullopt).value(),
                    ops(), 16, DType::kBF16);
  model.activations = Activations::kFp8;
  int kept = 0;
  for (const ProductShape& product :
       WorkShapeOf(model, RankSetOptions(), backend_->capabilities()).products) {
    const bool fp8 = product.dtype == DType::kF8E4M3;
    EXPECT_EQ(product.activations, fp8 ? Activations::kFp8 : Activations::kFloat);
    kept += fp8 ? 0 : 1;
  }
  EXPECT_EQ(kept, model.layers() + 1);  // and the head
}

}  // namespace
}  // namespace annulus
