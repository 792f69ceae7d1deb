// Rotary angles as the runner forms them, up to ten million positions: the frequencies of a model's
// rope setting through the rope_table op of every table.

#include "engine/model/rope.h"

#include <cmath>
#include <random>

#include "engine/model/made/recall_model.h"
#include "gtest/gtest.h"
#include "tests/support/step_driver.h"

namespace annulus {
namespace {

constexpr int32_t kLongest = 10'000'000;

std::vector<RopeConfig> Settings() {
  RopeConfig plain;
  plain.theta = 10'000;
  plain.pairs = 64;
  RopeConfig linear = plain;
  linear.kind = RopeKind::kLinear;
  linear.factor = 4;
  RopeConfig llama3 = plain;
  llama3.kind = RopeKind::kLlama3;
  llama3.theta = 500'000;
  llama3.factor = 32;
  return {plain, linear, llama3, RecallConfig(2).ropes[0]};
}

TEST(RopePositions, AreWithinAMillionthRadianOfFloat64) {
  testing::CpuWorld world;
  std::vector<int32_t> positions = {0, 1, 1'000'000, kLongest - 1, kLongest};
  std::mt19937 random(31);
  std::uniform_int_distribution<int32_t> any(0, kLongest);
  while (positions.size() < 2000) positions.push_back(any(random));
  const auto rows = static_cast<int64_t>(positions.size());
  for (const RopeConfig& rope : Settings()) {
    const std::vector<float> frequencies = InverseFrequencies(rope);
    const auto pairs = static_cast<int64_t>(frequencies.size());
    std::vector<float> cosine(rows * pairs), sine(rows * pairs);
    for (const OpTable* ops : world.registry.Available("cpu")) {
      SCOPED_TRACE(::testing::Message() << ops->name << ", theta " << rope.theta << ", seed 31");
      auto stream = world.backend->CreateStream(1).value();
      RopeTableParams params;
      params.positions = positions;
      params.inverse_frequencies = frequencies;
      params.cosine = {cosine.data(), rows, pairs, pairs};
      params.sine = {sine.data(), rows, pairs, pairs};
      ASSERT_TRUE(ops->rope_table(*stream, params).ok());
      double worst = 0;
      for (int64_t i = 0; i < rows * pairs; ++i) {
        const double angle = double{frequencies[i % pairs]} * positions[i / pairs];
        const double seen = std::atan2(double{sine[i]}, double{cosine[i]});
        worst = std::max(worst, std::abs(std::remainder(seen - angle, 2 * M_PI)));
      }
      EXPECT_LT(worst, 1e-6);
    }
  }
}

}  // namespace
}  // namespace annulus
