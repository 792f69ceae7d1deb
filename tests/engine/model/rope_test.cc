#include "engine/model/rope.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "engine/model/model_config.h"
#include "tests/support/test_data.h"

namespace annulus {
namespace {

// The setting as a config.json says it, read by the parser. Only Phi-3 rotates part of a head.
RopeConfig FromCase(const nlohmann::json& setting) {
  const bool longrope = setting.at("rope_type") == "longrope";
  const auto head_dim = setting.at("head_dim").get<int32_t>();
  nlohmann::json config = {
      {"vocab_size", 100},      {"hidden_size", 2 * head_dim},     {"intermediate_size", 64},
      {"num_hidden_layers", 1}, {"num_attention_heads", 2},        {"num_key_value_heads", 1},
      {"head_dim", head_dim},   {"max_position_embeddings", 2048}, {"rope_parameters", setting}};
  config["architectures"] = {longrope ? "Phi3ForCausalLM" : "LlamaForCausalLM"};
  if (longrope) {
    config["original_max_position_embeddings"] = setting.at("original_max_position_embeddings");
  }
  return ParseModelConfig(config.dump(), "case").value().ropes.at(0);
}

// Positive floats are ordered as their bits are, so the distance is in units of the last place.
int64_t Distance(float a, uint32_t b) {
  return std::abs(static_cast<int64_t>(std::bit_cast<uint32_t>(a)) - static_cast<int64_t>(b));
}

TEST(RopeTest, FormsTheFloat32ValuesOfTransformers) {
  std::ifstream file(testing::TestFile("golden/rope_frequencies.json"));
  const nlohmann::json cases = nlohmann::json::parse(file);
  ASSERT_EQ(cases.size(), 29u);
  for (const nlohmann::json& setting : cases) {
    SCOPED_TRACE(setting.dump().substr(0, 300));
    const RopeConfig rope = FromCase(setting);
    const auto expected = setting.at("bits").get<std::vector<uint32_t>>();
    const std::vector<float> frequencies =
        InverseFrequencies(rope, setting.value("total_length", int64_t{0}));
    ASSERT_EQ(frequencies.size(), expected.size());
    EXPECT_FLOAT_EQ(rope.scale, setting.at("scale").get<float>());
    // With theta 1e6 and head_dim 128, PyTorch's power is not correctly rounded for one pair; that
    // of other bases may be off, too, and a blend of two frequencies adds two roundings.
    const bool exact = setting.at("rope_type") != "dynamic" && setting.at("rope_type") != "yarn" &&
                       (rope.theta != 1e6 || rope.pairs != 64);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_LE(Distance(frequencies[i], expected[i]), exact ? 0 : 2) << "pair " << i;
    }
  }
}

// The angles that kernels take: float64 products of the float32 frequencies, at any position.
TEST(RopeTest, AnglesAtLongPositionsAreThoseOfFloat64) {
  std::ifstream file(testing::TestFile("golden/rope_frequencies.json"));
  for (const nlohmann::json& setting : nlohmann::json::parse(file)) {
    const RopeConfig rope = FromCase(setting);
    const std::vector<float> frequencies =
        InverseFrequencies(rope, setting.value("total_length", int64_t{0}));
    const auto bits = setting.at("bits").get<std::vector<uint32_t>>();
    for (const nlohmann::json& angle : setting.at("angles")) {
      const auto pair = angle.at(1).get<size_t>();
      if (std::bit_cast<uint32_t>(frequencies[pair]) != bits[pair]) continue;
      const double turned = double{frequencies[pair]} * angle.at(0).get<double>();
      EXPECT_NEAR(rope.scale * std::cos(turned), angle.at(2).get<double>(), 2e-7);
      EXPECT_NEAR(rope.scale * std::sin(turned), angle.at(3).get<double>(), 2e-7);
    }
  }
}

// One set of frequencies for all of a sequence, by its prompt's length.
TEST(RopeTest, LengthChoosesTheFrequencies) {
  RopeConfig rope;
  rope.pairs = 2;
  rope.original_context = 100;
  EXPECT_EQ(RopeLength(std::span(&rope, 1), 1000), 0);
  EXPECT_EQ(RopeFactors(std::span(&rope, 1), 1000), "");
  rope.kind = RopeKind::kLongrope;
  rope.short_divisors = {1, 2};
  rope.long_divisors = {1, 8};
  EXPECT_EQ(RopeLength(std::span(&rope, 1), 100), 0);
  EXPECT_EQ(RopeLength(std::span(&rope, 1), 101), 101);
  EXPECT_EQ(RopeLength(std::span(&rope, 1), 5000), 101);
  EXPECT_EQ(RopeFactors(std::span(&rope, 1), 100), "short");
  EXPECT_EQ(RopeFactors(std::span(&rope, 1), 101), "long");
  EXPECT_EQ(InverseFrequencies(rope, 100)[1], 0.005f);
  EXPECT_EQ(InverseFrequencies(rope, 101)[1], 0.00125f);
  rope.kind = RopeKind::kDynamic;
  rope.factor = 2;
  EXPECT_EQ(RopeLength(std::span(&rope, 1), 100), 0);
  EXPECT_EQ(RopeLength(std::span(&rope, 1), 150), 150);
  EXPECT_EQ(InverseFrequencies(rope, 100)[1], 0.01f);
  EXPECT_LT(InverseFrequencies(rope, 150)[1], 0.006f);
}

TEST(RopeTest, TheScaleOfQueriesGrowsByItsSteps) {
  RopeConfig rope;
  rope.scale = 2;
  rope.original_context = 100;
  EXPECT_EQ(ScaleAt(rope, 1000), 2);
  rope.growth = 0.5;
  EXPECT_EQ(ScaleAt(rope, 99), 2);
  EXPECT_EQ(ScaleAt(rope, 100), ScaleAt(rope, 199));
  EXPECT_FLOAT_EQ(ScaleAt(rope, 100), static_cast<float>(2 * (1 + 0.5 * std::log(2.0))));
  EXPECT_FLOAT_EQ(ScaleAt(rope, 1000), static_cast<float>(2 * (1 + 0.5 * std::log(11.0))));
}

TEST(RopeTest, Llama3KeepsFastAndDividesSlowFrequencies) {
  RopeConfig rope;
  rope.theta = 500000;
  rope.pairs = 64;
  const std::vector<float> plain = InverseFrequencies(rope);
  rope.kind = RopeKind::kLlama3;
  rope.factor = 8;
  const std::vector<float> scaled = InverseFrequencies(rope);
  EXPECT_EQ(scaled.front(), plain.front());
  EXPECT_EQ(scaled.back(), plain.back() / 8);
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_LE(scaled[i], plain[i]);
    EXPECT_GE(scaled[i], plain[i] / 8 * 0.999999f);
  }
}

TEST(RopeTest, NoPairsGivesNoFrequencies) { EXPECT_TRUE(InverseFrequencies({}).empty()); }

}  // namespace
}  // namespace annulus
