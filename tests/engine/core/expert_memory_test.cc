// Models whose experts do not all fit give the same tokens and log probabilities, bit for bit, as
// with all experts in memory.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/capacity.h"
#include "engine/engine_seams.h"
#include "engine/memory_plan.h"
#include "engine/model/model_config.h"
#include "kernels/base/format_bytes.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/register.h"
#include "kernels/planned_backend.h"
#include "tests/engine/core/windowed_model.h"
#include "tests/engine/gguf/gguf_checkpoint.h"
#include "tests/support/collecting_sink.h"
#include "tests/support/plain_options.h"
#include "tests/support/sampled_answer.h"
#include "tests/support/temp_directory.h"
#include "tests/support/test_data.h"
#include "tests/support/thinned.h"

namespace annulus {
namespace {

using testing::CollectingSink;
using testing::ExpectSame;
using testing::GgufNumber;
using testing::GgufWriter;
using ::testing::HasSubstr;
using testing::SampledAnswer;
using testing::TempDirectory;
using testing::WaitSampled;

class ExpertMemoryTest : public ::testing::Test {
 protected:
  ExpertMemoryTest() : backend_(CreateCpuBackend().value()) { RegisterCpuKernels(registry_); }

  static EngineOptions Options(const std::string& model, int ranks, int64_t limit,
                               std::optional<DType> dtype = std::nullopt) {
    EngineOptions options = testing::PlainOptions();
    options.model = model;
    options.weights_dtype = dtype;
    options.ranks = ranks;
    options.threads = 2 * ranks;
    options.expert_memory_bytes = limit;
    options.kv_memory_bytes = 32 << 20;
    options.page_tokens = 16;
    options.chunk_tokens = 96;
    options.tokens_per_rank = 40;
    return options;
  }

  std::unique_ptr<Engine> Make(const EngineOptions& options) {
    auto engine = CreateEngineWith({.through_bytes = true}, options, *backend_, registry_);
    EXPECT_TRUE(engine.ok()) << engine.status();
    return *std::move(engine);
  }

  static std::shared_ptr<CollectingSink> Ask(Engine& engine, const std::vector<int32_t>& prompt) {
    return testing::AskSampled(engine, prompt, 12);
  }

  static std::vector<std::vector<int32_t>> Prompts(int vocabulary) {
    return testing::PromptsWithSharedStarts(vocabulary, {5, 70, 100, 130, 180});
  }

  // What --plan says of the model.
  absl::StatusOr<MemoryPlan> Plan(const EngineOptions& options) {
    CapacityQuestion question;
    question.options = options;
    question.weights_dtypes = {options.weights_dtype};
    question.kv_dtypes = {options.kv_dtype};
    question.ranks = {options.ranks};
    auto table = PlanCapacity(question, *backend_, registry_);
    if (!table.ok()) return table.status();
    return table->cases.front().plan;
  }

  // The least limit that is allowed.
  int64_t Least(const std::string& model, std::optional<DType> dtype) {
    int64_t refused = 0;
    int64_t allowed = int64_t{1} << 30;
    while (allowed - refused > 1) {
      const int64_t middle = refused + (allowed - refused) / 2;
      (Plan(Options(model, 1, middle, dtype)).ok() ? allowed : refused) = middle;
    }
    return allowed;
  }

  static double Metric(const Engine& engine, const std::string& name) {
    for (const MetricFamily& family : engine.Metrics()) {
      if (family.name == "annulus_expert_" + name) return family.samples.front().value;
    }
    ADD_FAILURE() << name;
    return 0;
  }

  // `half`: how many experts are half of the model's; `chosen`: those that a row meets.
  void Check(const std::string& model, std::optional<DType> dtype, int half, int chosen) {
    const std::unique_ptr<Engine> all = Make(Options(model, 1, 0, dtype));
    EXPECT_EQ(Metric(*all, "steps_total"), 0);
    const std::vector<std::vector<int32_t>> prompts = Prompts(all->model().vocabulary);
    std::vector<SampledAnswer> expected;
    for (const auto& prompt : prompts) expected.push_back(WaitSampled(*Ask(*all, prompt)));
    const int64_t least = Least(model, dtype);
    for (const int64_t limit : {least, least / (2 * chosen) * half}) {
      for (const int ranks : {1, 3}) {
        const EngineOptions options = Options(model, ranks, limit, dtype);
        const std::unique_ptr<Engine> engine = Make(options);
        const std::string where =
            std::to_string(limit) + " bytes, " + std::to_string(ranks) + " ranks";
        CheckAnswers(*engine, prompts, expected, where);
        const auto plan = Plan(options);
        ASSERT_TRUE(plan.ok()) << plan.status();
        EXPECT_EQ(engine->Load().plan.weights, plan->weights) << where;
        EXPECT_LT(plan->weights, all->Load().plan.weights) << where;
        EXPECT_EQ(engine->Load().plan.expert_readers, plan->expert_readers) << where;
        EXPECT_GT(plan->expert_readers, 0u) << where;
        EXPECT_GT(Metric(*engine, "misses_total"), 0) << where;
        EXPECT_GT(Metric(*engine, "hits_total"), 0) << where;
        EXPECT_GT(Metric(*engine, "read_bytes_total"), 0) << where;
        EXPECT_GT(Metric(*engine, "wait_seconds_total"), 0) << where;
        EXPECT_GT(Metric(*engine, "waited_steps_total"), 0) << where;
        EXPECT_GE(Metric(*engine, "steps_total"), Metric(*engine, "waited_steps_total")) << where;
      }
    }
  }

  // Fresh, then from the cache, then all beside each other.
  static void CheckAnswers(Engine& engine, const std::vector<std::vector<int32_t>>& prompts,
                           const std::vector<SampledAnswer>& expected, const std::string& where) {
    int64_t cached = 0;
    for (const char* how : {", first", ", again"}) {
      for (size_t i = 0; i < prompts.size(); ++i) {
        const SampledAnswer answer = WaitSampled(*Ask(engine, prompts[i]));
        ExpectSame(answer, expected[i], where + how);
        cached += answer.cached;
      }
    }
    EXPECT_GT(cached, 0) << where;
    std::vector<std::shared_ptr<CollectingSink>> sinks;
    for (const auto& prompt : prompts) sinks.push_back(Ask(engine, prompt));
    for (size_t i = 0; i < prompts.size(); ++i) {
      ExpectSame(WaitSampled(*sinks[i]), expected[i], where + ", together");
    }
  }

  std::unique_ptr<Backend> backend_;
  KernelRegistry registry_;
};

std::string GoldenModel(const std::string& name) {
  return testing::TestFile("golden/" + name).string();
}

// A model of tests/golden, and of its experts half and those that a row meets.
struct Case {
  const char* name;
  std::optional<DType> dtype;
  int half;
  int chosen;
};

std::string TestName(const Case& one) {
  return std::string(one.name) + (one.dtype ? "_" + std::string(DTypeName(*one.dtype)) : "");
}

std::ostream& operator<<(std::ostream& out, const Case& one) { return out << TestName(one); }

const std::vector<Case> kCases = {
    {"qwen3_moe", std::nullopt, 7, 3},            // softmax, bf16; a dense layer between
    {"qwen3_moe", DType::kI4G32, 7, 3},           //
    {"qwen3_moe", DType::kI8, 7, 3},              //
    {"minimax_m2", std::nullopt, 7, 3},           // sigmoid with a bias
    {"glm4_moe", DType::kI4G32, 4, 2},            // groups, a shared block; first layer dense
    {"gpt_oss", std::nullopt, 4, 2},              // biases; MXFP4 in stacks; windows
    {"qwen3_vl_moe_turned", std::nullopt, 6, 2},  // stacks, [in, out]
    {"gemma4_moe", std::nullopt, 6, 2},           // beside the block
};

class ExpertMemoryOfTest : public ExpertMemoryTest, public ::testing::WithParamInterface<Case> {};

TEST_P(ExpertMemoryOfTest, GivesTheSameBits) {
  const Case& one = GetParam();
  Check(GoldenModel(one.name), one.dtype, one.half, one.chosen);
}

INSTANTIATE_TEST_SUITE_P(All, ExpertMemoryOfTest,
                         ::testing::ValuesIn(testing::ThinnedIfSanitized(kCases, 3)),
                         [](const auto& info) { return TestName(info.param); });

TEST_F(ExpertMemoryTest, RandomWeightsAreMadeAgain) {
  const TempDirectory folder;
  Check(testing::WindowedModel(folder, "mixtral"), DType::kI4G32, 5, 2);
}

// Blocks of a type that kernels read as they are.
std::string Blocks(int64_t values, std::mt19937& random) {
  constexpr int64_t kBlock = 32;
  std::string bytes;
  for (int64_t block = 0; block < values / kBlock; ++block) {
    bytes += GgufNumber(uint16_t{0x2a00});  // 0.047
    for (int64_t i = 0; i < kBlock / 2; ++i) bytes.push_back(static_cast<char>(random()));
  }
  return bytes;
}

// 2 layers of 8 experts, of which a row meets 2; matrices in Q4_0.
void WriteGguf(const TempDirectory& folder) {
  constexpr uint32_t kQ4_0 = 2;
  constexpr int64_t kVocabulary = 96, kHidden = 64, kExperts = 8, kSize = 32;
  std::ifstream file(testing::TestFile("golden/qwen3_moe/config.json"));
  nlohmann::json json = nlohmann::json::parse(file);
  json["hidden_size"] = kHidden;
  json["moe_intermediate_size"] = kSize;
  json["num_hidden_layers"] = 2;
  json["mlp_only_layers"] = nlohmann::json::array();
  json["num_local_experts"] = kExperts;
  json["num_experts_per_tok"] = 2;
  json["vocab_size"] = kVocabulary;
  const ModelConfig config = ParseModelConfig(json.dump(), "config.json").value();
  const AttentionShape& attention = config.layers[0].attention;
  GgufWriter writer;
  WriteGgufMetadata({"qwen3_moe", "qwen3moe"}, config, writer);
  testing::WriteGgufTokens(kVocabulary, writer);
  std::mt19937 random(9);
  const auto ones = [&](const std::string& name, int64_t size) {
    writer.AddFloats(name, {size}, std::vector<float>(static_cast<size_t>(size), 1.0f));
  };
  const auto matrix = [&](const std::string& name, const std::vector<int64_t>& shape) {
    int64_t values = 1;
    for (const int64_t size : shape) values *= size;
    writer.AddTensor(name, shape, kQ4_0, Blocks(values, random));
  };
  matrix("token_embd.weight", {kVocabulary, kHidden});
  matrix("output.weight", {kVocabulary, kHidden});
  ones("output_norm.weight", kHidden);
  for (const std::string layer : {"blk.0.", "blk.1."}) {
    ones(layer + "attn_norm.weight", kHidden);
    ones(layer + "ffn_norm.weight", kHidden);
    ones(layer + "attn_q_norm.weight", attention.k_dim);
    ones(layer + "attn_k_norm.weight", attention.k_dim);
    matrix(layer + "attn_q.weight", {attention.query_columns(), kHidden});
    matrix(layer + "attn_k.weight", {attention.key_columns(), kHidden});
    matrix(layer + "attn_v.weight", {attention.value_columns(), kHidden});
    matrix(layer + "attn_output.weight", {kHidden, attention.attended_columns()});
    matrix(layer + "ffn_gate_inp.weight", {kExperts, kHidden});
    matrix(layer + "ffn_gate_exps.weight", {kExperts, kSize, kHidden});
    matrix(layer + "ffn_up_exps.weight", {kExperts, kSize, kHidden});
    matrix(layer + "ffn_down_exps.weight", {kExperts, kHidden, kSize});
  }
  folder.Write("model.gguf", writer.File());
}

TEST_F(ExpertMemoryTest, OfAGgufFileWhoseCodesAreKept) {
  const TempDirectory folder;
  WriteGguf(folder);
  const std::string model = (folder.path() / "model.gguf").string();
  EXPECT_EQ(Make(Options(model, 1, 0))->model().weights_dtype, DType::kQ4_0);
  Check(model, std::nullopt, 8, 2);
  Check(model, DType::kI8, 8, 2);
}

TEST_F(ExpertMemoryTest, WithRoomForAllTheModelIsLoadedAsEver) {
  const std::string model = GoldenModel("qwen3_moe");
  const auto with = Make(Options(model, 1, 64 << 20));
  EXPECT_EQ(with->Load().plan.weights, Make(Options(model, 1, 0))->Load().plan.weights);
  EXPECT_EQ(with->Load().plan.expert_readers, 0u);
  WaitSampled(*Ask(*with, {5, 6, 7}));
  EXPECT_EQ(Metric(*with, "steps_total"), 0);
}

class ExpertMemoryOfRanksTest : public ExpertMemoryTest,
                                public ::testing::WithParamInterface<int> {};

INSTANTIATE_TEST_SUITE_P(Ranks, ExpertMemoryOfRanksTest, ::testing::Values(1, 3));

// A request whose experts cannot be read ends with an error, and the engine goes on.
TEST_P(ExpertMemoryOfRanksTest, AFileThatIsCutShortFailsTheRequestAlone) {
  const TempDirectory folder;
  std::filesystem::copy(GoldenModel("qwen3_moe"), folder.path(),
                        std::filesystem::copy_options::recursive);
  const std::string model = folder.path().string();
  const int ranks = GetParam();
  const auto engine = Make(Options(model, ranks, Least(model, std::nullopt)));
  const std::vector<int32_t> prompt = Prompts(101).back();
  WaitSampled(*Ask(*engine, prompt));
  std::filesystem::resize_file(folder.path() / "model.safetensors", 5000);
  std::vector<int32_t> other = prompt;
  std::swap(other.front(), other.back());
  for (int i = 0; i < 2; ++i) {
    const auto done = Ask(*engine, other)->Wait();
    ASSERT_TRUE(done.has_value());
    EXPECT_EQ(done->status.code(), absl::StatusCode::kUnavailable) << done->status;
    const auto cause = done->status.GetPayload(kCausePayload);
    ASSERT_TRUE(cause.has_value());
    EXPECT_THAT(std::string(*cause), HasSubstr("model.safetensors"));
  }
  EXPECT_TRUE(engine->Load().healthy);
}

TEST_F(ExpertMemoryTest, LimitsAreRefusedWithTheNumbers) {
  const std::string model = GoldenModel("qwen3_moe");
  const int64_t least = Least(model, std::nullopt);
  const absl::Status low =
      CreateEngine(Options(model, 1, least - 1), *backend_, registry_).status();
  EXPECT_EQ(low.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(low.message()), HasSubstr("expert-memory is "));
  EXPECT_THAT(std::string(low.message()), HasSubstr("(6 experts of "));
  EXPECT_THAT(std::string(low.message()), HasSubstr("all 14 experts take "));
  const absl::Status dense =
      CreateEngine(Options(GoldenModel("qwen3"), 1, 1 << 20), *backend_, registry_).status();
  EXPECT_EQ(dense.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(dense.message()), HasSubstr("the model has no experts; leave it out"));
}

// In the plan, in what admission foresees, and in the error of a plan that does not fit.
TEST_F(ExpertMemoryTest, ReadersAreInThePlan) {
  const std::string model = GoldenModel("qwen3_moe");
  const auto engine = Make(Options(model, 1, Least(model, std::nullopt)));
  const EngineLoad load = engine->Load();
  MemoryPlan plan = load.plan;
  EXPECT_GE(load.memory.workspace, static_cast<int64_t>(plan.expert_readers));
  const size_t needed = plan.needed();
  const size_t readers = std::exchange(plan.expert_readers, 0);
  EXPECT_EQ(plan.needed(), needed - readers);
  plan.expert_readers = readers;
  plan.free = needed;
  EXPECT_EQ(CheckPlan(plan, 1), absl::OkStatus());
  plan.free = needed - 1;
  EXPECT_THAT(std::string(CheckPlan(plan, 1).message()),
              HasSubstr("buffers to read experts " + FormatBytes(readers)));
}

// Keys may describe experts that no layer has.
TEST_F(ExpertMemoryTest, AModelWhoseLayersAreAllPlainHasNoExperts) {
  const std::vector<std::pair<std::string, nlohmann::json>> changes = {
      {"qwen3_moe", {{"mlp_only_layers", {0, 1, 2}}}},
      {"qwen3_moe", {{"decoder_sparse_step", 100}}},
      {"glm4_moe", {{"first_k_dense_replace", 100}}}};
  for (const auto& [golden, change] : changes) {
    std::ifstream file(GoldenModel(golden) + "/config.json");
    nlohmann::json json = nlohmann::json::parse(file);
    json.update(change);
    const TempDirectory folder;
    folder.Write("config.json", json.dump());
    const std::string model = (folder.path() / "config.json").string();
    const absl::Status status = Plan(Options(model, 1, 1 << 20)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << change;
    EXPECT_THAT(std::string(status.message()), HasSubstr("the model has no experts")) << change;
    EXPECT_TRUE(Plan(Options(model, 1, 0)).ok()) << change;
    EXPECT_EQ(LoadModelConfig(folder.path().string())->experts.count, 0) << change;
  }
}

TEST_F(ExpertMemoryTest, GpusRefuseIt) {
  BackendCapabilities capabilities = backend_->capabilities();
  capabilities.name = "cuda";
  capabilities.host_accessible = false;
  const auto gpu = MakePlannedBackend(capabilities);
  CapacityQuestion question;
  question.options = Options(GoldenModel("qwen3_moe"), 1, 1 << 20);
  question.weights_dtypes = {std::nullopt};
  question.kv_dtypes = {std::nullopt};
  question.ranks = {1};
  const absl::Status status = PlanCapacity(question, *gpu, registry_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("expert-memory leaves experts in"));
}

}  // namespace
}  // namespace annulus
