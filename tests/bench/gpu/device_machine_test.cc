#include "bench/gpu/device_machine.h"

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "bench/model/model_bench.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/support/cuda/emulated_device.h"
#include "tests/support/cuda/emulated_streams.h"
#include "tests/support/temp_directory.h"

namespace annulus::bench {
namespace {

using cuda::EmulatedDevice;
using cuda::EmulatedStreams;

// gpu-model without its command line, on an emulated GPU whose streams do nothing before somebody
// waits.
class DeviceMachineTest : public ::testing::Test {
 protected:
  DeviceMachineTest() {
    EmulatedStreams::Get().set_late(true);
    RegisterCudaKernels(kernels_);
    files_.Write("config.json",
                 R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "hidden_act": "silu", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 300,
      "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
      "tie_word_embeddings": false, "bos_token_id": 1, "eos_token_id": 2,
      "torch_dtype": "bfloat16"})");
  }
  ~DeviceMachineTest() override {
    EmulatedStreams::Get().set_late(false);
    EmulatedDevice::Get().guarded = false;
  }

  absl::StatusOr<std::unique_ptr<BenchMachine>> Open() {
    DeviceMachineOptions options;
    options.rows = 33;
    options.in = 70;
    options.out = 1040;  // more than the rows that are drawn
    options.copied_bytes = 5000;
    options.enough_seconds = 0;
    return OpenDeviceMachine(CreateCudaBackend(0).value(), std::move(kernels_), options);
  }

  ModelBenchOptions Options() const {
    ModelBenchOptions options;
    options.random_config = (files_.path() / "config.json").string();
    options.prompt_tokens = {330};
    options.depths = {330};
    options.generate = 3;
    options.chunk_tokens = 256;  // a page of each rank
    options.warm_up_tokens = 70;
    options.repeat = 1;
    return options;
  }

  KernelRegistry kernels_;
  testing::TempDirectory files_;
};

std::vector<nlohmann::json> RunAll(const ModelBenchOptions& options, BenchMachine& machine) {
  std::vector<nlohmann::json> rows;
  std::ostringstream err;
  BenchProgress progress(err);
  const absl::Status status = RunModelBench(options, machine, progress, [&](const Row& row) {
    rows.push_back(nlohmann::json::parse(row.Json()));
  });
  EXPECT_TRUE(status.ok()) << status;
  return rows;
}

TEST_F(DeviceMachineTest, AnyNumberOfRanksGivesTheTokensOfOne) {
  const auto machine = Open().value();
  ModelBenchOptions options = Options();
  options.ranks = {1, 2, 4};
  const std::vector<nlohmann::json> rows = RunAll(options, *machine);
  ASSERT_EQ(rows.size(), 6u);
  for (size_t i = 0; i < rows.size(); ++i) {
    const nlohmann::json& row = rows[i];
    SCOPED_TRACE(row.dump());
    const bool prefill = i % 2 == 0;
    EXPECT_EQ(row.at("phase"), prefill ? "prefill" : "decode");
    EXPECT_EQ(row.at("ranks"), options.ranks[i / 2]);
    EXPECT_EQ(row.at("peak"), prefill ? "bf16_products" : "copy");
    EXPECT_FALSE(row.contains("vector_peak"));
    EXPECT_FALSE(row.contains("vector_peak_fraction"));
    EXPECT_GT(row.at("peak_fraction").get<double>(), 0);
    EXPECT_GT(row.at("peak_rate").get<double>(), 0);
    EXPECT_EQ(row.at("same_tokens"), 1);
    EXPECT_GT(row.at("ratio_to_first").get<double>(), 0);
    if (i < 2) {
      EXPECT_EQ(row.at("ratio_to_first"), 1);
      EXPECT_EQ(row.at("exposed_seconds"), 0);
    }
    EXPECT_GE(row.at("exposed_seconds").get<double>(), 0);
    EXPECT_EQ(row.at("kernels").get<std::string>().rfind("cuda/", 0), 0u);
  }
}

TEST_F(DeviceMachineTest, OneNumberOfRanksIsComparedWithNothing) {
  const auto machine = Open().value();
  const std::vector<nlohmann::json> rows = RunAll(Options(), *machine);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_FALSE(rows[0].contains("ratio_to_first"));
  EXPECT_FALSE(rows[0].contains("same_tokens"));
}

// On memory that the host cannot touch.
TEST_F(DeviceMachineTest, ProductsFollowTheModel) {
  EmulatedDevice::Get().guarded = true;
  DeviceMachineOptions options;
  options.rows = options.in = options.out = 40;
  options.copied_bytes = 100;
  options.enough_seconds = 0;
  options.activations = Activations::kFp8;
  const auto machine =
      OpenDeviceMachine(CreateCudaBackend(0).value(), std::move(kernels_), options).value();
  ASSERT_TRUE(machine->ChooseProducts(DType::kF8E4M3).ok());
  EXPECT_EQ(machine->products_name(), "fp8_products");
  EXPECT_GT(machine->MeasureProducts().value().best, 0);
  ASSERT_TRUE(machine->ChooseProducts(DType::kI8).ok());
  EXPECT_EQ(machine->products_name(), "bf16_products");
  EXPECT_GT(machine->MeasureProducts().value().best, 0);
}

// A processor takes fewer rows through an MLP at once.
TEST_F(DeviceMachineTest, WholeChunksPassAnMlp) {
  const auto machine = Open().value();
  ASSERT_GT(machine->backend().capabilities().wide_rows, 600);
  ModelBenchOptions options = Options();
  options.prompt_tokens = {600};
  options.depths = {};
  options.chunk_tokens = 640;
  EXPECT_EQ(RunAll(options, *machine).size(), 1u);
}

TEST_F(DeviceMachineTest, WithoutKernelsThereIsNothingToMeasure) {
  const absl::Status status =
      OpenDeviceMachine(CreateCudaBackend(0).value(), KernelRegistry(), {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("no kernels"), std::string::npos) << status;
}

}  // namespace
}  // namespace annulus::bench
