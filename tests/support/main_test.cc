#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "tests/support/temp_directory.h"

namespace annulus::testing {
namespace {

constexpr char kVariable[] = "ANNULUS_TEST_FAILS_ITSELF";

void CannotSetUp() { ASSERT_TRUE(false) << "planted"; }

TEST(TestMain, AHelperThatCannotSetUpEndsTheTest) {
  if (getenv(kVariable) != nullptr) {
    CannotSetUp();
    abort();
  }
  const TempDirectory folder;
  const std::string command = std::string(kVariable) + "=1 /proc/" + std::to_string(getpid()) +
                              "/exe --gtest_filter=TestMain.* >'" + folder.path().string() +
                              "/out'";
  const int status = std::system(command.c_str());
  EXPECT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 1);
}

TEST(TempDirectory, EveryOneIsNewAndGoesWithWhatItHolds) {
  std::filesystem::path left;
  {
    const TempDirectory one;
    const TempDirectory other;
    EXPECT_NE(one.path(), other.path());
    one.Write("file", "content");
    EXPECT_EQ(std::filesystem::file_size(one.path() / "file"), 7u);
    left = one.path();
  }
  EXPECT_FALSE(std::filesystem::exists(left));
}

}  // namespace
}  // namespace annulus::testing
