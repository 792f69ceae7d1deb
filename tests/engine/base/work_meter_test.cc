#include "engine/base/work_meter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <thread>

namespace annulus {
namespace {

using ::testing::HasSubstr;

TEST(CancelFlag, IsSetWithItsParent) {
  CancelFlag shutdown;
  CancelFlag call(&shutdown);
  EXPECT_FALSE(call.cancelled());
  shutdown.Cancel();
  EXPECT_TRUE(call.cancelled());

  CancelFlag other_parent;
  CancelFlag other(&other_parent);
  other.Cancel();
  EXPECT_TRUE(other.cancelled());
  EXPECT_FALSE(other_parent.cancelled());
  EXPECT_FALSE(CancelFlag::Never().cancelled());
}

TEST(WorkMeter, AllowsAsManyStepsAsItsLimit) {
  WorkMeter work("the work", 3000, CancelFlag::Never());
  for (int i = 0; i < 3000; ++i) ASSERT_TRUE(work.Step().ok()) << i;
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = work.Step();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("the work takes more than 3000 steps"));
  }
  EXPECT_EQ(work.steps(), 3002);
}

TEST(WorkMeter, DataThatComesInPartsRaisesTheLimit) {
  WorkMeter work("the work", 10, CancelFlag::Never());
  ASSERT_TRUE(work.Step(10).ok());
  work.Allow(5);
  EXPECT_EQ(work.limit(), 15);
  EXPECT_TRUE(work.Step(5).ok());
  EXPECT_FALSE(work.Step().ok());
}

// Counts that are added in parts must not wrap around into allowed ones.
TEST(WorkMeter, HugeCountsPassTheLimit) {
  WorkMeter work("the work", 10, CancelFlag::Never());
  EXPECT_FALSE(work.Step(std::numeric_limits<int64_t>::max()).ok());
  EXPECT_FALSE(work.Step(std::numeric_limits<int64_t>::max()).ok());
  EXPECT_FALSE(work.Step(1).ok());
}

TEST(WorkMeter, SeesTheFlagAtOnceAndThenOften) {
  CancelFlag cancel;
  cancel.Cancel();
  WorkMeter late("the work", 1 << 30, cancel);
  EXPECT_EQ(late.Step().code(), absl::StatusCode::kCancelled);

  CancelFlag other;
  WorkMeter work("the work", 1 << 30, other);
  ASSERT_TRUE(work.Step().ok());
  other.Cancel();
  int64_t more = 0;
  while (work.Step().ok()) ++more;
  EXPECT_LE(more, WorkMeter::kStepsBetweenChecks);
  EXPECT_EQ(work.Step().code(), absl::StatusCode::kCancelled);
}

TEST(WorkMeter, AnotherThreadEndsTheWork) {
  CancelFlag cancel;
  std::thread canceller([&] { cancel.Cancel(); });
  WorkMeter work("the work", std::numeric_limits<int64_t>::max(), cancel);
  absl::Status status;
  while (status.ok()) status = work.Step();
  canceller.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace annulus
