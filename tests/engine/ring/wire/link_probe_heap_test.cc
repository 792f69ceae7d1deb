// A probe of links that finds no memory for its messages says so.

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <vector>

#include "engine/ring/wire/link_probe.h"
#include "tests/support/counting_heap.h"
#include "tests/support/wire_rings.h"

namespace annulus {
namespace {

TEST(LinkProbe, WithoutMemoryForItsMessagesSaysSo) {
  const std::vector<int> all = {0, 1, 2};
  const auto ring = testing::OpenWireRing(testing::WireKind::kMemory, 3).value();
  LinkProbe probe(*ring, all);
  const auto time = [&] {
    const SteadyTime deadline = std::chrono::steady_clock::now() + std::chrono::hours(1);
    return std::async(
               std::launch::async,
               [&, deadline] { return probe.Time(all, LinkProbe::kMostBytes, deadline).status(); })
        .get();
  };
  for (const int poor : all) {
    SCOPED_TRACE(poor);
    testing::FailAllocation(2 * LinkProbe::kMostBytes, poor);
    const absl::Status timed = time();
    ASSERT_TRUE(testing::TakeAllocationFailed());
    EXPECT_EQ(timed.code(), absl::StatusCode::kResourceExhausted) << timed;
  }
  EXPECT_EQ(ring->Reset(), absl::OkStatus());
  EXPECT_EQ(time(), absl::OkStatus());
}

}  // namespace
}  // namespace annulus
