#include "client/format/units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace annulus::client {
namespace {

TEST(FormatShare, HasThreeDigits) {
  EXPECT_EQ(FormatShare(0.12345), "0.123");
  EXPECT_EQ(FormatShare(1), "1");
}

TEST(Units, Counts) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(1000), "1,000");
  EXPECT_EQ(FormatCount(65536), "65,536");
  EXPECT_EQ(FormatCount(1234567), "1,234,567");
  EXPECT_EQ(FormatCount(-100), "-100");
  EXPECT_EQ(FormatCount(-1000), "-1,000");
  EXPECT_EQ(FormatCount(std::numeric_limits<int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(Units, Bytes) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1024), "1.0 KiB");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes((1 << 20) - 1), "1.0 MiB");
  EXPECT_EQ(FormatBytes(int64_t{5} << 30), "5.0 GiB");
  EXPECT_EQ(FormatBytes(std::numeric_limits<int64_t>::max()), "8192.0 PiB");
}

TEST(Units, Durations) {
  EXPECT_EQ(FormatDuration(0), "0 ms");
  EXPECT_EQ(FormatDuration(0.0123), "12 ms");
  EXPECT_EQ(FormatDuration(0.9996), "1.00 s");
  EXPECT_EQ(FormatDuration(4.2), "4.20 s");
  EXPECT_EQ(FormatDuration(42), "42.0 s");
  EXPECT_EQ(FormatDuration(59.96), "1 min 0 s");
  EXPECT_EQ(FormatDuration(183), "3 min 3 s");
  EXPECT_EQ(FormatDuration(3840), "1 h 4 min");
  EXPECT_EQ(FormatDuration(-1), "?");
  EXPECT_EQ(FormatDuration(std::nan("")), "?");
  EXPECT_EQ(FormatDuration(INFINITY), "?");
}

TEST(Units, Rates) {
  EXPECT_EQ(FormatRate(0), "0.00");
  EXPECT_EQ(FormatRate(3.214), "3.21");
  EXPECT_EQ(FormatRate(18.84), "18.8");
  EXPECT_EQ(FormatRate(812.4), "812");
  EXPECT_EQ(FormatRate(5244.3), "5,244");
  EXPECT_EQ(FormatRate(std::nan("")), "?");
  EXPECT_EQ(FormatRate(INFINITY), "?");
}

TEST(Units, Numbers) {
  EXPECT_EQ(FormatNumbers({}), "");
  EXPECT_EQ(FormatNumbers({3}), "3");
  EXPECT_EQ(FormatNumbers({3, 5}), "3 and 5");
  EXPECT_EQ(FormatNumbers({0, 1, 2, 5, 7, 8}), "0 to 2, 5 and 7 to 8");
  std::vector<int> odd;
  for (int i = 0; i < 24; ++i) odd.push_back(2 * i + 1);
  EXPECT_THAT(FormatNumbers(odd), ::testing::EndsWith("37, 39 and 4 more"));
}

TEST(ParseSeconds, TakesUnitsAndBareNumbers) {
  EXPECT_EQ(ParseSeconds("90"), 90);
  EXPECT_EQ(ParseSeconds("1.5s"), 1.5);
  EXPECT_EQ(ParseSeconds("30m"), 1800);
  EXPECT_EQ(ParseSeconds("2h"), 7200);
  EXPECT_EQ(ParseSeconds("7d"), 604'800);
  EXPECT_EQ(ParseSeconds("0"), 0);
  for (const char* bad : {"", "h", "-1s", "1w", "nan", "inf", "1h30m", "1 hour"}) {
    EXPECT_EQ(ParseSeconds(bad), std::nullopt) << bad;
  }
}

}  // namespace
}  // namespace annulus::client
