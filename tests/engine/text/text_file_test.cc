#include "engine/text/text_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/temp_directory.h"

namespace annulus {
namespace {

using ::testing::HasSubstr;

TEST(ReadTextFile, RefusesWhatIsNoReasonableFile) {
  const testing::TempDirectory directory;
  const std::filesystem::path& folder = directory.path();
  EXPECT_EQ(ReadTextFile(folder / "absent").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadTextFile(folder).status().code(), absl::StatusCode::kInvalidArgument);

  const std::filesystem::path fifo = folder / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(ReadTextFile(fifo).status().code(), absl::StatusCode::kInvalidArgument);

  const std::filesystem::path large = folder / "large";
  std::ofstream(large) << "x";
  std::filesystem::resize_file(large, kMaxTextFileBytes + 1);  // sparse
  const absl::Status status = ReadTextFile(large).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("268435457 bytes"));
}

}  // namespace
}  // namespace annulus
