// What numbers of CUDA's errors mean, and that they say what to do.
#include "kernels/cuda/error.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace annulus::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ErrorTest, KindsOfErrorsAreToldApart) {
  EXPECT_TRUE(StatusOf(kSuccess, "a launch").ok());
  const std::pair<int, absl::StatusCode> kinds[] = {
      {kMemoryAllocation, absl::StatusCode::kResourceExhausted},
      {kNoDevice, absl::StatusCode::kFailedPrecondition},
      {kSystemNotReady, absl::StatusCode::kFailedPrecondition},
      {kEccUncorrectable, absl::StatusCode::kUnavailable},
      {kNvlinkUncorrectable, absl::StatusCode::kUnavailable},
      {1, absl::StatusCode::kInternal}};
  for (const auto& [code, kind] : kinds) {
    const absl::Status status = StatusOf(code, "a launch");
    EXPECT_EQ(status.code(), kind) << status;
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("a launch: "), HasSubstr(absl::StrCat("CUDA error ", code))));
  }
}

// CUDA Runtime API, cudaError_t: all that "leave the process in an inconsistent state".
TEST(ErrorTest, WhatEndsAKernelLosesTheDevice) {
  for (const int code : {700, 702, 714, 715, 716, 717, 718, 719}) {
    const absl::Status status = StatusOf(code, "waiting for the GPU");
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("this process can no longer use; start it again"));
  }
}

}  // namespace
}  // namespace annulus::cuda
