// What is planned for a machine against what an engine there takes.

#include "engine/capacity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/api.h"
#include "engine/base/process_memory.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/register.h"
#include "kernels/planned_backend.h"
#include "tests/support/temp_directory.h"

namespace annulus {
namespace {

using ::testing::HasSubstr;

constexpr size_t kMiB = size_t{1} << 20;

// Two layers of four keep a window; the head is the embedding.
constexpr char kConfig[] = R"({
  "architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "vocab_size": 320,
  "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 4, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 32, "rms_norm_eps": 1e-6, "rope_theta": 10000,
  "max_position_embeddings": 1000000, "sliding_window": 256, "hidden_activation": "gelu_pytorch_tanh",
  "query_pre_attn_scalar": 32, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
  "torch_dtype": "bfloat16", "bos_token_id": 2, "eos_token_id": 1})";

class CapacityTest : public ::testing::Test {
 protected:
  CapacityTest() {
    RegisterCpuKernels(kernels_);
    config_ = folder_.path() / "config.json";
    std::ofstream(config_) << kConfig;
  }

  CapacityQuestion Question(std::vector<std::optional<DType>> weights,
                            std::vector<std::optional<DType>> kv, std::vector<int> ranks) const {
    CapacityQuestion question;
    question.options.model = config_;
    question.options.chunk_tokens = 256;
    question.options.tokens_per_rank = 256;
    question.weights_dtypes = std::move(weights);
    question.kv_dtypes = std::move(kv);
    question.ranks = std::move(ranks);
    return question;
  }

  static std::unique_ptr<Backend> Machine(size_t memory) {
    BackendCapabilities capabilities = CreateCpuBackend().value()->capabilities();
    capabilities.memory_bytes = memory;
    return MakePlannedBackend(capabilities);
  }

  // Beside what this program, with all of its tests, has taken by now.
  static std::unique_ptr<Backend> MachineWithFree(size_t memory) {
    return Machine(memory + static_cast<size_t>(ReadProcessMemory().resident));
  }

  const testing::TempDirectory folder_;
  std::string config_;
  KernelRegistry kernels_;
};

TEST_F(CapacityTest, KeysAndValuesThatComeToTheSameArePlannedOnce) {
  const auto machine = MachineWithFree(256 * kMiB);
  const auto table = PlanCapacity(
      Question({DType::kF32, DType::kI8}, {std::nullopt, DType::kBF16, DType::kI8}, {1}), *machine,
      kernels_);
  ASSERT_TRUE(table.ok()) << table.status();
  std::vector<DType> planned;
  for (const CapacityCase& each : table->cases) planned.push_back(each.kv_dtype);
  EXPECT_THAT(planned, ::testing::ElementsAre(DType::kF32, DType::kBF16, DType::kI8, DType::kBF16,
                                              DType::kI8));
}

TEST_F(CapacityTest, AnEngineTakesWhatWasPlannedAndServesTheLongestContext) {
  CapacityQuestion question =
      Question({std::nullopt, DType::kI8}, {DType::kF32, DType::kI8}, {1, 3});
  const auto machine = MachineWithFree(256 * kMiB);
  const auto table = PlanCapacity(question, *machine, kernels_);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_THAT(table->missing, ::testing::IsEmpty());
  ASSERT_EQ(table->cases.size(), 8);
  const auto backend = CreateCpuBackend().value();
  size_t index = 0;
  for (const auto& weights : question.weights_dtypes) {
    for (const std::optional<DType>& kv : question.kv_dtypes) {
      for (const int ranks : question.ranks) {
        const CapacityCase& planned = table->cases[index++];
        SCOPED_TRACE(index - 1);
        ASSERT_EQ(planned.kv_dtype, kv);
        ASSERT_EQ(planned.ranks, ranks);
        ASSERT_GT(planned.plan.kv, 0);
        EXPECT_LE(planned.plan.needed(), planned.plan.free);
        EXPECT_EQ(planned.plan.total, machine->capabilities().memory_bytes);
        EngineOptions options = question.options;
        options.model = "random:" + config_;
        options.weights_dtype = weights;
        options.kv_dtype = kv;
        options.ranks = ranks;
        options.kv_memory_bytes = planned.plan.kv;
        const auto engine = CreateEngine(options, *backend, kernels_);
        ASSERT_TRUE(engine.ok()) << engine.status();
        const MemoryPlan& taken = (*engine)->Load().plan;
        EXPECT_EQ(planned.plan.weights, taken.weights);
        EXPECT_EQ(planned.plan.kv, taken.kv);
        EXPECT_EQ(planned.plan.step, taken.step);
        EXPECT_EQ(planned.plan.slots, taken.slots);
        EXPECT_EQ(planned.plan.evidence, taken.evidence);
        EXPECT_GT(taken.evidence, 0);
        EXPECT_EQ(planned.weights_dtype, (*engine)->model().weights_dtype);
        EXPECT_EQ(planned.kv_dtype, (*engine)->model().kv_dtype);
        EXPECT_EQ(planned.kv_bytes_per_token, (*engine)->model().kv_bytes_per_token);
        EXPECT_EQ(table->parameters, (*engine)->model().parameters);
        RequestSpec spec;
        spec.prompt.assign(static_cast<size_t>(planned.tokens) - 1, 5);
        spec.sampling.max_tokens = 1;
        EXPECT_TRUE((*engine)->Validate(spec).ok()) << (*engine)->Validate(spec);
        spec.prompt.push_back(5);
        EXPECT_EQ((*engine)->Validate(spec).code(), absl::StatusCode::kOutOfRange);
      }
    }
  }
}

TEST_F(CapacityTest, SmallerTypesLeaveRoomForMore) {
  const auto machine = MachineWithFree(128 * kMiB);
  const auto table = PlanCapacity(
      Question({std::nullopt}, {DType::kF32, DType::kBF16, DType::kI8}, {1}), *machine, kernels_);
  ASSERT_TRUE(table.ok()) << table.status();
  ASSERT_EQ(table->cases.size(), 3);
  EXPECT_GT(table->cases[1].tokens, table->cases[0].tokens * 19 / 10);
  EXPECT_GT(table->cases[2].tokens, table->cases[1].tokens * 17 / 10);
}

TEST_F(CapacityTest, MemoryOfEachDeviceAddsUp) {
  BackendCapabilities capabilities = CreateCpuBackend().value()->capabilities();
  capabilities.memory_bytes = 256 * kMiB;
  capabilities.host_accessible = false;
  capabilities.devices = 8;
  const auto machine = MakePlannedBackend(capabilities);
  const auto table =
      PlanCapacity(Question({std::nullopt}, {DType::kF32}, {1, 2, 4}), *machine, kernels_);
  ASSERT_TRUE(table.ok()) << table.status();
  ASSERT_EQ(table->cases.size(), 3);
  for (const CapacityCase& planned : table->cases) {
    EXPECT_EQ(planned.plan.ranks, 1);
    EXPECT_EQ(planned.plan.free, planned.plan.total - planned.plan.weights);
    EXPECT_LE(planned.plan.needed(), planned.plan.free);
  }
  EXPECT_GT(table->cases[1].tokens, table->cases[0].tokens * 16 / 10);
  EXPECT_GT(table->cases[2].tokens, table->cases[1].tokens * 16 / 10);
}

TEST_F(CapacityTest, KeysAndValuesTakeWhatTheyAreGiven) {
  const auto machine = MachineWithFree(128 * kMiB);
  CapacityQuestion question = Question({std::nullopt}, {DType::kF32}, {1});
  question.options.kv_memory_bytes = 16 * kMiB;
  const auto given = PlanCapacity(question, *machine, kernels_);
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_EQ(given->cases.at(0).plan.kv, 16 * kMiB);
  question.options.kv_memory_bytes = 32 * kMiB;
  const auto twice = PlanCapacity(question, *machine, kernels_);
  ASSERT_TRUE(twice.ok()) << twice.status();
  EXPECT_GT(twice->cases.at(0).tokens, given->cases.at(0).tokens);
}

// They take the host's memory, so what a device of its own has is left as it is.
TEST_F(CapacityTest, ServicesTakeTheirPartOfTheHost) {
  BackendCapabilities capabilities = MachineWithFree(256 * kMiB)->capabilities();
  for (const bool host_accessible : {true, false}) {
    capabilities.host_accessible = host_accessible;
    const auto machine = MakePlannedBackend(capabilities);
    CapacityQuestion question = Question({std::nullopt}, {DType::kF32}, {1});
    const auto without = PlanCapacity(question, *machine, kernels_);
    question.services_bytes = 64 * kMiB;
    const auto with = PlanCapacity(question, *machine, kernels_);
    ASSERT_TRUE(without.ok() && with.ok()) << without.status() << with.status();
    const double less = static_cast<double>(without->cases.at(0).plan.kv) -
                        static_cast<double>(with->cases.at(0).plan.kv);
    // Between the two plans this program may have grown.
    EXPECT_NEAR(less / kMiB, host_accessible ? 64 : 0, host_accessible ? 8 : 0);
    EXPECT_LE(with->cases.at(0).plan.needed(), with->cases.at(0).plan.free);
  }
}

TEST_F(CapacityTest, WhatDoesNotFitIsSaid) {
  const auto small = Machine(1 * kMiB);
  const auto table = PlanCapacity(Question({std::nullopt}, {DType::kF32}, {1}), *small, kernels_);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->cases.at(0).tokens, 0);
  EXPECT_EQ(table->cases.at(0).plan.kv, 0);
  EXPECT_GT(table->cases.at(0).plan.needed(), table->cases.at(0).plan.free);
  // Of several dtypes those that the kernels have are planned for; a lone one is refused.
  const auto some =
      PlanCapacity(Question({std::nullopt}, {DType::kF32, DType::kI4G32}, {1}), *small, kernels_);
  ASSERT_TRUE(some.ok()) << some.status();
  EXPECT_EQ(some->cases.size(), 1);
  ASSERT_EQ(some->missing.size(), 1);
  EXPECT_THAT(some->missing[0], HasSubstr("keys and values int4_g32"));
  EXPECT_EQ(PlanCapacity(Question({std::nullopt}, {DType::kI4G32}, {1}), *small, kernels_)
                .status()
                .code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(PlanCapacity(Question({std::nullopt}, {DType::kF32}, {0}), *small, kernels_).ok());
  CapacityQuestion none = Question({std::nullopt}, {DType::kF32}, {1});
  none.options.model = folder_.path() / "absent.json";
  EXPECT_THAT(PlanCapacity(none, *small, kernels_).status().message(), HasSubstr("absent.json"));
}

}  // namespace
}  // namespace annulus
