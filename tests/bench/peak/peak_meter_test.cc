#include "bench/peak/peak_meter.h"

#include <algorithm>

#include "gtest/gtest.h"

namespace annulus::bench {
namespace {

constexpr PeakEffort kLittle{.rounds = 1, .slices = 3, .slice_seconds = 0.001};

TEST(PeakMeter, NamesAreReadBack) {
  for (const PeakKind kind : PeakMeter().Available()) {
    const auto parsed = ParsePeak(PeakName(kind));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, kind);
  }
  const auto unknown = ParsePeak("fp64");
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(unknown.status().message().find("amx_bf16"), absl::string_view::npos);
}

TEST(PeakMeter, EveryMachineHasFloatsExponentialsAndMemory) {
  const PeakMeter meter;
  for (const PeakKind kind : {PeakKind::kF32, PeakKind::kExp, PeakKind::kMemoryRead}) {
    EXPECT_TRUE(meter.Has(kind)) << PeakName(kind);
  }
}

// The slowest machine that builds this does more than 10 million of anything in a second.
TEST(PeakMeter, EveryAvailableRateIsMeasuredOnOneThreadAndMore) {
  const PeakMeter meter(size_t{8} << 20);
  for (const PeakKind kind : meter.Available()) {
    for (const int threads : {1, 3}) {
      const auto rate = meter.Measure(kind, threads, kLittle);
      ASSERT_TRUE(rate.ok()) << PeakName(kind) << " " << rate.status();
      EXPECT_GT(*rate, 1e7) << PeakName(kind);
      EXPECT_LT(*rate, 1e15) << PeakName(kind);
      EXPECT_FALSE(meter.Instructions(kind).empty());
    }
  }
}

}  // namespace
}  // namespace annulus::bench
