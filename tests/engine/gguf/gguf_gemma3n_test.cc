// What the metadata of Gemma 3n's GGUF files mean. gguf_gemma4_test.cc serves a whole one.
#include "engine/gguf/gguf_gemma3n.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "engine/gguf/gguf_families.h"
#include "engine/gguf/gguf_tensors.h"
#include "engine/model/model_config.h"
#include "tests/engine/gguf/gguf_writer.h"
#include "tests/support/temp_directory.h"

namespace annulus {
namespace {

using testing::GgufWriter;
using ::testing::HasSubstr;

constexpr float kNothing = -std::numeric_limits<float>::infinity();

// The configuration of a file of three layers, where `change` writes the keys `changed` otherwise.
absl::StatusOr<ModelConfig> Gemma3nOf(const std::set<std::string>& changed = {},
                                      const std::function<void(GgufWriter&)>& change = nullptr) {
  GgufWriter writer;
  if (change != nullptr) change(writer);
  writer.Set("general.architecture", "gemma3n");
  const auto set = [&](const char* key, const auto& value) {
    if (!changed.contains(key)) writer.Set(absl::StrCat("gemma3n.", key), value);
  };
  set("block_count", 3u);
  set("embedding_length", 32u);
  set("context_length", 512u);
  set("feed_forward_length", std::vector<int32_t>{16, 24, 8});
  set("attention.head_count", 2u);
  set("attention.head_count_kv", 1u);
  set("attention.key_length", 8u);
  set("attention.value_length", 8u);
  set("attention.layer_norm_rms_epsilon", 1e-5f);
  set("attention.sliding_window", 8u);
  set("attention.sliding_window_pattern", std::vector<bool>{true, false, true});
  set("attention.shared_kv_layers", 1u);
  set("rope.freq_base", 5000.0f);
  set("altup.num_inputs", 3u);
  set("altup.active_idx", 1u);
  set("embedding_length_per_layer_input", 4u);
  set("activation_sparsity_scale", std::vector<float>{1.5f, kNothing, -0.25f});
  writer.AddFloats("token_embd.weight", {7, 2}, std::vector<float>(14));
  writer.AddFloats("per_layer_token_embd.weight", {5, 2}, std::vector<float>(10));
  writer.AddFloats("blk.0.laurel_l.weight", {6, 2}, std::vector<float>(12));
  const testing::TempDirectory directory;
  directory.Write("m", writer.File());
  const auto file = GgufFile::Open((directory.path() / "m").string()).value();
  const auto json = GgufConfigJson(*file, *FindGgufFamily(*file));
  return json.ok() ? ParseModelConfig(*json, "m") : json.status();
}

std::string Gemma3nError(const char* key, const auto& value) {
  const auto config = Gemma3nOf(
      {key}, [&](GgufWriter& writer) { writer.Set(absl::StrCat("gemma3n.", key), value); });
  EXPECT_FALSE(config.ok()) << key;
  return std::string(config.status().message());
}

TEST(GgufGemma3nTest, MetadataSayWhatConfigJsonSays) {
  const auto config = Gemma3nOf();
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->model_type, "gemma3n_text");
  EXPECT_EQ(config->streams.count, 3);
  EXPECT_EQ(config->streams.active, 1);
  EXPECT_TRUE(config->streams.scaled);
  EXPECT_EQ(config->laurel_rank, 6);
  EXPECT_EQ(config->layer_input_size, 4);
  EXPECT_EQ(config->layer_input_vocabulary, 5);
  EXPECT_EQ(config->logits_soft_cap, 0);
  EXPECT_EQ(config->layers[2].keys_of, 0);
  EXPECT_EQ(BlockSize(*config, config->layers[1]), 24);
  EXPECT_EQ(config->layers[1].window, 0);
  EXPECT_EQ(config->ropes[0].theta, 5000);
  EXPECT_EQ(config->ropes[1].theta, 10000);
  ASSERT_TRUE(config->layers[0].cutoff.has_value() && config->layers[2].cutoff.has_value());
  EXPECT_EQ(*config->layers[0].cutoff, 1.5f);
  EXPECT_FALSE(config->layers[1].cutoff.has_value());
  EXPECT_EQ(*config->layers[2].cutoff, -0.25f);
}

// llama.cpp reads no key of layers that share, nor of what is cut off.
TEST(GgufGemma3nTest, AbsentKeysMeanWhatLlamaCppTakes) {
  const auto config = Gemma3nOf({"block_count", "feed_forward_length", "attention.shared_kv_layers",
                                 "activation_sparsity_scale", "attention.sliding_window_pattern"},
                                [](GgufWriter& writer) {
                                  writer.Set("gemma3n.block_count", 22u);
                                  writer.Set("gemma3n.feed_forward_length", 16u);
                                });
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_TRUE(config->layers[19].has_own_keys());
  EXPECT_FALSE(config->layers[20].has_own_keys());
  EXPECT_TRUE(config->layers[9].cutoff.has_value());
  EXPECT_FALSE(config->layers[10].cutoff.has_value());
  EXPECT_EQ(config->layers[4].window, 0);
}

TEST(GgufGemma3nTest, NamesWhatIsAllowed) {
  constexpr char kScale[] = "activation_sparsity_scale";
  EXPECT_THAT(Gemma3nError(kScale, std::vector<float>{1, 2}), HasSubstr("each of the 3 layers"));
  EXPECT_THAT(Gemma3nError(kScale, std::vector<float>{1, 2, -kNothing}),
              HasSubstr("activation_sparsity_scale is "));
  EXPECT_THAT(Gemma3nError(kScale, std::vector<float>{1, std::nanf(""), 2}),
              HasSubstr("or minus infinity where nothing is cut off"));
  EXPECT_THAT(Gemma3nError(kScale, 1.0f), HasSubstr("activation_sparsity_scale is 1"));
  EXPECT_THAT(Gemma3nError("feed_forward_length", std::vector<int32_t>{16, 24}),
              HasSubstr("one for each of the 3 layers"));
  EXPECT_THAT(Gemma3nError("altup.num_inputs", -1.0f), HasSubstr("altup.num_inputs is -1"));
  EXPECT_THAT(Gemma3nError("block_count", 100000u), HasSubstr("100000"));
}

TEST(GgufGemma3nTest, StackedProjectionsAreTensorsOfTheirOwn) {
  for (const bool whole : {true, false}) {
    GgufWriter writer;
    writer.Set("general.architecture", "gemma3n");
    const std::vector<int64_t> shape =
        whole ? std::vector<int64_t>{3, 2, 2} : std::vector<int64_t>{6, 2};
    writer.AddFloats("altup_proj.weight", shape, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
    writer.AddFloats("blk.1.altup_correct_scale.weight", {2}, {8, 9});
    const testing::TempDirectory directory;
    directory.Write("m", writer.File());
    const std::shared_ptr<const GgufFile> file =
        GgufFile::Open((directory.path() / "m").string()).value();
    const auto made = GgufTensors::Create(file, *FindGgufFamily(*file), GgufTensors::Codes::kWiden);
    if (!whole) {
      EXPECT_THAT(std::string(made.status().message()), HasSubstr("allowed: three dimensions"));
      continue;
    }
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_EQ(*ReadAsFloat(**made, "model.altup_projections.1.weight"),
              (std::vector<float>{4, 5, 6, 7}));
    EXPECT_EQ(*ReadAsFloat(**made, "model.layers.1.altup.correct_output_scale"),
              (std::vector<float>{8, 9}));
  }
}

}  // namespace
}  // namespace annulus
