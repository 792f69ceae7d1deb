#include "engine/gguf/gguf_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/gguf/gguf_families.h"
#include "engine/gguf/gguf_file.h"
#include "engine/gguf/gguf_tensors.h"
#include "engine/model/files/safetensors.h"
#include "engine/model/weights/weights.h"
#include "kernels/base/status_macros.h"
#include "tests/engine/gguf/gguf_checkpoint.h"
#include "tests/support/temp_directory.h"

namespace annulus {
namespace {

using testing::GgufCase;
using testing::GgufWriter;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using testing::TempDirectory;

class GgufFamiliesTest : public ::testing::TestWithParam<GgufCase> {
 protected:
  void SetUp() override {
    auto config = LoadModelConfig(GetParam().directory());
    ASSERT_TRUE(config.ok()) << config.status();
    config_ = *std::move(config);
    auto source = SafetensorsCheckpoint::Open(GetParam().directory());
    ASSERT_TRUE(source.ok()) << source.status();
    source_ = *std::move(source);
    GgufWriter writer;
    WriteGgufMetadata(GetParam(), config_, writer);
    WriteGgufTensors(GetParam(), config_, *source_, writer);
    directory_.Write("model.gguf", writer.File());
    auto file = GgufFile::Open((directory_.path() / "model.gguf").string());
    ASSERT_TRUE(file.ok()) << file.status();
    file_ = *std::move(file);
    auto family = FindGgufFamily(*file_);
    ASSERT_TRUE(family.ok()) << family.status();
    family_ = *family;
  }

  void ExpectSameAttention(const ModelConfig& made) const {
    for (size_t i = 0; i < made.layers.size(); ++i) {
      EXPECT_EQ(made.layers[i].window, config_.layers[i].window);
      EXPECT_EQ(made.layers[i].rope, config_.layers[i].rope);
      EXPECT_EQ(made.layers[i].query_rope, config_.layers[i].query_rope);
    }
    ASSERT_EQ(made.ropes.size(), config_.ropes.size());
    for (size_t i = 0; i < made.ropes.size(); ++i) {
      EXPECT_EQ(made.ropes[i].kind, config_.ropes[i].kind);
      EXPECT_EQ(made.ropes[i].factor, config_.ropes[i].factor);
      EXPECT_EQ(made.ropes[i].scale, config_.ropes[i].scale);
      EXPECT_FLOAT_EQ(made.ropes[i].growth, config_.ropes[i].growth);
    }
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
  // Factors of rope frequencies are in the config.json there, not among the tensors.
  for (const std::string& name : (*made)->Names()) EXPECT_TRUE(source_->Has(name)) << name;
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
  // No key says Gemma's.
  if (family_.multipliers) {
    EXPECT_EQ(made->attention_scale, config_.attention_scale);
  }
  EXPECT_EQ(made->embedding_scale, config_.embedding_scale);
  EXPECT_EQ(made->logits_scale, config_.logits_scale);
  EXPECT_EQ(made->stored_dtype, DType::kF32);
  EXPECT_THAT(*json, HasSubstr(absl::StrCat("\"model_type\":\"", made->model_type, "\"")));
  EXPECT_EQ(made->vocabulary, config_.vocabulary);
  EXPECT_EQ(made->hidden_size, config_.hidden_size);
  EXPECT_EQ(made->layers.size(), config_.layers.size());
  EXPECT_EQ(made->layers[0].attention, config_.layers[0].attention);
  EXPECT_FLOAT_EQ(made->norm.epsilon, config_.norm.epsilon);
  EXPECT_EQ(made->max_context, config_.max_context);
  EXPECT_EQ(made->tie_word_embeddings, config_.tie_word_embeddings);
  EXPECT_EQ(made->attention_bias, config_.attention_bias);
  EXPECT_EQ(made->output_bias, config_.output_bias);
  EXPECT_EQ(made->mlp_bias, config_.mlp_bias);
  EXPECT_EQ(made->traits.norms.values, config_.traits.norms.values);
  EXPECT_EQ(made->traits.head_norms, config_.traits.head_norms);
  EXPECT_EQ(made->traits.parallel_blocks, config_.traits.parallel_blocks);
  EXPECT_EQ(made->activation, config_.activation);
  EXPECT_EQ(static_cast<float>(made->ropes[0].theta), static_cast<float>(config_.ropes[0].theta));
  EXPECT_EQ(made->ropes[0].pairs, config_.ropes[0].pairs);
  EXPECT_EQ(made->attention_soft_cap, config_.attention_soft_cap);
  EXPECT_EQ(made->logits_soft_cap, config_.logits_soft_cap);
  // Of the others the writer says nothing.
  const absl::string_view name = family_.name;
  if (name == "exaone4" || name == "mistral3" || name == "cohere2" || name == "gemma2" ||
      name == "gemma3" || name == "gpt-oss" || made->architecture == "Olmo3ForCausalLM") {
    ExpectSameAttention(*made);
  }
  EXPECT_EQ(made->experts.count, config_.experts.count);
  EXPECT_EQ(made->experts.routing.chosen, config_.experts.routing.chosen);
  if (config_.experts.count > 0) {
    EXPECT_EQ(made->experts.intermediate_size, config_.experts.intermediate_size);
    EXPECT_EQ(made->experts.shared_size, config_.experts.shared_size);
    EXPECT_EQ(made->experts.shared_gate, config_.experts.shared_gate);
    EXPECT_EQ(made->experts.choice_bias, config_.experts.choice_bias);
    const RoutingRule& routing = made->experts.routing;
    EXPECT_EQ(routing.scores, config_.experts.routing.scores);
    EXPECT_EQ(routing.groups, config_.experts.routing.groups);
    EXPECT_EQ(routing.chosen_groups, config_.experts.routing.chosen_groups);
    EXPECT_EQ(routing.scale, config_.experts.routing.scale);
  } else {
    EXPECT_EQ(made->intermediate_size, config_.intermediate_size);
  }
}

INSTANTIATE_TEST_SUITE_P(, GgufFamiliesTest, ::testing::ValuesIn(testing::kGgufCases),
                         [](const auto& info) { return testing::TestName(info.param); });

// The status of making tensors and config.json of a file.
absl::Status StatusOf(const GgufWriter& writer) {
  const TempDirectory directory;
  directory.Write("m", writer.File());
  auto opened = GgufFile::Open((directory.path() / "m").string());
  if (!opened.ok()) return opened.status();
  const std::shared_ptr<const GgufFile> file = *std::move(opened);
  const auto family = FindGgufFamily(*file);
  if (!family.ok()) return family.status();
  const auto made = GgufTensors::Create(file, *family, GgufTensors::Codes::kKeep);
  if (!made.ok()) return made.status();
  return GgufConfigJson(*file, *family).status();
}

TEST(GgufTensorsTest, OneTensorStandsForOneThing) {
  GgufWriter writer;
  writer.Set("general.architecture", "llama");
  writer.AddFloats("model.norm.weight", {2}, {1, 2});
  EXPECT_TRUE(StatusOf(writer).ok());
  writer.AddFloats("output_norm.weight", {2}, {1, 2});
  const absl::Status status = StatusOf(writer);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("model.norm.weight"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("output_norm.weight"));
}

// A tensor of one number an expert would become millions of entries.
TEST(GgufTensorsTest, ExpertsAreBounded) {
  GgufWriter writer;
  writer.Set("general.architecture", "llama");
  writer.Set("llama.expert_count", 8u);
  const int64_t experts = (1 << 20) + 1;
  writer.AddTensor("blk.0.ffn_gate_exps.weight", {experts, 1, 1}, 1,
                   std::string(static_cast<size_t>(2 * experts), '\0'));
  EXPECT_THAT(std::string(StatusOf(writer).message()), HasSubstr("are more than 1048576"));
}

TEST(GgufConfigTest, SettingsAreFiniteNumbers) {
  for (const char* key : {"context_length", "rope.freq_base", "attention.value_length",
                          "attention.layer_norm_rms_epsilon", "attention.head_count"}) {
    SCOPED_TRACE(key);
    const std::string name = absl::StrCat("llama.", key);
    GgufWriter not_a_number;
    not_a_number.Set("general.architecture", "llama");
    not_a_number.Set(name, std::numeric_limits<float>::quiet_NaN());
    EXPECT_THAT(std::string(StatusOf(not_a_number).message()),
                HasSubstr(name + " is nan; allowed: a finite number"));
    GgufWriter text;
    text.Set("general.architecture", "llama");
    text.Set(name, "\xFF");
    EXPECT_THAT(std::string(StatusOf(text).message()), HasSubstr(name + " is \"\\xff\"; allowed"));
  }
}

// Settings of other kinds than what they stand for: see GgufConfigTest.SettingsAreFiniteNumbers
// too.
TEST(GgufConfigTest, SettingsHaveTheirKind) {
  const auto message = [](const char* key, const auto& value) {
    GgufWriter writer;
    writer.Set("general.architecture", "llama");
    writer.Set(key, value);
    return std::string(StatusOf(writer).message());
  };
  EXPECT_THAT(message("llama.rope.dimension_count", 9.0f),
              HasSubstr("rope.dimension_count is 9.0; allowed: a whole number from 0"));
  EXPECT_THAT(message("llama.rope.scaling.type", std::vector<std::string>{"linear"}),
              HasSubstr("rope.scaling.type is an array of 1; supported: none"));
  EXPECT_THAT(message("llama.expert_count", "\xFF"),
              HasSubstr("expert_count is \"\\xff\"; allowed: a whole number"));
  EXPECT_THAT(message("tokenizer.ggml.eot_token_id", 2.0f),
              HasSubstr("eot_token_id is 2.0; allowed: a whole number from 0"));
}

// llama.cpp turns sliding layers by it, in all families that have such layers.
TEST(GgufConfigTest, SlidingLayersMayHaveTheirOwnTheta) {
  const auto config = [](const std::string& name) -> absl::StatusOr<std::string> {
    GgufWriter writer;
    writer.Set("general.architecture", name);
    writer.Set(name + ".rope.freq_base", 500000.0f);
    writer.Set(name + ".rope.freq_base_swa", 20000.0f);
    const TempDirectory directory;
    directory.Write("m", writer.File());
    ANNULUS_ASSIGN_OR_RETURN(const auto file, GgufFile::Open((directory.path() / "m").string()));
    ANNULUS_ASSIGN_OR_RETURN(const GgufFamily family, FindGgufFamily(*file));
    return GgufConfigJson(*file, family);
  };
  EXPECT_THAT(config("gemma3").value(), HasSubstr("\"rope_local_base_freq\":20000.0"));
  const absl::Status refused = config("gpt-oss").status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(
      std::string(refused.message()),
      HasSubstr("gpt-oss.rope.freq_base_swa is 20000.0; supported for this family: the same "
                "as rope.freq_base, which is 500000.0"));
}

TEST(GgufTensorsTest, NamesATypeThatIsNotServed) {
  GgufWriter writer;
  writer.Set("general.architecture", "llama");
  writer.Set("llama.attention.head_count", 2u);
  writer.AddTensor("token_embd.weight", {1, 256}, 23, std::string(136, '\0'));
  const TempDirectory directory;
  directory.Write("m", writer.File());
  auto opened = GgufFile::Open((directory.path() / "m").string());
  ASSERT_TRUE(opened.ok()) << opened.status();
  const std::shared_ptr<const GgufFile> file = *std::move(opened);
  const std::string expected = absl::StrCat(
      file->path(), ": tensor token_embd.weight is stored as IQ4_XS; supported: F32, ");
  EXPECT_THAT(
      std::string(file->ReadAsFloat(*file->FindTensor("token_embd.weight")).status().message()),
      StartsWith(expected));
  const auto family = FindGgufFamily(*file);
  ASSERT_TRUE(family.ok()) << family.status();
  for (const auto codes : {GgufTensors::Codes::kWiden, GgufTensors::Codes::kKeep}) {
    const auto made = GgufTensors::Create(file, *family, codes);
    ASSERT_TRUE(made.ok()) << made.status();
    const absl::Status status = (*made)->Describe("model.embed_tokens.weight").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(status.message()), StartsWith(expected));
  }
}

// What the file's metadata say, read by the parser.
absl::StatusOr<ModelConfig> ConfigOf(const GgufWriter& writer) {
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

// The same of a file with `set` in its metadata and these float tensors.
absl::StatusOr<ModelConfig> ConfigOf(
    const char* architecture, const std::function<void(GgufWriter&, const std::string&)>& set) {
  GgufWriter writer;
  ModelConfig config;
  config.hidden_size = 64;
  config.layers.resize(2);
  config.intermediate_size = 128;
  SetAttention(config, {.heads = 4, .kv_heads = 2, .k_dim = 16, .v_dim = 16});
  config.max_context = 4096;
  config.ropes.resize(1);
  config.ropes[0].pairs = 8;
  WriteGgufMetadata({"", architecture}, config, writer);
  writer.AddFloats("token_embd.weight", {3, 2}, {1, 2, 3, 4, 5, 6});
  set(writer, absl::StrCat(architecture, "."));
  return ConfigOf(writer);
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

// As tensors they would be reported as "not used".
TEST(GgufConfigTest, RopeFactorsAreNoTensorsOfTheModel) {
  GgufWriter writer;
  writer.Set("general.architecture", "llama");
  writer.AddFloats("token_embd.weight", {3, 2}, {1, 2, 3, 4, 5, 6});
  writer.AddFloats("rope_freqs.weight", {2}, {1, 8});
  writer.AddFloats("rope_unknown.weight", {2}, {1, 8});
  const TempDirectory directory;
  directory.Write("m", writer.File());
  auto opened = GgufFile::Open((directory.path() / "m").string());
  ASSERT_TRUE(opened.ok()) << opened.status();
  const std::shared_ptr<const GgufFile> file = *std::move(opened);
  const auto tensors =
      GgufTensors::Create(file, *FindGgufFamily(*file), GgufTensors::Codes::kWiden);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_THAT((*tensors)->Names(),
              ::testing::UnorderedElementsAre("model.embed_tokens.weight", "rope_unknown.weight"));
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

// What config.json means by no key is not what a GGUF file means by it.
TEST(GgufConfigTest, AbsentRopeSettingsAreNotTheDefaultsOfTheFamily) {
  const auto rotated = [](std::optional<uint32_t> count) {
    GgufWriter writer;
    writer.Set("general.architecture", "glm4");
    for (const auto& [key, value] :
         std::initializer_list<std::pair<const char*, uint32_t>>{{"embedding_length", 64},
                                                                 {"block_count", 2},
                                                                 {"feed_forward_length", 128},
                                                                 {"attention.head_count", 4},
                                                                 {"attention.head_count_kv", 2},
                                                                 {"attention.key_length", 16},
                                                                 {"context_length", 4096}}) {
      writer.Set(absl::StrCat("glm4.", key), value);
    }
    writer.AddFloats("token_embd.weight", {3, 2}, {1, 2, 3, 4, 5, 6});
    if (count.has_value()) writer.Set("glm4.rope.dimension_count", *count);
    return ConfigOf(writer);
  };
  const std::vector<std::pair<std::optional<uint32_t>, int32_t>> cases = {
      {std::nullopt, 8}, {8, 4}, {16, 8}};
  for (const auto& [count, pairs] : cases) {
    const auto made = rotated(count);
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_EQ(made->ropes[0].pairs, pairs);
  }
  for (const bool given : {false, true}) {
    const auto made = ConfigOf("mistral3", [&](GgufWriter& writer, const std::string& prefix) {
      writer.Set(prefix + "attention.temperature_scale", 0.25f);
      if (given) writer.Set(prefix + "rope.scaling.original_context_length", 1024u);
    });
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_EQ(made->ropes[0].kind, RopeKind::kDefault);
    EXPECT_EQ(made->ropes[1].growth, 0.25);
    EXPECT_EQ(made->ropes[1].original_context, given ? 1024 : 4096);
  }
}

// A flag of each layer, in whatever type, or the period after which one attends everything.
TEST(GgufConfigTest, ReadsWhichLayersSlide) {
  const auto windows = [](const auto& pattern) {
    const auto made = ConfigOf("gemma2", [&](GgufWriter& writer, const std::string& prefix) {
      writer.Set(prefix + "attention.sliding_window", 32u);
      writer.Set(prefix + "attention.sliding_window_pattern", pattern);
    });
    if (!made.ok()) return std::string(made.status().message());
    return absl::StrCat(made->layers[0].window, " ", made->layers[1].window);
  };
  EXPECT_EQ(windows(std::vector<bool>{false, true}), "0 32");
  EXPECT_EQ(windows(std::vector<int32_t>{0, 1}), "0 32");
  EXPECT_EQ(windows(0u), "32 32");
  EXPECT_EQ(windows(1u), "0 0");
  EXPECT_EQ(windows(2u), "32 0");
  EXPECT_EQ(windows(3u), "32 32");
  EXPECT_THAT(windows(std::vector<int32_t>{1, 2}),
              HasSubstr("sliding_window_pattern is an array of 2, and that of layer 1 neither"));
  EXPECT_THAT(windows(std::vector<std::string>{"\xFF", ""}), HasSubstr("of layer 0 neither"));
  EXPECT_THAT(windows("LLLG"), HasSubstr("sliding_window_pattern is \"LLLG\"; allowed: a whole"));
  EXPECT_THAT(windows(true), HasSubstr("allowed: a whole number"));
}

// As llama.cpp reads them. Converters leave the window of Gemma 3 out if the checkpoint has none,
// and early ones left out the caps of Gemma 2.
TEST(GgufConfigTest, WhatGemmasFilesLeaveOut) {
  const auto nothing = [](GgufWriter&, const std::string&) {};
  const auto second = ConfigOf("gemma2", nothing);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->attention_soft_cap, 50);
  EXPECT_EQ(second->logits_soft_cap, 30);
  EXPECT_EQ(second->layers[0].window, 4096);
  const auto third = ConfigOf("gemma3", nothing);
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_EQ(third->attention_soft_cap, 0);
  EXPECT_EQ(third->logits_soft_cap, 0);
  for (const LayerConfig& layer : third->layers) {
    EXPECT_EQ(layer.window, 0);
    EXPECT_EQ(layer.rope, 0);  // that of layers that attend everything
  }
}

// Gemma's files, for example, keep the end of a turn apart from the end of a text.
TEST(GgufConfigTest, EndsAnAnswerAtTheEndOfATurnToo) {
  const auto made = ConfigOf("llama", [](GgufWriter& writer, const std::string&) {
    writer.Set("tokenizer.ggml.eos_token_id", 1u);
    writer.Set("tokenizer.ggml.eot_token_id", 2u);
    writer.Set("tokenizer.ggml.eom_token_id", 1u);
  });
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->eos_ids, (std::vector<int32_t>{1, 2}));
}

TEST(GgufConfigTest, RefusesWhatItDoesNotServe) {
  const auto nothing = [](GgufWriter&, const std::string&) {};
  const auto unknown = ConfigOf("rwkv7", nothing);
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(unknown.status().message(), HasSubstr("supported: gpt-oss, llama, qwen2"));
  const auto widths = ConfigOf(
      "llama", [](GgufWriter& writer, const std::string&) { writer.Set("unrelated", 1u); });
  EXPECT_TRUE(widths.ok()) << widths.status();
}

}  // namespace
}  // namespace annulus
