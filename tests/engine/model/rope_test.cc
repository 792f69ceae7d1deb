#include "engine/model/rope.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/test_data.h"

namespace annulus {
namespace {

RopeConfig FromCase(const nlohmann::json& setting) {
  RopeConfig rope;
  rope.theta = setting.at("rope_theta").get<double>();
  rope.pairs = setting.at("head_dim").get<int32_t>() / 2;
  rope.factor = setting.value("factor", 1.0);
  const auto kind = setting.at("rope_type").get<std::string>();
  if (kind == "linear") rope.kind = RopeKind::kLinear;
  if (kind != "llama3") return rope;
  rope.kind = RopeKind::kLlama3;
  rope.low_frequency_factor = setting.at("low_freq_factor").get<double>();
  rope.high_frequency_factor = setting.at("high_freq_factor").get<double>();
  rope.original_context = setting.at("original_max_position_embeddings").get<int64_t>();
  return rope;
}

// Positive floats are ordered as their bits are, so the distance is in units of the last place.
int64_t Distance(float a, uint32_t b) {
  return std::abs(static_cast<int64_t>(std::bit_cast<uint32_t>(a)) - static_cast<int64_t>(b));
}

TEST(RopeTest, FormsTheFloat32ValuesOfTransformers) {
  std::ifstream file(testing::TestFile("golden/rope_frequencies.json"));
  const nlohmann::json cases = nlohmann::json::parse(file);
  ASSERT_EQ(cases.size(), 19u);
  for (const nlohmann::json& setting : cases) {
    const RopeConfig rope = FromCase(setting);
    const auto expected = setting.at("bits").get<std::vector<uint32_t>>();
    const std::vector<float> frequencies = InverseFrequencies(rope);
    ASSERT_EQ(frequencies.size(), expected.size());
    // With theta 1e6 and head_dim 128, PyTorch's power is not correctly rounded for one pair.
    const bool exact = rope.theta != 1e6 || rope.pairs != 64;
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_LE(Distance(frequencies[i], expected[i]), exact ? 0 : 1)
          << "theta " << rope.theta << ", pairs " << rope.pairs << ", pair " << i;
    }
  }
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
