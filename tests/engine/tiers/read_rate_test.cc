#include "engine/tiers/read_rate.h"

#include <gtest/gtest.h>

namespace annulus {
namespace {

using std::chrono::seconds;

TEST(ReadRateTest, IsUnknownUntilAReadAndThenWhatReadsGave) {
  ReadRate rate;
  SteadyTime now{};
  EXPECT_FALSE(rate.SecondsFor(100, now).has_value());
  for (int i = 0; i < 100; ++i) rate.Add(50, 0.5, now);
  EXPECT_NEAR(*rate.SecondsFor(1000, now), 10, 1e-6);
  for (int i = 0; i < 300; ++i) rate.Add(50, 0.05, now);
  EXPECT_NEAR(*rate.SecondsFor(1000, now), 1, 0.1) << "what was long ago counts little";
  EXPECT_EQ(*rate.SecondsFor(0, now), 0);
}

TEST(ReadRateTest, ADiskThatGaveNothingIsTriedAgainAfterAWhile) {
  ReadRate rate;
  SteadyTime now{};
  rate.Add(0, 5, now);
  EXPECT_GT(*rate.SecondsFor(1, now), 1e9);
  rate.Add(1000, 0.001, now);
  EXPECT_GT(*rate.SecondsFor(1000, now), 1);
  now += seconds(59);
  EXPECT_TRUE(rate.SecondsFor(1000, now).has_value());
  now += seconds(2);
  EXPECT_FALSE(rate.SecondsFor(1000, now).has_value());
  rate.Add(1000, 0.001, now);
  EXPECT_NEAR(*rate.SecondsFor(1000, now), 0.001, 1e-6) << "the old failure is forgotten";
}

}  // namespace
}  // namespace annulus
