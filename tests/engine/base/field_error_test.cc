#include "engine/base/field_error.h"

#include <gtest/gtest.h>

#include <string>

#include "engine/api.h"

namespace annulus {
namespace {

TEST(FieldError, CarriesTheFieldInThePayload) {
  const absl::Status status =
      FieldError(absl::StatusCode::kInvalidArgument, "sampling.top_p", "must be in (0, 1], got 0");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()), "sampling.top_p: must be in (0, 1], got 0");
  ASSERT_TRUE(status.GetPayload(kFieldPayload).has_value());
  EXPECT_EQ(std::string(*status.GetPayload(kFieldPayload)), "sampling.top_p");
  EXPECT_FALSE(status.GetPayload(kRetryPayload).has_value());
}

TEST(FieldErrorDeathTest, OkIsNoError) {
  EXPECT_DEATH(FieldError(absl::StatusCode::kOk, "prompt", "").IgnoreError(), "without a code");
}

TEST(RetryError, CarriesTheDelayInThePayload) {
  const absl::Status status = RetryError("the queue is full", std::chrono::seconds(2));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(std::string(status.message()), "the queue is full");
  EXPECT_EQ(std::string(*status.GetPayload(kRetryPayload)), "2000");
}

TEST(RetryError, TheDelayIsNeverNegative) {
  const absl::Status status = RetryError("full", std::chrono::milliseconds(-5));
  EXPECT_EQ(std::string(*status.GetPayload(kRetryPayload)), "0");
}

}  // namespace
}  // namespace annulus
