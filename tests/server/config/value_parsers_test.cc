#include "server/config/value_parsers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "kernels/base/nearest_name.h"

namespace annulus::server {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr size_t kAnySize = size_t{1} << 62;

TEST(ParseInteger, TakesOnlyWholeNumbersInRange) {
  EXPECT_EQ(ParseInteger("64", 1, 64).value(), 64);
  for (const char* bad : {"", "0", "65", "1.5", "4x", "-1", "0x10", "99999999999999999999"}) {
    const auto result = ParseInteger(bad, 1, 64);
    ASSERT_FALSE(result.ok()) << bad;
    EXPECT_THAT(std::string(result.status().message()), HasSubstr("from 1 to 64"));
  }
}

TEST(ParseSize, KnowsDecimalAndBinaryUnits) {
  EXPECT_EQ(ParseSize("1024", 0, kAnySize).value(), 1024u);
  EXPECT_EQ(ParseSize("512MB", 0, kAnySize).value(), 512'000'000u);
  EXPECT_EQ(ParseSize("512 mb", 0, kAnySize).value(), 512'000'000u);
  EXPECT_EQ(ParseSize("4GiB", 0, kAnySize).value(), size_t{4} << 30);
  EXPECT_EQ(ParseSize("1.5KiB", 0, kAnySize).value(), 1536u);
}

TEST(ParseSize, RefusesWhatIsNoSize) {
  for (const char* bad :
       {"", "GB", "-1", "1e9", "nan", "inf", "4 G", "4GiBx", "1..5MB", "99999999999999999999TiB"}) {
    EXPECT_FALSE(ParseSize(bad, 0, kAnySize).ok()) << bad;
  }
  const auto below = ParseSize("1KiB", 1 << 20, kAnySize);
  ASSERT_FALSE(below.ok());
  EXPECT_THAT(std::string(below.status().message()), HasSubstr("1 MiB"));
}

TEST(ParseDuration, KnowsItsUnits) {
  EXPECT_EQ(ParseDuration("30", milliseconds(0), hours(24)).value(), milliseconds(30'000));
  EXPECT_EQ(ParseDuration("30s", milliseconds(0), hours(24)).value(), milliseconds(30'000));
  EXPECT_EQ(ParseDuration("250ms", milliseconds(0), hours(24)).value(), milliseconds(250));
  EXPECT_EQ(ParseDuration("1.5m", milliseconds(0), hours(24)).value(), milliseconds(90'000));
  EXPECT_EQ(ParseDuration("24h", milliseconds(0), hours(24)).value(), hours(24));
  for (const char* bad : {"", "25h", "-1s", "1d", "s", "nan"}) {
    EXPECT_FALSE(ParseDuration(bad, milliseconds(0), hours(24)).ok()) << bad;
  }
}

TEST(ParseShare, TakesPercentages) {
  EXPECT_EQ(ParseShare("0").value(), 0);
  EXPECT_EQ(ParseShare("25").value(), 0.25);
  EXPECT_EQ(ParseShare("100").value(), 1);
  for (const char* bad : {"", "101", "-1", "0.5", "50%"}) EXPECT_FALSE(ParseShare(bad).ok()) << bad;
}

TEST(ParseText, RefusesOnlyNulBytes) {
  EXPECT_EQ(ParseText("").value(), "");
  EXPECT_EQ(ParseText("/models/a b\n").value(), "/models/a b\n");
  EXPECT_FALSE(ParseText(absl::string_view("a\0b", 3)).ok());
}

TEST(ParseHostPort, TakesNamesAndBothFamilies) {
  for (const char* good : {"127.0.0.1:50051", "localhost:0", "[::1]:9464", "0.0.0.0:65535"}) {
    EXPECT_EQ(ParseHostPort(good).value(), good);
  }
  for (const char* bad : {"", "50051", ":50051", "::1:50051", "host:", "host:65536", "host:-1",
                          "a b:1", "unix:/run/x:1", "[]:1", "a,b:1"}) {
    EXPECT_FALSE(ParseHostPort(bad).ok()) << bad;
  }
}

TEST(NearestName, CountsEditsAndSwaps) {
  EXPECT_EQ(EditDistance("", "abc"), 3);
  EXPECT_EQ(EditDistance("ranks", "ranks"), 0);
  EXPECT_EQ(EditDistance("ranks", "rnaks"), 1);
  EXPECT_EQ(EditDistance("kv-memory", "kv_memroy"), 2);
  EXPECT_EQ(NearestName("--rank", {"--ring-mode", "--ranks", "--listen"}), "--ranks");
  EXPECT_EQ(NearestName("x", {}), "");
  // A word of a longer name is nearer than names that are as long, but not than a slip.
  EXPECT_EQ(NearestName("--running", {"--ranks", "--listen", "--max-running"}), "--max-running");
  EXPECT_EQ(NearestName("pages", {"dense", "stages", "top_pages"}), "stages");
  EXPECT_EQ(NearestName(std::string(1 << 20, 'x'), {"a", "b"}), "a");
}

}  // namespace
}  // namespace annulus::server
