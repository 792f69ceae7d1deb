// Attention policies of requests behind engine/api.h, with the builtin recall model.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/demo/document.h"
#include "engine/engine_seams.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/sanitizers.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/register.h"
#include "tests/support/collecting_sink.h"
#include "tests/support/plain_options.h"
#include "tests/support/temp_directory.h"
#include "tests/support/thinned.h"

namespace annulus {
namespace {

using testing::CollectingSink;
using ::testing::HasSubstr;

class PolicyTest : public ::testing::Test {
 protected:
  PolicyTest() : backend_(CreateCpuBackend().value()) {
    RegisterCpuKernels(registry_);
    options_.ranks = 2;
    options_.threads = 2;
    options_.kv_memory_bytes = 256 << 20;
    options_.chunk_tokens = 512;
    options_.tokens_per_rank = 256;
    WriteDocument(12'000);
  }

  void WriteDocument(int64_t bytes) {
    bench::DemoOptions demo;
    demo.bytes = bytes;
    demo.seed = 4;
    document_ = bench::MakeDemoDocument(demo).value();
  }

  void Start() {
    auto engine = CreateEngineWith({.through_bytes = true}, options_, *backend_, registry_);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
  }

  struct Answer {
    std::string text;
    Completion done;
  };
  Answer Ask(const bench::DemoFact& fact, const std::string& policy) {
    RequestSpec spec;
    spec.prompt = engine_->Tokenize(document_.text + fact.cue, true, CancelFlag::Never()).value();
    spec.shared_prefixes = {static_cast<int32_t>(document_.text.size())};
    spec.sampling.temperature = 0;
    spec.sampling.max_tokens = 64;
    spec.sampling.stop = {"\n"};
    spec.attention_details = details_;
    if (!policy.empty()) spec.attention = ParseAssignment(policy).value();
    auto sink = std::make_shared<CollectingSink>();
    engine_->Submit(std::move(spec), sink).value();
    const Completion done = sink->Wait().value();
    return {sink->text(), done};
  }

  std::unique_ptr<Backend> backend_;
  KernelRegistry registry_;
  EngineOptions options_ = testing::PlainOptions();
  bench::DemoDocument document_;
  bool details_ = false;
  std::unique_ptr<Engine> engine_;  // last: it uses the others
};

TEST_F(PolicyTest, TheReportNamesThePolicyAndItsDensity) {
  Start();
  const Answer dense = Ask(document_.facts[0], "");
  EXPECT_EQ(dense.text, document_.facts[0].answer);
  EXPECT_EQ(dense.done.attention.policy, "dense");
  EXPECT_EQ(dense.done.attention.density, 1);
  // A fact far behind the window is out of sight, and the report says how little was seen.
  const Answer window = Ask(document_.facts[0], "window:sinks=64,window=512");
  EXPECT_NE(window.text, document_.facts[0].answer);
  EXPECT_EQ(window.done.attention.policy, "window:block=64,sinks=64,window=512");
  EXPECT_LT(window.done.attention.density, 0.11);
  EXPECT_GT(window.done.attention.density, 0.01);
}

TEST_F(PolicyTest, KeysAndValuesOfAPolicyServeThatPolicyAlone) {
  WriteDocument(kSanitized ? 4'000 : 12'000);
  const int64_t most = std::ssize(document_.text) - 1000;
  Start();
  const std::string window = "window:sinks=64,window=512";
  EXPECT_EQ(Ask(document_.facts[1], window).done.usage.cached_tokens, 0);
  EXPECT_GT(Ask(document_.facts[1], window).done.usage.cached_tokens, most);
  EXPECT_EQ(Ask(document_.facts[1], "window:sinks=64,window=576").done.usage.cached_tokens, 0);
  EXPECT_EQ(Ask(document_.facts[1], "").done.usage.cached_tokens, 0);
  // Dense pages are exact, so everybody may use them.
  EXPECT_GT(Ask(document_.facts[1], "strided").done.usage.cached_tokens, most);
}

// Policies that choose from content too; what a chunk behind reused pages chooses keeps the
// contract, and pages left out of a contract are nobody else's.
TEST_F(PolicyTest, KeysAndValuesOfChoicesFromContentServeThatPolicyAlone) {
  options_.model = "builtin:recall3";
  WriteDocument(2'500);
  Start();
  const bench::DemoFact& fact = document_.facts[1];
  std::string before;
  const std::vector<std::string> policies = {"adaptive:coverage=0.9",     "adaptive:tau=0.9",
                                             "hierarchical:coverage=0.9", "hierarchical:near=4",
                                             "top_pages:pages=8",         "strided:coverage=0.9"};
  for (const std::string& policy : testing::ThinnedIfSanitized(policies, 3)) {
    EXPECT_EQ(Ask(fact, policy).done.usage.cached_tokens, 0) << policy << " after " << before;
    const Answer again = Ask(fact, policy);
    EXPECT_GT(again.done.usage.cached_tokens, 2'400) << policy;
    EXPECT_TRUE(again.done.attention.contract_met) << policy;
    if (policy.find("coverage") != std::string::npos) {
      EXPECT_EQ(again.text, fact.answer) << policy;
    }
    before = policy;
  }
}

// Bytes by mode, as ring_bytes_total shows them.
double RingBytes(const Engine& engine, const std::string& mode) {
  double sum = 0;
  for (const MetricFamily& family : engine.Metrics()) {
    if (family.name != "annulus_ring_bytes_total") continue;
    for (const MetricSample& sample : family.samples) {
      for (const auto& [label, value] : sample.labels) sum += value == mode ? sample.value : 0;
    }
  }
  return sum;
}

TEST_F(PolicyTest, BlocksThatNobodyChoseAreMissingInTheBytesOfTheRing) {
  options_.model = "builtin:recall3";
  options_.ranks = 4;
  options_.ring_mode = RingMode::kPassKv;
  WriteDocument(4'000);
  Start();
  // Dense comes last: its pages would serve the others.
  std::map<std::string, double> bytes;
  double before = 0;
  for (const std::string policy : {"window:sinks=64,window=512", "hierarchical:near=4", "dense"}) {
    Ask(document_.facts[1], policy);
    bytes[policy] = RingBytes(*engine_, "pass_kv") - before;
    before += bytes[policy];
  }
  EXPECT_GT(bytes["dense"], 0);
  EXPECT_LT(bytes["window:sinks=64,window=512"], bytes["dense"] / 2);
  EXPECT_LT(bytes["hierarchical:near=4"], bytes["dense"] * 3 / 4);
  EXPECT_GT(RingBytes(*engine_, "estimate"), 0);
  EXPECT_LT(RingBytes(*engine_, "estimate"), bytes["dense"] / 10);
}

TEST_F(PolicyTest, TheEngineHasADefault) {
  options_.attention = ParsePolicy("hierarchical:near=4").value();
  WriteDocument(3'000);
  Start();
  EXPECT_EQ(Ask(document_.facts[1], "").done.attention.policy,
            "hierarchical:block=64,near=4,fan=4,levels=0");
  EXPECT_EQ(Ask(document_.facts[1], "dense").done.attention.policy, "dense");
}

TEST_F(PolicyTest, TopPagesFindFacts) {
  Start();
  for (const bench::DemoFact& fact : document_.facts) {
    const Answer answer = Ask(fact, "top_pages:pages=32");
    EXPECT_EQ(answer.text, fact.answer) << fact.depth;
    EXPECT_LT(answer.done.attention.density, 1);
    EXPECT_TRUE(answer.done.attention.contract_met);
    ASSERT_TRUE(answer.done.attention.sampled.has_value());
    EXPECT_GT(answer.done.attention.sampled->coverage, 0.5);
  }
}

TEST_F(PolicyTest, TheReportSaysWhatAContractDid) {
  options_.model = "builtin:recall3";
  WriteDocument(2'500);
  Start();
  const Answer answer = Ask(document_.facts[0], "adaptive:coverage=0.9");
  const AttentionReport& report = answer.done.attention;
  ASSERT_TRUE(answer.done.status.ok()) << answer.done.status;
  EXPECT_EQ(answer.text, document_.facts[0].answer);
  ASSERT_TRUE(report.sampled.has_value());
  EXPECT_GE(report.sampled->minimum, 0.9 - 1e-9);
  EXPECT_GE(report.sampled->coverage, report.sampled->minimum);
  EXPECT_GE(report.sampled->rows, 16);
  EXPECT_TRUE(report.contract_met);
  ASSERT_TRUE(report.estimated_coverage.has_value());
  EXPECT_GE(*report.estimated_coverage, 0.9 - 1e-6);
  EXPECT_FALSE(report.inherited_coverage.has_value());
  EXPECT_GT(report.estimate_seconds, 0);
  EXPECT_GT(report.attend_seconds, 0);
  // Ranks work at the same time: their clocks add up to more than what the request waited for.
  for (const auto& [wall, sum] :
       {std::pair(report.attend_wall_seconds, report.attend_seconds),
        std::pair(report.estimate_wall_seconds, report.estimate_seconds)}) {
    EXPECT_LT(wall, sum);
    EXPECT_GE(wall, sum / report.ring_degree * (1 - 1e-9));
  }
  EXPECT_LT(report.attend_wall_seconds + report.estimate_wall_seconds, answer.done.timings.total);
  EXPECT_TRUE(report.details.empty());
  // A window without a contract covers little, and says so; its pages carry that on.
  const std::string window = "window:sinks=64,window=256";
  const Answer blind = Ask(document_.facts[0], window);
  ASSERT_TRUE(blind.done.attention.sampled.has_value());
  EXPECT_LT(blind.done.attention.sampled->minimum, 0.5);
  EXPECT_FALSE(blind.done.attention.estimated_coverage.has_value());
  const Answer again = Ask(document_.facts[0], window);
  EXPECT_GT(again.done.usage.cached_tokens, 2'000);
  ASSERT_TRUE(again.done.attention.inherited_coverage.has_value());
  EXPECT_EQ(*again.done.attention.inherited_coverage, blind.done.attention.sampled->minimum);
  // With a contract the window goes dense.
  const Answer kept = Ask(document_.facts[0], window + ",coverage=0.9");
  EXPECT_EQ(kept.done.usage.cached_tokens, 0);
  EXPECT_EQ(kept.text, document_.facts[0].answer);
  EXPECT_GT(kept.done.attention.layers_dense, 0);
  EXPECT_TRUE(kept.done.attention.contract_met);
}

TEST_F(PolicyTest, DetailsAreGivenWhenAskedFor) {
  options_.model = "builtin:recall3";
  WriteDocument(2'500);
  Start();
  details_ = true;
  const Answer answer = Ask(document_.facts[0], "window:sinks=64,window=192");
  ASSERT_FALSE(answer.done.attention.details.empty());
  for (const AttentionDetail& detail : answer.done.attention.details) {
    EXPECT_LT(detail.density, 0.5);
    ASSERT_EQ(detail.map.size(), size_t{64} * 64);
    // Dense at the diagonal and the sinks, nothing between, nothing above.
    EXPECT_EQ(detail.map[63 * 64 + 63], 255);
    EXPECT_GT(detail.map[63 * 64], 0);
    EXPECT_EQ(detail.map[63 * 64 + 30], 0);
    EXPECT_EQ(detail.map[30 * 64 + 40], 0);
  }
}

// Details of dilated add up to the report's density, and its coverage is sampled as any other's.
TEST_F(PolicyTest, DilatedTellsCoverageAndDetails) {
  options_.model = "builtin:recall3";
  WriteDocument(2'500);
  Start();
  details_ = true;
  const Answer answer = Ask(document_.facts[0], "dilated:segments=128/512,rates=1/2");
  const AttentionReport& report = answer.done.attention;
  ASSERT_TRUE(report.sampled.has_value());
  EXPECT_GT(report.sampled->coverage, 0);
  EXPECT_LT(report.sampled->coverage, 0.9);
  EXPECT_GT(report.layer_steps, 0);
  ASSERT_FALSE(report.details.empty());
  double density = 0;
  for (const AttentionDetail& detail : report.details) {
    density += detail.density / static_cast<double>(report.details.size());
    ASSERT_EQ(detail.map.size(), size_t{64} * 64);
    EXPECT_GT(detail.map[63 * 64 + 63], 0);
    EXPECT_EQ(detail.map[63 * 64], 0);
  }
  EXPECT_NEAR(density, report.density, 0.01);
}

TEST_F(PolicyTest, ValuesOutOfRangeAreNamed) {
  Start();
  RequestSpec spec;
  spec.prompt = {1, 2, 3};
  spec.attention = ParsePolicy("window:block=32").value();
  const absl::Status status = engine_->Validate(spec);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.GetPayload(kFieldPayload), absl::Cord("attention.policy"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("a multiple of the page"));
  // A policy that this server cannot follow is the caller's to change.
  spec.attention = ParsePolicy("learned").value();
  const absl::Status gates = engine_->Validate(spec);
  EXPECT_EQ(gates.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(gates.GetPayload(kFieldPayload), absl::Cord("attention.policy"));
  EXPECT_THAT(std::string(gates.message()), HasSubstr("--attention-gates FILE"));
  options_.attention.policy.kind = PolicyKind::kWindow;
  options_.attention.policy.window = 0;
  EXPECT_FALSE(CreateEngineWith({.through_bytes = true}, options_, *backend_, registry_).ok());
}

// A safetensors file of tensors [heads, width, columns] whose bytes are all alike.
std::string GatesFile(const std::string& dtype, int size, const std::string& query_shape,
                      const std::string& key_shape, int64_t query_count, int64_t key_count,
                      char byte) {
  std::string header = "{";
  int64_t at = 0;
  for (const char* layer : {"0", "1"}) {
    for (const bool query : {true, false}) {
      const int64_t end = at + (query ? query_count : key_count) * size;
      absl::StrAppend(&header, at == 0 ? "" : ",", "\"layers.", layer, query ? ".query" : ".key",
                      "\":{\"dtype\":\"", dtype, "\",\"shape\":", query ? query_shape : key_shape,
                      ",\"data_offsets\":[", at, ",", end, "]}");
      at = end;
    }
  }
  header += "}";
  std::string file(8, '\0');
  for (int i = 0; i < 8; ++i) file[i] = static_cast<char>(header.size() >> 8 * i);
  return file + header + std::string(static_cast<size_t>(at), byte);
}

// Nothing is started with gates that do not fit the model: 3 heads of 16 in two layers.
TEST_F(PolicyTest, GatesThatDoNotFitAreRefusedWithWhatIsAllowed) {
  const testing::TempDirectory directory;
  directory.Write("config.json",
                  R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
                      "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2,
                      "num_attention_heads": 3, "num_key_value_heads": 3, "vocab_size": 300,
                      "max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
                      "hidden_act": "silu", "rope_theta": 10000.0})");
  options_.model = "random:" + (directory.path() / "config.json").string();
  options_.attention = ParsePolicy("learned").value();
  const auto error = [&](const std::string& content) {
    directory.Write("gates.safetensors", content);
    options_.attention_gates = (directory.path() / "gates.safetensors").string();
    const absl::Status status =
        CreateEngineWith({.through_bytes = true}, options_, *backend_, registry_).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr("gates.safetensors"));
    return std::string(status.message());
  };
  const auto gates = [](const std::string& dtype, int size, char byte) {
    return GatesFile(dtype, size, "[3,2,16]", "[3,2,48]", 96, 288, byte);
  };
  EXPECT_THAT(error("not tensors"), HasSubstr("header"));
  EXPECT_THAT(error(GatesFile("F32", 4, "[4,2,16]", "[3,2,48]", 128, 288, 0)),
              HasSubstr("layers.0.query is [4, 2, 16]; allowed: [3, width, 16]"));
  EXPECT_THAT(error(GatesFile("F32", 4, "[3,2,16]", "[3,2,16]", 96, 96, 0)),
              HasSubstr("layers.0.key is [3, 2, 16]; allowed: [3, width, 48]"));
  EXPECT_THAT(error(GatesFile("F32", 4, "[3,2,16]", "[3,3,48]", 96, 432, 0)),
              HasSubstr("must be equal"));
  EXPECT_THAT(error(gates("I64", 8, 0)), HasSubstr("I64"));
  EXPECT_THAT(error(gates("F32", 4, '\xff')), HasSubstr("holds NaN or infinity"));
  const std::string whole = gates("F32", 4, 0);
  EXPECT_THAT(error(whole.substr(0, whole.size() - 5)), HasSubstr("bytes"));
  options_.attention_gates = (directory.path() / "none.safetensors").string();
  EXPECT_THAT(std::string(CreateEngineWith({.through_bytes = true}, options_, *backend_, registry_)
                              .status()
                              .message()),
              HasSubstr("none.safetensors"));
  options_.attention_gates.clear();
  EXPECT_THAT(std::string(CreateEngineWith({.through_bytes = true}, options_, *backend_, registry_)
                              .status()
                              .message()),
              HasSubstr("--attention-gates FILE"));
  // What fits is taken, in other types too.
  for (const auto& [dtype, size] :
       {std::pair("F32", 4), std::pair("BF16", 2), std::pair("F16", 2)}) {
    directory.Write("gates.safetensors", gates(dtype, size, 0));
    options_.attention_gates = (directory.path() / "gates.safetensors").string();
    const auto engine = CreateEngineWith({.through_bytes = true}, options_, *backend_, registry_);
    EXPECT_TRUE(engine.ok()) << engine.status();
  }
}

}  // namespace
}  // namespace annulus
