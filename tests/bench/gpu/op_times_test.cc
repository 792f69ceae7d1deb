#include "bench/gpu/op_times.h"

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/trial.h"
#include "tests/support/cuda/emulated_device.h"

namespace annulus::bench {
namespace {

using ::testing::AnyOf;

// On an emulated GPU, whose memory the host cannot touch: the figures mean nothing, but every op is
// set up and run as on a real one.
class OpTimesTest : public ::testing::Test {
 protected:
  OpTimesTest() { cuda::EmulatedDevice::Get().guarded = true; }

  // How many rows each op gives.
  std::map<std::string, int> Measure(const OpTimesOptions& options);
};

OpTimesOptions SmallOptions() {
  OpTimesOptions options;
  options.sequences = {70, 128};
  options.sparse_tokens = 256;
  options.decode_tokens = 200;
  options.heads = 4;
  options.kv_heads = 2;
  options.head_dim = 32;
  options.densities = {0.5};
  options.linear_rows = {1, 3};
  options.step_layers = 2;
  options.step_tokens = 100;
  options.step_columns = 48;
  options.hidden = 64;
  options.intermediate = 32;
  options.trial_sequences = {90, 200};
  options.few_rows = {1, 9};
  options.trial_rows = {1, 20};
  options.layer_rows = {2};
  options.wgmma_rows = {20};
  options.trial_keys = 32;
  options.trial_hidden = 64;
  options.trial_intermediate = 96;
  options.copied_bytes = 4096;
  options.weight_bytes = 10000;  // more than one matrix
  options.enough_seconds = 0;
  return options;
}

// What only rows of some ops have.
void CheckFigures(const nlohmann::json& row) {
  const std::string op = row.at("op");
  const auto number = [&](const char* name) { return row.at(name).get<double>(); };
  if (op == "prefill_blocks") {
    EXPECT_GT(number("density"), 0.3);
    EXPECT_LT(number("density"), 1);
    EXPECT_NEAR(number("ratio_bound"), number("density") + 0.05, 1e-4);
    EXPECT_GT(number("ratio_to_dense"), 0);
  }
  if (op == "decode" || op == "linear") {
    EXPECT_GT(number("of_copy"), 0);
  }
  if (op == "gate_trial" || op == "down_trial") {
    EXPECT_GT(number("of_copy"), 0);
  }
  if (op.ends_with("_trial")) {
    const std::string kernels = row.at("kernels");
    const bool overlaps = op == "overlap_trial" || op == "step_trial";
    const char* const ending = overlaps                    ? "-overlapping"
                               : op == "pairs_trial"       ? "-pairs"
                               : op == "wgmma_trial"       ? "-warpgroups"
                               : op == "prefill_fp8_trial" ? "-fp8"
                                                           : "-trial";
    EXPECT_EQ(row.at("trial"), kernels + ending);
    if (op == "prefill_fp8_trial") {
      EXPECT_GT(number("bf16_seconds"), 0);
      EXPECT_GT(number("error"), 0.005);
      EXPECT_LT(number("error"), 0.1);
    }
    EXPECT_NEAR(number("ratio_to_old"), number("seconds") / number("old_seconds"), 1e-3);
  }
  if (op == "wgmma_trial") {
    EXPECT_EQ(number("other_bits"), 0) << "the emulation adds all products in one order";
  }
  if (op == "prefill" || op == "decode" || op == "linear") {
    EXPECT_GT(number("speedup_over_bf16"), 0);
    if (row.at("dtype") == "bf16") {
      EXPECT_EQ(number("speedup_over_bf16"), 1);
    }
  }
}

std::map<std::string, int> OpTimesTest::Measure(const OpTimesOptions& options) {
  const auto backend = CreateCudaBackend(0).value();
  KernelRegistry registry;
  RegisterCudaKernels(registry);
  std::map<std::string, int> rows;
  const absl::Status status =
      MeasureOps(*backend, *registry.Available("cuda").front(), options, [&](const Row& row) {
        const nlohmann::json json = nlohmann::json::parse(row.Json());
        ++rows[json.at("op").get<std::string>()];
        const std::string table = registry.Available("cuda").front()->name;
        EXPECT_THAT(json.at("kernels").get<std::string>(), AnyOf(table, table + "-trial"));
        EXPECT_GT(json.at("seconds").get<double>(), 0);
        EXPECT_GT(json.at("host_seconds").get<double>(), 0);
        CheckFigures(json);
      });
  EXPECT_TRUE(status.ok()) << status;
  return rows;
}

TEST_F(OpTimesTest, EveryOpIsTimed) {
  const std::map<std::string, int> expected = {
      {"copy", 1},           {"decode", 3}, {"linear", 8},    {"prefill", 4},
      {"prefill_blocks", 1}, {"step", 1},   {"step_graph", 1}};
  EXPECT_EQ(Measure(SmallOptions()), expected);
}

TEST_F(OpTimesTest, PrefillIsTimedAlone) {
  OpTimesOptions options = SmallOptions();
  options.only = {"prefill", "prefill_blocks"};
  const std::map<std::string, int> expected = {{"prefill", 4}, {"prefill_blocks", 1}};
  EXPECT_EQ(Measure(options), expected);
}

struct TrialRows {
  const char* op;
  int rows;
};

class TrialTimesTest : public OpTimesTest, public ::testing::WithParamInterface<TrialRows> {};

// Only where it is named and there is one.
TEST_P(TrialTimesTest, IsTimedBesideTheTable) {
  const auto [op, rows] = GetParam();
  OpTimesOptions options = SmallOptions();
  options.only = {op};
  EXPECT_EQ(Measure(options), (std::map<std::string, int>{}));
  const OpTable trial = cuda::TrialOf(cuda::HopperOps()).value();
  const OpTable pairs = cuda::PairsTrialOf(cuda::HopperOps()).value();
  const OpTable warpgroups = cuda::WarpgroupTrialOf(cuda::HopperOps()).value();
  const OpTable float8 = cuda::Float8TrialOf(cuda::HopperOps()).value();
  options.trial = &trial;
  options.pairs = &pairs;
  options.warpgroup_trial = &warpgroups;
  options.float8_trial = &float8;
  options.overlap = cuda::LetKernelsOverlap;
  EXPECT_EQ(Measure(options), (std::map<std::string, int>{{op, rows}}));
  options.only = {"copy"};
  EXPECT_EQ(Measure(options), (std::map<std::string, int>{{"copy", 1}}));
}

INSTANTIATE_TEST_SUITE_P(Ops, TrialTimesTest,
                         ::testing::Values(TrialRows{"prefill_trial", 2},
                                           TrialRows{"pairs_trial", 2}, TrialRows{"gate_trial", 8},
                                           TrialRows{"down_trial", 8}, TrialRows{"linear_trial", 2},
                                           TrialRows{"fp8_trial", 2}, TrialRows{"overlap_trial", 4},
                                           TrialRows{"step_trial", 1}, TrialRows{"wgmma_trial", 4},
                                           TrialRows{"prefill_fp8_trial", 2}),
                         [](const auto& info) { return std::string(info.param.op); });

// Figures of kernels with other bits are worthless, and so are those of products of e4m3 that are
// further off than these are.
TEST_F(OpTimesTest, ATrialWithOtherBitsIsAnError) {
  KernelRegistry registry;
  RegisterCudaKernels(registry);
  const OpTable& table = *registry.Available("cuda").front();
  OpTable other = table;
  other.name = "other";
  other.attention = [](Stream& stream, const AttentionParams& params) {
    AttentionParams wrong = params;
    wrong.scale *= 2;
    return cuda::HopperAttention(stream, wrong);
  };
  OpTimesOptions options = SmallOptions();
  options.only = {"prefill_trial"};
  options.trial = &other;
  const auto backend = CreateCudaBackend(0).value();
  const absl::Status status =
      MeasureOps(*backend, table, options, [](const Row&) { FAIL() << "a row"; });
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_NE(status.message().find("other has other bits than cuda/sm90"), std::string::npos)
      << status;
  options.only = {"prefill_fp8_trial"};
  options.float8_trial = &other;
  const absl::Status off =
      MeasureOps(*backend, table, options, [](const Row&) { FAIL() << "a row"; });
  EXPECT_EQ(off.code(), absl::StatusCode::kInternal);
  EXPECT_NE(off.message().find("off cuda/sm90; allowed: 0.125"), std::string::npos) << off;
}

// Other bits within rounding are counted, other values are an error.
TEST_F(OpTimesTest, OtherBitsOfWgmmaAreCounted) {
  KernelRegistry registry;
  RegisterCudaKernels(registry);
  const OpTable& table = *registry.Available("cuda").front();
  OpTable other = table;
  other.name = "other";
  other.norm = [](Stream& stream, const NormParams& params) {
    NormParams larger = params;
    larger.norm.epsilon *= 1.5f;
    return cuda::Norm(stream, larger);
  };
  OpTimesOptions options = SmallOptions();
  options.only = {"wgmma_trial"};
  options.trial = &other;
  options.warpgroup_trial = &other;
  const auto backend = CreateCudaBackend(0).value();
  int rows = 0;
  const auto count = [&](const Row& row) {
    ++rows;
    EXPECT_GT(nlohmann::json::parse(row.Json()).at("other_bits").get<double>(), 0.1);
  };
  const absl::Status counted = MeasureOps(*backend, table, options, count);
  EXPECT_TRUE(counted.ok()) << counted;
  EXPECT_EQ(rows, 4);
  other.gated_mul = [](Stream&, const GatedMulParams&) { return absl::OkStatus(); };
  const absl::Status status = MeasureOps(*backend, table, options, count);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_NE(status.message().find("other has other values than cuda/sm90"), std::string::npos)
      << status;
  EXPECT_EQ(rows, 4);
}

}  // namespace
}  // namespace annulus::bench
