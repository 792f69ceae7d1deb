#include "engine/gguf/gguf_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/gguf/gguf_families.h"
#include "engine/gguf/gguf_file.h"
#include "engine/gguf/gguf_tensors.h"
#include "engine/model/safetensors.h"
#include "engine/model/weights.h"
#include "tests/engine/gguf/gguf_writer.h"
#include "tests/support/temp_directory.h"
#include "tests/support/test_data.h"

namespace annulus {
namespace {

using testing::GgufWriter;
using ::testing::HasSubstr;
using testing::TempDirectory;
using testing::TestFile;

// A golden checkpoint and the GGUF architecture that it would be converted to.
struct Case {
  const char* golden;
  const char* architecture;
  bool interleaved = false;
  bool gemma = false;
};

std::ostream& operator<<(std::ostream& out, const Case& one) { return out << one.golden; }

constexpr Case kCases[] = {
    {"llama_mha", "llama", true},
    {"llama_gqa_bf16", "llama", true},
    {"llama_windows", "llama", true},
    {"qwen2", "qwen2"},
    {"qwen3", "qwen3"},
    {"qwen3_moe", "qwen3moe"},
    {"phi3", "phi3"},
    {"phi3_longrope", "phi3"},
    {"gemma2", "gemma2", false, true},
    {"gemma3", "gemma3", false, true},
    {"smollm3", "smollm3", true},
    {"olmo2", "olmo2"},
    {"mixtral", "llama", true},
    {"gpt_oss", "gpt-oss"},
};

std::string GoldenDirectory(const std::string& name) {
  return TestFile(absl::StrCat("golden/", name)).string();
}

// Rows of each head from halves to neighbouring pairs, as a converter to GGUF orders them.
std::vector<float> Interleave(const std::vector<float>& values, int64_t rows, int64_t heads) {
  const int64_t cols = static_cast<int64_t>(values.size()) / rows;
  const int64_t head_rows = rows / heads;
  std::vector<float> made;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t place = r % head_rows;
    const int64_t from = r - place + place % 2 * (head_rows / 2) + place / 2;
    made.insert(made.end(), values.begin() + from * cols, values.begin() + (from + 1) * cols);
  }
  return made;
}

// Writes a checkpoint's tensors as a GGUF file has them.
class Converter {
 public:
  Converter(const Case& of, const ModelConfig& config, const TensorSource& source)
      : of_(of), config_(config), source_(source) {}

  void Write(GgufWriter& writer) {
    for (const std::string& name : source_.Names()) Add(name, writer);
    for (const auto& [name, stack] : stacks_) {
      std::vector<float> all;
      for (const auto& [expert, values] : stack.values) {
        all.insert(all.end(), values.begin(), values.end());
      }
      writer.AddFloats(name, {static_cast<int64_t>(stack.values.size()), stack.rows, stack.cols},
                       all);
    }
  }

 private:
  struct Stack {
    int64_t rows = 0, cols = 0;
    std::map<int64_t, std::vector<float>> values;
  };

  std::string Plain(const std::string& name) const {
    std::string made = absl::StrReplaceAll(name, {{"model.layers.", "blk."},
                                                  {"model.embed_tokens.", "token_embd."},
                                                  {"model.norm.", "output_norm."},
                                                  {"lm_head.", "output."},
                                                  {"self_attn.q_norm", "attn_q_norm"},
                                                  {"self_attn.k_norm", "attn_k_norm"},
                                                  {"self_attn.q_proj", "attn_q"},
                                                  {"self_attn.k_proj", "attn_k"},
                                                  {"self_attn.v_proj", "attn_v"},
                                                  {"self_attn.qkv_proj", "attn_qkv"},
                                                  {"self_attn.o_proj", "attn_output"},
                                                  {"self_attn.sinks", "attn_sinks.weight"},
                                                  {"input_layernorm", "attn_norm"},
                                                  {"pre_feedforward_layernorm", "ffn_norm"},
                                                  {"post_feedforward_layernorm", "post_ffw_norm"},
                                                  {"mlp.gate_up_proj", "ffn_up"},
                                                  {"mlp.gate_proj", "ffn_gate"},
                                                  {"mlp.up_proj", "ffn_up"},
                                                  {"mlp.down_proj", "ffn_down"},
                                                  {"block_sparse_moe.gate.", "ffn_gate_inp."},
                                                  {"mlp.gate.", "ffn_gate_inp."},
                                                  {"mlp.router.", "ffn_gate_inp."}});
    const bool after = config_.post_norms || std::string(of_.architecture) == "gpt-oss";
    return absl::StrReplaceAll(
        made, {{"post_attention_layernorm", after ? "post_attention_norm" : "ffn_norm"}});
  }

  void Add(const std::string& name, GgufWriter& writer) {
    if (absl::StrContains(name, ".experts.")) return AddExpert(name, writer);
    const TensorInfo info = *source_.Describe(name);
    std::vector<float> values = *ReadAsFloat(source_, name);
    if (of_.interleaved && absl::StrContains(name, "q_proj")) {
      values = Interleave(values, info.shape[0], config_.heads);
    }
    if (of_.interleaved && absl::StrContains(name, "k_proj")) {
      values = Interleave(values, info.shape[0], config_.kv_heads);
    }
    if (of_.gemma && absl::StrContains(name, "norm")) {
      for (float& value : values) value += 1;
    }
    writer.AddFloats(Plain(name), info.shape, values);
  }

  void AddExpert(const std::string& name, GgufWriter& writer) {
    if (std::string(of_.architecture) == "gpt-oss") return AddGptOss(name, writer);
    // PREFIX.experts.E.KIND.weight
    const size_t at = name.find(".experts.") + 9;
    const size_t dot = name.find('.', at);
    const std::string kind = name.substr(dot + 1, name.find('.', dot + 1) - dot - 1);
    const std::string part = kind == "w1" || kind == "gate_proj" ? "gate"
                             : kind == "w3" || kind == "up_proj" ? "up"
                                                                 : "down";
    const std::string layer = name.substr(13, name.find('.', 13) - 13);
    Stack& stack = stacks_[absl::StrCat("blk.", layer, ".ffn_", part, "_exps.weight")];
    const TensorInfo info = *source_.Describe(name);
    stack.rows = info.shape[0];
    stack.cols = info.shape[1];
    stack.values[std::stoll(name.substr(at, dot - at))] = *ReadAsFloat(source_, name);
  }

  void AddGptOss(const std::string& name, GgufWriter& writer) {
    const std::string layer = absl::StrCat("blk.", name.substr(13, name.find('.', 13) - 13), ".");
    const bool down = absl::StrContains(name, "down_proj");
    if (absl::EndsWith(name, "_bias")) {
      const TensorInfo info = *source_.Describe(name);
      const std::vector<float> values = *ReadAsFloat(source_, name);
      if (down) return writer.AddFloats(layer + "ffn_down_exps.bias", info.shape, values);
      std::vector<float> parts[2];
      for (size_t i = 0; i < values.size(); ++i) parts[i % 2].push_back(values[i]);
      const std::vector<int64_t> shape = {info.shape[0], info.shape[1] / 2};
      writer.AddFloats(layer + "ffn_gate_exps.bias", shape, parts[0]);
      writer.AddFloats(layer + "ffn_up_exps.bias", shape, parts[1]);
      return;
    }
    if (!absl::EndsWith(name, "_blocks")) return;
    const TensorInfo info = *source_.Describe(name);
    std::string codes(info.bytes(), '\0');
    std::string scales(codes.size() / 16, '\0');
    ASSERT_TRUE(source_.Read(name, std::as_writable_bytes(std::span(codes))).ok());
    ASSERT_TRUE(source_
                    .Read(absl::StrReplaceAll(name, {{"_blocks", "_scales"}}),
                          std::as_writable_bytes(std::span(scales)))
                    .ok());
    const auto row_blocks = static_cast<size_t>(info.shape[2]);
    std::string parts[2];
    for (size_t block = 0; block < scales.size(); ++block) {
      uint8_t values[32];
      for (size_t i = 0; i < 16; ++i) {
        const auto pair = static_cast<uint8_t>(codes[block * 16 + i]);
        values[2 * i] = pair & 15;
        values[2 * i + 1] = pair >> 4;
      }
      std::string& to = parts[down ? 0 : block / row_blocks % 2];
      to.push_back(scales[block]);
      for (size_t i = 0; i < 16; ++i)
        to.push_back(static_cast<char>(values[i] | values[i + 16] << 4));
    }
    const std::vector<int64_t> shape = {info.shape[0], info.shape[1] / (down ? 1 : 2),
                                        info.shape[2] * 32};
    if (down) return writer.AddTensor(layer + "ffn_down_exps.weight", shape, 39, parts[0]);
    writer.AddTensor(layer + "ffn_gate_exps.weight", shape, 39, parts[0]);
    writer.AddTensor(layer + "ffn_up_exps.weight", shape, 39, parts[1]);
  }

  const Case& of_;
  const ModelConfig& config_;
  const TensorSource& source_;
  std::map<std::string, Stack> stacks_;
};

// What a converter says of the model in the metadata.
void WriteMetadata(const Case& of, const ModelConfig& config, GgufWriter& writer) {
  const std::string prefix = absl::StrCat(of.architecture, ".");
  writer.Set("general.architecture", of.architecture);
  const auto number = [&](const char* key, int64_t value) {
    writer.Set(prefix + key, static_cast<uint32_t>(value));
  };
  number("embedding_length", config.hidden_size);
  number("block_count", static_cast<int64_t>(config.layers.size()));
  number("feed_forward_length", config.intermediate_size);
  number("attention.head_count", config.heads);
  number("attention.head_count_kv", config.kv_heads);
  number("attention.key_length", config.head_dim);
  number("attention.value_length", config.head_dim);
  number("context_length", config.max_context);
  writer.Set(prefix + "attention.layer_norm_rms_epsilon", config.rms_norm_eps);
  writer.Set(prefix + "rope.freq_base", static_cast<float>(config.ropes[0].theta));
  number("rope.dimension_count", config.ropes[0].pairs * 2);
  if (config.experts.count > 0) {
    number("expert_count", config.experts.count);
    number("expert_used_count", config.experts.chosen);
    number("expert_feed_forward_length", config.experts.intermediate_size);
  }
}

class GgufFamiliesTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    auto config = LoadModelConfig(GoldenDirectory(GetParam().golden));
    ASSERT_TRUE(config.ok()) << config.status();
    config_ = *std::move(config);
    auto source = SafetensorsCheckpoint::Open(GoldenDirectory(GetParam().golden));
    ASSERT_TRUE(source.ok()) << source.status();
    source_ = *std::move(source);
    GgufWriter writer;
    WriteMetadata(GetParam(), config_, writer);
    Converter(GetParam(), config_, *source_).Write(writer);
    directory_.Write("model.gguf", writer.File());
    auto file = GgufFile::Open((directory_.path() / "model.gguf").string());
    ASSERT_TRUE(file.ok()) << file.status();
    file_ = *std::move(file);
    auto family = FindGgufFamily(*file_);
    ASSERT_TRUE(family.ok()) << family.status();
    family_ = *family;
  }

  TempDirectory directory_;
  ModelConfig config_;
  std::unique_ptr<TensorSource> source_;
  std::shared_ptr<const GgufFile> file_;
  GgufFamily family_;
};

// Whatever rows are asked for, they hold the checkpoint's numbers.
TEST_P(GgufFamiliesTest, GivesTheTensorsOfTheCheckpoint) {
  const auto made = GgufTensors::Create(file_, family_, GgufTensors::Codes::kWiden);
  ASSERT_TRUE(made.ok()) << made.status();
  int compared = 0;
  for (const std::string& name : source_->Names()) {
    const TensorInfo expected = *source_->Describe(name);
    const auto found = (*made)->Describe(name);
    ASSERT_TRUE(found.ok()) << found.status();
    ASSERT_EQ(found->shape, expected.shape) << name;
    if (expected.dtype == DType::kI8) {
      std::vector<std::byte> wanted(expected.bytes()), got(expected.bytes());
      ASSERT_TRUE(source_->Read(name, wanted).ok());
      ASSERT_TRUE((*made)->Read(name, got).ok());
      EXPECT_EQ(got, wanted) << name;
    } else {
      const std::vector<float> wanted = *ReadAsFloat(*source_, name);
      const std::vector<float> got = *ReadAsFloat(**made, name);
      for (size_t i = 0; i < wanted.size(); ++i) {
        // Gemma's norms were stored as 1 + w, rounded, and are rounded again.
        const float slack =
            family_.gemma ? std::numeric_limits<float>::epsilon() * (1 + std::abs(wanted[i])) : 0;
        ASSERT_NEAR(got[i], wanted[i], slack) << name << " " << i;
      }
      // A part that begins and ends anywhere.
      std::vector<std::byte> whole(expected.elements() * 4);
      ASSERT_TRUE((*made)->Read(name, whole).ok());
      const size_t begin = whole.size() / 3 / 4 * 4, end = whole.size() - whole.size() / 5 / 4 * 4;
      std::vector<std::byte> part(end - begin);
      ASSERT_TRUE((*made)->ReadRange(name, begin, part).ok());
      EXPECT_EQ(std::memcmp(part.data(), whole.data() + begin, part.size()), 0) << name;
    }
    ++compared;
  }
  EXPECT_GT(compared, 10);
  EXPECT_FALSE((*made)->quantized() && family_.name != "gpt-oss");
}

TEST_P(GgufFamiliesTest, DescribesTheSameModel) {
  const auto json = GgufConfigJson(*file_, family_);
  ASSERT_TRUE(json.ok()) << json.status();
  const auto made = ParseModelConfig(*json, "f.gguf");
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->architecture, config_.architecture == "MistralForCausalLM"
                                    ? "LlamaForCausalLM"
                                    : config_.architecture);
  EXPECT_EQ(made->vocabulary, config_.vocabulary);
  EXPECT_EQ(made->hidden_size, config_.hidden_size);
  EXPECT_EQ(made->layers.size(), config_.layers.size());
  EXPECT_EQ(made->heads, config_.heads);
  EXPECT_EQ(made->kv_heads, config_.kv_heads);
  EXPECT_EQ(made->head_dim, config_.head_dim);
  EXPECT_EQ(made->rms_norm_eps, config_.rms_norm_eps);
  EXPECT_EQ(made->max_context, config_.max_context);
  EXPECT_EQ(made->tie_word_embeddings, config_.tie_word_embeddings);
  EXPECT_EQ(made->attention_bias, config_.attention_bias);
  EXPECT_EQ(made->output_bias, config_.output_bias);
  EXPECT_EQ(made->qk_norm, config_.qk_norm);
  EXPECT_EQ(made->activation, config_.activation);
  EXPECT_EQ(made->ropes[0].theta, config_.ropes[0].theta);
  EXPECT_EQ(made->ropes[0].pairs, config_.ropes[0].pairs);
  EXPECT_EQ(made->experts.count, config_.experts.count);
  EXPECT_EQ(made->experts.chosen, config_.experts.chosen);
  if (config_.experts.count > 0) {
    EXPECT_EQ(made->experts.intermediate_size, config_.experts.intermediate_size);
  } else {
    EXPECT_EQ(made->intermediate_size, config_.intermediate_size);
  }
}

INSTANTIATE_TEST_SUITE_P(, GgufFamiliesTest, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.golden); });

// The config.json text of a file with `set` in its metadata and these float tensors.
absl::StatusOr<ModelConfig> ConfigOf(
    const char* architecture, const std::function<void(GgufWriter&, const std::string&)>& set) {
  GgufWriter writer;
  ModelConfig config;
  config.hidden_size = 64;
  config.layers.resize(2);
  config.intermediate_size = 128;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 16;
  config.max_context = 4096;
  config.ropes.resize(1);
  config.ropes[0].pairs = 8;
  WriteMetadata({"", architecture}, config, writer);
  writer.AddFloats("token_embd.weight", {3, 2}, {1, 2, 3, 4, 5, 6});
  set(writer, absl::StrCat(architecture, "."));
  const TempDirectory directory;
  directory.Write("m", writer.File());
  auto file = GgufFile::Open((directory.path() / "m").string());
  if (!file.ok()) return file.status();
  const auto family = FindGgufFamily(**file);
  if (!family.ok()) return family.status();
  const auto json = GgufConfigJson(**file, *family);
  if (!json.ok()) return json.status();
  return ParseModelConfig(*json, "f.gguf");
}

TEST(GgufConfigTest, TakesRopeFactorsAsDivisorsOfFrequencies) {
  const std::vector<float> factors = {1, 1, 1, 2, 4, 8, 8, 8};
  const auto made = ConfigOf("llama", [&](GgufWriter& writer, const std::string&) {
    writer.AddFloats("rope_freqs.weight", {8}, factors);
  });
  ASSERT_TRUE(made.ok()) << made.status();
  RopeConfig plain;
  plain.pairs = 8;
  const std::vector<float> base = InverseFrequencies(plain);
  for (const int64_t length : {1, 4096}) {
    const std::vector<float> got = InverseFrequencies(made->ropes[0], length);
    for (size_t i = 0; i < base.size(); ++i) EXPECT_EQ(got[i], base[i] / factors[i]) << i;
  }
  EXPECT_EQ(made->ropes[0].scale, 1);
  EXPECT_FALSE(DependsOnLength(made->ropes[0]));
}

TEST(GgufConfigTest, ReadsRopeScaling) {
  const auto linear = ConfigOf("qwen2", [](GgufWriter& writer, const std::string& prefix) {
    writer.Set(prefix + "rope.scaling.type", "linear");
    writer.Set(prefix + "rope.scaling.factor", 4.0f);
  });
  ASSERT_TRUE(linear.ok()) << linear.status();
  EXPECT_EQ(linear->ropes[0].kind, RopeKind::kLinear);
  EXPECT_EQ(linear->ropes[0].factor, 4);
  const auto yarn = ConfigOf("qwen2", [](GgufWriter& writer, const std::string& prefix) {
    writer.Set(prefix + "rope.scaling.type", "yarn");
    writer.Set(prefix + "rope.scaling.factor", 2.0f);
    writer.Set(prefix + "rope.scaling.original_context_length", 2048u);
  });
  ASSERT_TRUE(yarn.ok()) << yarn.status();
  EXPECT_EQ(yarn->ropes[0].kind, RopeKind::kYarn);
  EXPECT_EQ(yarn->ropes[0].original_context, 2048);
  const auto other = ConfigOf("qwen2", [](GgufWriter& writer, const std::string& prefix) {
    writer.Set(prefix + "rope.scaling.type", "spiral");
  });
  EXPECT_EQ(other.status().code(), absl::StatusCode::kUnimplemented);
}

TEST(GgufConfigTest, RefusesWhatItDoesNotServe) {
  const auto nothing = [](GgufWriter&, const std::string&) {};
  const auto unknown = ConfigOf("rwkv7", nothing);
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(unknown.status().message(), HasSubstr("served: gpt-oss, llama, qwen2"));
  const auto olmo3 = ConfigOf("olmo2", [](GgufWriter& writer, const std::string& prefix) {
    writer.Set(prefix + "attention.sliding_window", 4096u);
  });
  EXPECT_EQ(olmo3.status().code(), absl::StatusCode::kUnimplemented);
  const auto widths = ConfigOf(
      "llama", [](GgufWriter& writer, const std::string&) { writer.Set("unrelated", 1u); });
  EXPECT_TRUE(widths.ok()) << widths.status();
}

}  // namespace
}  // namespace annulus
