#include "bench/cli.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <tuple>

#include "engine/model/model_config.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/small_model.h"
#include "tests/support/temp_directory.h"
#include "tests/support/test_data.h"

namespace annulus::bench {
namespace {

// Enough to read in a moment; the figures do not matter here.
constexpr size_t kReadBytes = size_t{8} << 20;

struct Output {
  int code = 0;
  std::string out;
  std::string err;

  // One JSON object per line of standard output.
  std::vector<nlohmann::json> Rows() const {
    std::vector<nlohmann::json> rows;
    std::istringstream lines(out);
    for (std::string line; std::getline(lines, line);) {
      rows.push_back(nlohmann::json::parse(line));
    }
    return rows;
  }
};

Output Bench(const std::vector<std::string>& arguments) {
  std::ostringstream out;
  std::ostringstream err;
  const int code = RunBench(arguments, out, err, kReadBytes);
  return {code, out.str(), err.str()};
}

TEST(BenchCli, HelpSucceedsAndMisuseIsTwo) {
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {}, {"peak"}, {"model"}, {"attention"}, {"serve"}, {"gates"}, {"heads"}, {"chart"}}) {
    std::vector<std::string> help = command;
    help.push_back("--help");
    const Output output = Bench(help);
    EXPECT_EQ(output.code, 0);
    EXPECT_NE(output.out.find("Examples:\n  annulus-bench "), std::string::npos);
  }
  EXPECT_NE(Bench({"peak", "--help"}).out.find("--threads"), std::string::npos);
  EXPECT_NE(Bench({"peek"}).err.find("unknown command: peek; did you mean peak?"),
            std::string::npos);
  for (const std::vector<std::string>& misuse : std::vector<std::vector<std::string>>{
           {}, {"peek"}, {"peak", "--threads", "0"}, {"peak", "--unknown"}}) {
    const Output output = Bench(misuse);
    EXPECT_EQ(output.code, 2);
    EXPECT_TRUE(output.out.empty());
    EXPECT_FALSE(output.err.empty());
  }
}

TEST(BenchCli, GatesRefusesAFileThatIsThereBeforeItFits) {
  const testing::TempDirectory folder;
  folder.Write("gates", "gates");
  const std::string path = folder.path() / "gates";
  // The document does not exist, which would be the next thing to fail.
  const Output output =
      Bench({"gates", "--model", "builtin:recall", "--document", path + ".none", "--out", path});
  EXPECT_EQ(output.code, 1);
  EXPECT_NE(output.err.find("gates is there already"), std::string::npos);
}

TEST(BenchCli, PeakPrintsOneRowForEachKindAndNumberOfThreads) {
  const Output output = Bench({"peak", "--json", "--rounds", "1", "--threads", "2"});
  ASSERT_EQ(output.code, 0) << output.err;
  std::set<std::string> kinds;
  for (const nlohmann::json& row : output.Rows()) {
    kinds.insert(row.at("peak").get<std::string>());
    EXPECT_GT(row.at("rate").get<double>(), 0);
    EXPECT_GE(row.at("threads").get<int>(), 1);
    EXPECT_FALSE(row.at("unit").get<std::string>().empty());
    EXPECT_FALSE(row.at("instructions").get<std::string>().empty());
  }
  for (const char* kind : {"f32", "exp", "memory_read"}) EXPECT_TRUE(kinds.contains(kind)) << kind;
  EXPECT_EQ(output.Rows().size(), 2 * kinds.size());
}

// A small shape that no checkpoint has, as a file.
class BenchModel : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_.Write("config.json", R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "hidden_act": "silu", "hidden_size": 48, "intermediate_size": 112, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 300,
      "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
      "tie_word_embeddings": true, "bos_token_id": 1, "eos_token_id": 2,
      "torch_dtype": "bfloat16"})");
  }

  const testing::TempDirectory folder_;
  const std::string config_ = folder_.path() / "config.json";
};

TEST_F(BenchModel, PrintsAPrefillRowForEachPromptAndADecodeRowForEachDepth) {
  const Output output =
      Bench({"model", "--random",    config_,  "--prompt-tokens", "65,200", "--depth",
             "0,130", "--generate",  "3",      "--repeat",        "2",      "--ranks",
             "2",     "--threads",   "2",      "--weights-dtype", "f32",    "--kv-dtype",
             "f16",   "--ring-mode", "pass-q", "--json"});
  ASSERT_EQ(output.code, 0) << output.err;
  const std::vector<nlohmann::json> rows = output.Rows();
  ASSERT_EQ(rows.size(), 4u) << output.out;
  const std::vector<std::tuple<std::string, int, int>> expected = {
      {"prefill", 65, 0}, {"prefill", 200, 0}, {"decode", 3, 0}, {"decode", 3, 130}};
  for (size_t i = 0; i < rows.size(); ++i) {
    const nlohmann::json& row = rows[i];
    EXPECT_EQ(std::tuple(row.at("phase").get<std::string>(), row.at("tokens").get<int>(),
                         row.at("depth").get<int>()),
              expected[i]);
    EXPECT_EQ(row.at("ranks"), 2);
    EXPECT_EQ(row.at("threads"), 2);
    const double seconds = row.at("seconds").get<double>();
    EXPECT_GT(seconds, 0);
    EXPECT_NEAR(row.at("tokens_per_second").get<double>() * seconds, row.at("tokens").get<double>(),
                1e-6);
    EXPECT_GT(row.at("flops").get<double>(), 0);
    EXPECT_GT(row.at("peak_fraction").get<double>(), 0);
    EXPECT_GT(row.at("rss_bytes").get<int64_t>(), 0);
    EXPECT_EQ(row.at("policy"), "dense");
    EXPECT_EQ(row.at("density"), 1);
    EXPECT_EQ(row.at("weights_dtype"), "f32");
    EXPECT_EQ(row.at("kv_dtype"), "f16");
    EXPECT_EQ(row.at("ring_mode"), "pass-q");
  }
  EXPECT_EQ(rows[0].at("peak"), "f32");
  EXPECT_EQ(rows[3].at("peak"), "memory_read");
}

TEST_F(BenchModel, DecodesSeveralStreamsAtOnce) {
  const Output output = Bench({"model", "--random", config_, "--depth", "40", "--generate", "5",
                               "--streams", "1,3", "--repeat", "1", "--ranks", "2", "--json"});
  ASSERT_EQ(output.code, 0) << output.err;
  const std::vector<nlohmann::json> rows = output.Rows();
  ASSERT_EQ(rows.size(), 2u) << output.out;
  EXPECT_EQ(rows[0].at("phase"), "decode");
  const nlohmann::json& row = rows[1];
  EXPECT_EQ(row.at("phase"), "decode, batched");
  EXPECT_EQ(row.at("streams"), 3);
  EXPECT_EQ(row.at("depth"), 40);
  EXPECT_EQ(row.at("ranks"), 2);
  EXPECT_NEAR(row.at("tokens_per_second").get<double>() * row.at("step_seconds").get<double>(), 3,
              1e-6);
  EXPECT_GT(row.at("peak_fraction").get<double>(), 0);
  EXPECT_EQ(row.at("same_tokens"), 1);
}

TEST_F(BenchModel, DecodesStreamsThatShareTheirPrompt) {
  const Output output = Bench({"model", "--random", config_, "--depth", "200", "--generate", "3",
                               "--streams", "3", "--shared-prompt", "--repeat", "1", "--json"});
  ASSERT_EQ(output.code, 0) << output.err;
  ASSERT_EQ(output.Rows().size(), 1u) << output.out;
  EXPECT_EQ(output.Rows()[0].at("shared"), 136);
  EXPECT_EQ(output.Rows()[0].at("same_tokens"), 1);
}

TEST_F(BenchModel, ComparesRanksWithTheFirst) {
  const Output output =
      Bench({"model", "--random", config_, "--prompt-tokens", "200", "--depth", "200", "--generate",
             "3", "--repeat", "2", "--ranks", "1,3", "--kv-dtype", "f32", "--json"});
  ASSERT_EQ(output.code, 0) << output.err;
  const std::vector<nlohmann::json> rows = output.Rows();
  ASSERT_EQ(rows.size(), 4u) << output.out;
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].at("ranks"), i < 2 ? 1 : 3);
    EXPECT_EQ(rows[i].at("same_tokens"), 1);
    EXPECT_GE(rows[i].at("exposed_seconds").get<double>(), 0);
    const double ratio =
        rows[i].at("seconds").get<double>() / rows[i % 2].at("seconds").get<double>();
    EXPECT_NEAR(rows[i].at("ratio_to_first").get<double>(), ratio, 1e-4 * ratio);
  }
}

TEST_F(BenchModel, ReportsTheDensityOfAPolicy) {
  const Output output = Bench({"model", "--random", config_, "--prompt-tokens", "640", "--repeat",
                               "1", "--attention", "window:sinks=64,window=128", "--json"});
  ASSERT_EQ(output.code, 0) << output.err;
  ASSERT_EQ(output.Rows().size(), 1u);
  const nlohmann::json row = output.Rows()[0];
  EXPECT_EQ(row.at("policy").get<std::string>().rfind("window:", 0), 0u);
  EXPECT_GT(row.at("density").get<double>(), 0.3);
  EXPECT_LT(row.at("density").get<double>(), 0.8);
}

TEST_F(BenchModel, ReadsAGgufFile) {
  const auto model = testing::SmallModel();
  if (!model.has_value()) GTEST_SKIP() << "the small model cannot be had here";
  const Output output = Bench(
      {"model", "--model", model->string(), "--prompt-tokens", "8", "--repeat", "1", "--json"});
  ASSERT_EQ(output.code, 0) << output.err;
  EXPECT_EQ(output.Rows()[0].at("weights_dtype"), "q4_1");
}

// The same checkpoint with both distributions: of half the experts fewer are missing where some are
// chosen more often.
TEST_F(BenchModel, TellsHowLongStepsWaitForExpertsInAFile) {
  folder_.Write("experts.json", R"({"architectures": ["Qwen3MoeForCausalLM"],
      "model_type": "qwen3_moe", "hidden_act": "silu", "hidden_size": 128,
      "intermediate_size": 128, "moe_intermediate_size": 64, "num_hidden_layers": 3,
      "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64, "num_experts": 16,
      "num_experts_per_tok": 2, "norm_topk_prob": true, "vocab_size": 300,
      "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
      "tie_word_embeddings": false, "bos_token_id": 1, "eos_token_id": 2,
      "torch_dtype": "bfloat16"})");
  const std::string model = folder_.path() / "experts";
  const std::string script = testing::SourceFolder() / "bench/model/random_experts.py";
  const std::string config = folder_.path() / "experts.json";
  ASSERT_EQ(std::system(("python3 '" + script + "' '" + config + "' '" + model + "'").c_str()), 0);
  // Codes and scales of 24 of the 48 experts, each matrix in a slot that is a multiple of 256
  // bytes.
  const int64_t half = 24 * 3 * (128 * 64 / 2 + 128 * 64 / 64 * 2);
  std::map<std::string, double> hits;
  for (const std::string routing : {"uniform", "zipf"}) {
    const Output output = Bench({"model", "--model", model, "--routing", routing, "--expert-memory",
                                 std::to_string(half), "--depth", "70", "--generate", "40",
                                 "--repeat", "3", "--threads", "2", "--json"});
    ASSERT_EQ(output.code, 0) << output.err;
    ASSERT_EQ(output.Rows().size(), 1u) << output.out;
    const nlohmann::json row = output.Rows()[0];
    EXPECT_EQ(row.at("phase"), "decode, experts");
    EXPECT_EQ(row.at("routing"), routing);
    EXPECT_EQ(row.at("weights_dtype"), "int4_g64");
    EXPECT_EQ(row.at("depth"), 65);
    EXPECT_EQ(row.at("tokens"), 40);
    EXPECT_EQ(row.at("expert_memory"), half);
    EXPECT_GT(row.at("seconds").get<double>(), 0);
    EXPECT_GT(row.at("wait_seconds").get<double>(), 0);
    EXPECT_GT(row.at("waited_steps").get<double>(), 0);
    EXPECT_LE(row.at("waited_steps").get<double>(), 1);
    EXPECT_GT(row.at("planned_bytes").get<int64_t>(), half);
    EXPECT_GT(row.at("rss_bytes").get<int64_t>(), 0);
    // Every step needs two experts of each layer.
    hits[routing] = row.at("expert_hits").get<double>();
    EXPECT_NEAR(row.at("read_bytes").get<double>(),
                (1 - hits[routing]) * 3 * 2 * static_cast<double>(half) / 24,
                0.2 * static_cast<double>(half));
  }
  EXPECT_GT(hits["uniform"], 0.3);
  EXPECT_LT(hits["uniform"], 0.7);
  EXPECT_GT(hits["zipf"], hits["uniform"] + 0.05);
  const Output output = Bench({"model", "--model", model, "--expert-memory", "1GiB", "--depth", "1",
                               "--generate", "2", "--repeat", "1"});
  EXPECT_EQ(output.code, 2);
  EXPECT_NE(output.err.find("has room for all experts"), std::string::npos) << output.err;
}

TEST_F(BenchModel, RefusesWhatItCannotRun) {
  for (const std::vector<std::string>& misuse : std::vector<std::vector<std::string>>{
           {"model"},
           {"model", "--random", config_, "--model", "somewhere"},
           {"model", "--random", config_, "--prompt-tokens", "0"},
           {"model", "--random", config_, "--kv-dtype", "f17"},
           {"model", "--random", config_, "--streams", "2", "--force-tokens", "quote"},
           {"model", "--random", config_, "--streams", "2", "--generate", "1"},
           {"model", "--random", config_, "--shared-prompt"},
           {"model", "--random", config_, "--routing", "zipf"},
           {"model", "--random", config_, "--routing", "pareto"},
           {"model", "--random", config_, "--expert-memory", "1GiB", "--workers", "1"},
           {"model", "--random", config_, "--expert-memory", "1GiB", "--streams", "2"},
           {"model", "--random", config_, "--expert-memory", "1GiB", "--generate", "1"},
           {"model", "--random", config_, "--expert-memory", "-1"},
           {"model", "--random", config_, "--ring-mode", "pass-v"},
           {"model", "--random", config_, "--attention", "windows"},
           {"model", "--random", config_, "--workers", "0"},
           {"model", "--random", config_, "--workers", "64"},
           {"model", "--random", config_, "--peak", "fp64"}}) {
    const Output output = Bench(misuse);
    EXPECT_EQ(output.code, 2) << misuse.back();
    EXPECT_TRUE(output.out.empty());
    EXPECT_FALSE(output.err.empty());
  }
  EXPECT_EQ(Bench({"model", "--random", "/nonexistent.json"}).code, 1);
}

TEST(BenchAttention, PrintsDenseAndEachPolicyForEachLength) {
  const Output output =
      Bench({"attention", "--seq",      "200,500",   "--heads",    "4",        "--kv-heads",
             "2",         "--head-dim", "16",        "--kv-dtype", "f32",      "--policy",
             "window",    "random",     "--density", "0.5",        "--decode", "--ranks",
             "2",         "--threads",  "2",         "--repeat",   "2",        "--json"});
  ASSERT_EQ(output.code, 0) << output.err;
  const std::vector<nlohmann::json> rows = output.Rows();
  ASSERT_EQ(rows.size(), 8u) << output.out;
  for (size_t i = 0; i < rows.size(); ++i) {
    const nlohmann::json& row = rows[i];
    EXPECT_EQ(row.at("tokens"), i < 4 ? 200 : 500);
    EXPECT_EQ(row.at("phase"), i % 4 == 3 ? "decode" : "prefill");
    EXPECT_EQ(row.at("ranks"), 2);
    EXPECT_GT(row.at("seconds").get<double>(), 0);
    EXPECT_GT(row.at("flops").get<double>(), 0);
    EXPECT_GT(row.at("peak_fraction").get<double>(), 0);
    EXPECT_GT(row.at("memory_bytes").get<int64_t>(), 0);
  }
  // 4 heads * 4 operations * 16 channels for each of 200 * 201 / 2 pairs.
  EXPECT_EQ(rows[0].at("flops"), 4.0 * 4 * 16 * 200 * 201 / 2);
  EXPECT_EQ(rows[0].at("policy"), "dense");
  EXPECT_EQ(rows[0].at("ratio_to_dense"), 1);
  EXPECT_EQ(rows[5].at("policy").get<std::string>().rfind("window:", 0), 0u);
  EXPECT_GE(rows[5].at("density").get<double>(), 0.5);
  EXPECT_LT(rows[5].at("density").get<double>(), 0.8);
}

TEST(BenchAttention, TellsWhatPatternsLose) {
  const Output output = Bench({"attention",
                               "--seq",
                               "3000",
                               "--heads",
                               "3",
                               "--kv-heads",
                               "3",
                               "--head-dim",
                               "16",
                               "--kv-dtype",
                               "f32",
                               "--policy",
                               "window:window=128",
                               "strided",
                               "--chunk-tokens",
                               "512",
                               "--most-chunks",
                               "2",
                               "--quality",
                               "--repeat",
                               "1",
                               "--json"});
  ASSERT_EQ(output.code, 0) << output.err;
  const std::vector<nlohmann::json> rows = output.Rows();
  ASSERT_EQ(rows.size(), 3u) << output.out;
  for (const nlohmann::json& row : rows) {
    const bool dense = row.at("policy") == "dense";
    EXPECT_LT(row.at("measured_share").get<double>(), 0.7);
    EXPECT_EQ(row.at("relative_error").get<double>() < 1e-6, dense) << row;
    EXPECT_EQ(row.at("coverage").get<double>() > 1 - 1e-6, dense) << row;
    EXPECT_LT(row.at("oracle_density").get<double>(), 0.5);
    EXPECT_EQ(row.at("list_bytes") == 0, dense);
    EXPECT_GE(row.at("list_share").get<double>(), 0);
  }
}

TEST(BenchQuality, TellsTheShareOfNeedlesThatAreAnswered) {
  const testing::TempDirectory folder;
  const std::string text = folder.path() / "text.txt";
  std::ofstream file(text);
  for (int i = 0; i < 200; ++i) file << "Entry " << 7919 * i << " holds item " << i << ".\n";
  file.close();
  const std::vector<std::string> command = {"quality",  "--model", "builtin:recall", "--text", text,
                                            "--tokens", "2048",    "--kv-dtype",     "bf16"};
  std::vector<std::string> with = command;
  with.insert(with.end(), {"--needles", "3", "--json"});
  const Output output = Bench(with);
  ASSERT_EQ(output.code, 0) << output.err;
  ASSERT_EQ(output.Rows().size(), 1u) << output.out;
  const nlohmann::json row = output.Rows()[0];
  EXPECT_EQ(row.at("needles"), 3);
  EXPECT_EQ(row.at("answered"), 1);
  EXPECT_EQ(row.at("reference_answered"), 1);
  EXPECT_EQ(
      Bench({"quality", "--model", "builtin:recall", "--text", text, "--needles", "101"}).code, 2);
}

TEST(BenchQuality, AttentionMathChangesWhatFloat8KeysCost) {
  const auto model = testing::TestData("models/stories260K");
  if (!model.has_value()) GTEST_SKIP() << "the small trained model is absent";
  const testing::TempDirectory folder;
  const std::string text = folder.path() / "text.txt";
  std::ofstream file(text);
  for (int i = 0; i < 20; ++i) file << "Entry " << 7919 * i << " holds item " << i << ".\n";
  file.close();
  const std::vector<std::string> plain = {"quality",    "--model",  model->string(), "--text",
                                          text,         "--tokens", "100",           "--json",
                                          "--kv-dtype", "fp8_e4m3"};
  std::vector<std::string> coded = plain;
  coded.insert(coded.end(), {"--attention-math", "fp8"});
  const Output plain_output = Bench(plain);
  const Output coded_output = Bench(coded);
  ASSERT_EQ(plain_output.code, 0) << plain_output.err;
  ASSERT_EQ(coded_output.code, 0) << coded_output.err;
  const nlohmann::json plain_row = plain_output.Rows().at(0);
  const nlohmann::json coded_row = coded_output.Rows().at(0);
  EXPECT_FALSE(plain_row.contains("attention_math"));
  EXPECT_EQ(coded_row.at("attention_math"), "fp8");
  EXPECT_EQ(coded_row.at("kv"), "fp8_e4m3");
  EXPECT_NE(coded_row.at("divergence"), plain_row.at("divergence"));
  coded[9] = "int8";
  const Output refused = Bench(coded);
  EXPECT_NE(refused.code, 0);
  EXPECT_NE(refused.err.find("allowed with it: --kv-dtype fp8_e4m3"), std::string::npos)
      << refused.err;
}

TEST(BenchChart, DrawsRowsAndRefusesOthers) {
  const testing::TempDirectory folder;
  const std::string rows = folder.path() / "rows.jsonl";
  const std::string svg = folder.path() / "chart.svg";
  std::ofstream(rows)
      << R"({"phase":"prefill","tokens":1024,"policy":"window:block=64","seconds":2,)"
         R"("ratio_to_dense":0.5})"
      << "\n";
  EXPECT_EQ(Bench({"chart", rows, "-o", svg}).code, 0);
  std::stringstream drawn;
  drawn << std::ifstream(svg).rdbuf();
  EXPECT_NE(drawn.str().find(">window</text>"), std::string::npos) << drawn.str();
  std::ofstream(rows) << R"({"weights":"f32","reference_weights":"f32","kv":"int8","tokens":2048,)"
                         R"("attention":"dense","activations":"float","divergence":0.01})"
                         "\n"
                         R"({"weights":"q4_1","reference_weights":"f32","kv":"f32","tokens":2048,)"
                         R"("attention":"dense","activations":"int8","divergence":0.1})"
                         "\n"
                         R"({"weights":"f32","reference_weights":"f32","kv":"f32","tokens":2048,)"
                         R"("attention":"adaptive:estimator=pooled,coverage=0.95","divergence":1})"
                         "\n";
  EXPECT_EQ(Bench({"chart", rows, "-o", svg}).code, 0);
  drawn.str("");
  drawn << std::ifstream(svg).rdbuf();
  for (const char* name :
       {"keys and values int8", "weights q4_1, inputs int8", "adaptive pooled 0.95"}) {
    EXPECT_NE(drawn.str().find(">" + std::string(name) + "</text>"), std::string::npos) << name;
  }
  std::ofstream(rows) << R"({"part":"mixed","ranks":4,"daemon":"other","p50":2,"p90":3,"p99":null,)"
                         R"("latency":"time_to_first_token_shorter"})"
                         "\n"
                         R"({"part":"decode","phase":"decode, batched","streams":8,"shared":0,)"
                         R"("depth":512,"ranks":1,"tokens_per_second":100})"
                         "\n"
                         R"({"part":"decode","phase":"decode","streams":1,"depth":512,"ranks":2,)"
                         R"("tokens_per_second":30})"
                         "\n"
                         R"({"part":"cascade","phase":"decode, batched","streams":8,"ranks":1,)"
                         R"("shared":32704,"depth":32768,"tokens_per_second":100})"
                         "\n";
  EXPECT_EQ(Bench({"chart", rows, "-o", svg}).code, 0);
  drawn.str("");
  drawn << std::ifstream(svg).rdbuf();
  for (const char* name : {"short, other, 4 ranks", "1 rank, depth 512", "2 ranks, depth 512",
                           "1 rank, shared 32704"}) {
    EXPECT_NE(drawn.str().find(">" + std::string(name) + "</text>"), std::string::npos) << name;
  }
  // The least time of a row is at the highest peak of all.
  std::string at_highest;
  for (const char* peak :
       {R"("peak_fraction":0.5,"peak_rate":4e9)", R"("peak_fraction":2,"peak_rate":1e9)"}) {
    std::ofstream(rows) << R"({"part":"lengths","phase":"prefill","tokens":512,)"
                           R"("peak_fraction":0.5,"peak_rate":4e9,"tokens_per_second":1024})"
                           "\n"
                           R"({"part":"lengths","phase":"prefill","tokens":1024,)"
                        << peak
                        << R"(,"tokens_per_second":1024})"
                           "\n"
                           R"({"part":"lengths","phase":"decode","depth":512,"tokens":16,)"
                           R"("peak_fraction":0.5,"peak_rate":9,"tokens_per_second":20})"
                           "\n"
                           R"({"program":"llama.cpp","phase":"prefill","length":512,)"
                           R"("tokens_per_second":256,"figures":[256]})"
                           "\n"
                           R"({"program":"llama.cpp","row":"most memory, GiB","figures":[1]})"
                           "\n";
    EXPECT_EQ(Bench({"chart", rows, "-o", svg}).code, 0);
    drawn.str("");
    drawn << std::ifstream(svg).rdbuf();
    for (const char* name :
         {"Annulus", "least time", "llama.cpp", "Reading a prompt", "One token of an answer"}) {
      EXPECT_NE(drawn.str().find(">" + std::string(name) + "</text>"), std::string::npos) << name;
    }
    if (at_highest.empty()) at_highest = drawn.str();
    EXPECT_EQ(drawn.str(), at_highest);
  }
  std::ofstream(rows) << "nonsense\n";
  const Output output = Bench({"chart", rows, "-o", svg});
  EXPECT_EQ(output.code, 2);
  EXPECT_NE(output.err.find(":1: not a row"), std::string::npos) << output.err;
  EXPECT_EQ(Bench({"chart", "/nonexistent", "-o", svg}).code, 1);
}

TEST(BenchAttention, RefusesWhatItCannotRun) {
  for (const std::vector<std::string>& misuse :
       std::vector<std::vector<std::string>>{{"attention", "--heads", "6", "--kv-heads", "4"},
                                             {"attention", "--seq", "0"},
                                             {"attention", "--policy", "randon"},
                                             {"attention", "--policy", "auto"},
                                             {"attention", "--quality", "--head-dim", "20"},
                                             {"attention", "--most-chunks", "0"},
                                             {"attention", "--density", "1.5"}}) {
    const Output output = Bench(misuse);
    EXPECT_EQ(output.code, 2) << output.err;
    EXPECT_TRUE(output.out.empty());
    EXPECT_FALSE(output.err.empty());
  }
}

TEST(BenchServe, SaysThatNobodyListens) {
  const Output output = Bench({"serve", "--server", "127.0.0.1:1", "--rate", "1"});
  EXPECT_EQ(output.code, 1);
  EXPECT_TRUE(output.out.empty());
  EXPECT_NE(output.err.find("127.0.0.1:1"), std::string::npos) << output.err;
  EXPECT_EQ(Bench({"serve", "--rate", "0"}).code, 2);
  const Output crowd = Bench({"serve", "--server", "127.0.0.1:1", "--token", "a", "--crowd", "200",
                              "--crowd-prompt", "2048", "--crowd-token", "b"});
  EXPECT_EQ(crowd.code, 1) << crowd.err;
  EXPECT_NE(crowd.err.find("127.0.0.1:1"), std::string::npos) << crowd.err;
}

TEST(BenchServe, ACrowdStandsAlone) {
  for (const std::vector<std::string>& misuse : std::vector<std::vector<std::string>>{
           {"serve", "--crowd", "0"},
           {"serve", "--crowd", "200", "--beside-prompt", "8192"},
           {"serve", "--crowd", "200", "--longest-prompt", "8192"},
           {"serve", "--crowd-token", "b"},
           {"serve", "--crowd-prompt", "2048"}}) {
    const Output output = Bench(misuse);
    EXPECT_EQ(output.code, 2) << output.err;
    EXPECT_NE(output.err.find("--crowd"), std::string::npos) << output.err;
  }
}

// The shapes that the tables measure must stay readable.
TEST(BenchConfigs, AreSupportedShapes) {
  const std::filesystem::path folder = testing::SourceFolder() / "bench/configs";
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path());
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    const auto config = ParseModelConfig(text, entry.path().string());
    EXPECT_TRUE(config.ok()) << config.status();
    ++files;
  }
  EXPECT_GE(files, 3);
}

}  // namespace
}  // namespace annulus::bench
