#include "kernels/base/check.h"

#include "gtest/gtest.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

TEST(Check, PassesWithoutEvaluatingTheMessage) {
  int evaluated = 0;
  ANNULUS_CHECK(1 + 1 == 2) << ++evaluated;
  EXPECT_EQ(evaluated, 0);
}

TEST(CheckDeathTest, FailureNamesTheConditionAndTheMessage) {
  EXPECT_DEATH(ANNULUS_CHECK(1 == 2) << "given " << 7, "check failed: 1 == 2 given 7");
}

absl::StatusOr<int> Half(int x) {
  if (x % 2 != 0) return absl::InvalidArgumentError("odd");
  return x / 2;
}

absl::Status Quarter(int x, int* result) {
  ANNULUS_ASSIGN_OR_RETURN(const int half, Half(x));
  ANNULUS_ASSIGN_OR_RETURN(*result, Half(half));
  ANNULUS_RETURN_IF_ERROR(Half(half).status());
  return absl::OkStatus();
}

TEST(StatusMacros, AssignOrReturnTheError) {
  int result = 0;
  EXPECT_TRUE(Quarter(12, &result).ok());
  EXPECT_EQ(result, 3);
  EXPECT_EQ(Quarter(6, &result).message(), "odd");
}

}  // namespace
}  // namespace annulus
