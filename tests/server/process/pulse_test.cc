#include "server/process/pulse.h"

#include <gtest/gtest.h>

namespace annulus::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Pulse::Time kStart{seconds(1000)};

TEST(PulseTest, EndsWhenNothingBeats) {
  Pulse pulse(kStart);
  EXPECT_TRUE(pulse.alive(kStart + Pulse::kLongestPause));
  EXPECT_FALSE(pulse.alive(kStart + Pulse::kLongestPause + milliseconds(1)));
  pulse.Beat(kStart + seconds(60), false);
  EXPECT_TRUE(pulse.alive(kStart + seconds(61)));
  EXPECT_FALSE(pulse.alive(kStart + seconds(71)));
}

TEST(PulseTest, IsNotAliveWhileCallsAreStuck) {
  Pulse pulse(kStart);
  pulse.Beat(kStart + seconds(1), false, /*stuck=*/true);
  EXPECT_FALSE(pulse.alive(kStart + seconds(1)));
  pulse.Beat(kStart + seconds(2), false);
  EXPECT_TRUE(pulse.alive(kStart + seconds(2)));
}

TEST(PulseTest, ASicknessThatPassesIsNoReasonToRestart) {
  Pulse pulse(kStart);
  const auto live = [&](seconds from, seconds to, bool sick) {
    for (seconds at = from; at < to; at += seconds(1)) {
      pulse.Beat(kStart + at, sick);
      if (!pulse.alive(kStart + at)) return false;
    }
    return true;
  };
  EXPECT_TRUE(live(seconds(0), Pulse::kLongestSickness, true));
  pulse.Beat(kStart + Pulse::kLongestSickness, false);
  EXPECT_TRUE(live(seconds(301), seconds(601), true));
  EXPECT_TRUE(live(seconds(601), seconds(602), true));
  EXPECT_FALSE(live(seconds(602), seconds(700), true));
  pulse.Beat(kStart + seconds(700), false);
  EXPECT_TRUE(pulse.alive(kStart + seconds(700)));
}

}  // namespace
}  // namespace annulus::server
