// What numbers of CUDA's errors mean, and that they say what to do.
#include "kernels/cuda/error.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/device_error.h"

namespace annulus::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Numbers are those of CUDA Runtime API, cudaError_t.
TEST(ErrorTest, KindsOfErrorsAreToldApart) {
  EXPECT_TRUE(StatusOf(0, "a launch").ok());
  struct Kind {
    int code;
    absl::StatusCode status;
    const char* remedy;
  };
  const Kind kinds[] = {
      {2, absl::StatusCode::kResourceExhausted, "request less, or stop other programs"},
      {35, absl::StatusCode::kFailedPrecondition, "install a driver for CUDA 13.0"},
      {46, absl::StatusCode::kFailedPrecondition, "stop the other process"},
      {100, absl::StatusCode::kFailedPrecondition, "check nvidia-smi and CUDA_VISIBLE_DEVICES"},
      {101, absl::StatusCode::kFailedPrecondition, "check nvidia-smi and CUDA_VISIBLE_DEVICES"},
      {209, absl::StatusCode::kFailedPrecondition, "build it with CMAKE_CUDA_ARCHITECTURES"},
      {214, absl::StatusCode::kUnavailable, "reset or replace the GPU"},
      {220, absl::StatusCode::kUnavailable, "reset the GPUs"},
      {802, absl::StatusCode::kFailedPrecondition, "start nvidia-fabricmanager"},
      {803, absl::StatusCode::kFailedPrecondition, "install a driver for CUDA 13.0"},
      {1, absl::StatusCode::kInternal, "check the driver's log"}};
  for (const Kind& kind : kinds) {
    const absl::Status status = StatusOf(kind.code, "a launch");
    EXPECT_EQ(status.code(), kind.status) << status;
    EXPECT_THAT(status.message(), AllOf(HasSubstr("a launch: "), HasSubstr(kind.remedy),
                                        HasSubstr(absl::StrCat("CUDA error ", kind.code))));
    EXPECT_TRUE(IsOfDevice(status)) << status;
  }
}

// Whoever adds where it happened does not hide whose fault it is.
TEST(ErrorTest, APrefixKeepsTheMark) {
  const absl::Status status = WithPrefix("the weights: ", StatusOf(2, "a launch"));
  EXPECT_THAT(std::string(status.message()), StartsWith("the weights: a launch: "));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(IsOfDevice(status));
  EXPECT_FALSE(IsOfDevice(WithPrefix("a: ", absl::NotFoundError("b"))));
}

// CUDA Runtime API, cudaError_t: all that "leave the process in an inconsistent state".
TEST(ErrorTest, WhatEndsAKernelLosesTheDevice) {
  for (const int code : {700, 702, 714, 715, 716, 717, 718, 719}) {
    const absl::Status status = StatusOf(code, "waiting for the GPU");
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("this process can no longer use it; restart annulusd"));
  }
}

}  // namespace
}  // namespace annulus::cuda
