// Rings of several processes that annulus-bench starts.
#include "bench/workers/worker_processes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/register.h"
#include "tests/client/cli/terminal_process.h"
#include "tests/support/eventually.h"
#include "tests/support/temp_directory.h"
#include "tests/support/test_data.h"

namespace annulus::bench {
namespace {

using ::testing::HasSubstr;

constexpr char kConfig[] = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
    "vocab_size": 300, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "hidden_act": "silu", "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "max_position_embeddings": 4096, "torch_dtype": "bfloat16"})";

class WorkerProcesses : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!LoadWire().ok()) GTEST_SKIP() << "libucx0 is not installed";
  }
};

TEST_F(WorkerProcesses, AreTimedBesideRanksOfOneProcess) {
  const testing::TempDirectory folder;
  folder.Write("config.json", kConfig);
  const std::string rows_file = folder.path() / "rows.jsonl";
  testing::TerminalProcess bench({testing::BuildFolder() / "annulus-bench",
                                  "model",
                                  "--random",
                                  folder.path() / "config.json",
                                  "--prompt-tokens",
                                  "200",
                                  "--depth",
                                  "200",
                                  "--generate",
                                  "3",
                                  "--repeat",
                                  "1",
                                  "--ranks",
                                  "3",
                                  "--workers",
                                  "1,2",
                                  "--threads",
                                  "1",
                                  "--kv-dtype",
                                  "f32",
                                  "--json-file",
                                  rows_file});
  std::string said;
  ASSERT_EQ(bench.Wait(&said), 0) << said;
  std::vector<nlohmann::json> rows;
  std::ifstream lines(rows_file);
  for (std::string line; std::getline(lines, line);) rows.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(rows.size(), 6u) << said;
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].at("phase"), i % 2 == 0 ? "prefill" : "decode");
    EXPECT_EQ(rows[i].at("workers"), i / 2);
    EXPECT_EQ(rows[i].at("ranks"), i / 2 == 1 ? 2 : 3);
    EXPECT_EQ(rows[i].at("same_tokens"), 1);
    EXPECT_GT(rows[i].at("empty_step_seconds").get<double>(), 0);
    EXPECT_GT(rows[i].at("ratio_to_first").get<double>(), 0);
  }
}

// What is started here is this test again, without any tests: it never dials.
TEST_F(WorkerProcesses, AnEngineDoesNotWaitForOneThatHasEnded) {
  const auto workers = StartWorkerProcesses(1, {"--gtest_filter=-*"}).value();
  ASSERT_TRUE(testing::Eventually([&] { return !workers->Check().ok(); }));
  EXPECT_EQ(workers->Check().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(workers->Check().message()), HasSubstr("ended early, with status"));
  const auto backend = CreateCpuBackend().value();
  KernelRegistry kernels;
  RegisterCpuKernels(kernels);
  EngineOptions options;
  options.ranks = 2;
  options.threads = 1;
  options.kv_memory_bytes = size_t{64} << 20;
  const auto engine = CreateEngine(options, workers->engine_workers(), *backend, kernels);
  EXPECT_EQ(engine.status(), workers->Check());
}

TEST_F(WorkerProcesses, OneThatNobodyAwaitsIsRefused) {
  const auto backend = CreateCpuBackend().value();
  KernelRegistry kernels;
  RegisterCpuKernels(kernels);
  EngineOptions options;
  options.threads = 1;
  EXPECT_EQ(ServeAsWorker("127.0.0.1:1", options, *backend, kernels).code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace annulus::bench
