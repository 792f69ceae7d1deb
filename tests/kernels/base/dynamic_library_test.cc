#include "kernels/base/dynamic_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace annulus {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(DynamicLibraryTest, SaysWhatIsMissingAndWhatToDo) {
  const auto missing = DynamicLibrary::Open("libannulus-nowhere.so.7", "install nowhere");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(missing.status().message()),
              AllOf(HasSubstr("libannulus-nowhere.so.7"), HasSubstr("install nowhere")));
  const auto math = DynamicLibrary::Open("libm.so.6", "install another");
  ASSERT_TRUE(math.ok()) << math.status();
  double (*cosine)(double) = nullptr;
  ASSERT_TRUE(math->Find("cos", cosine).ok());
  EXPECT_EQ(cosine(0), 1);
  const absl::Status absent = math->Find("annulus_nothing", cosine);
  EXPECT_EQ(absent.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      std::string(absent.message()),
      AllOf(HasSubstr("libm.so.6 has no function annulus_nothing"), HasSubstr("install another")));
}

}  // namespace
}  // namespace annulus
