#include "server/config/plain_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "server/config/load_config.h"
#include "tests/support/temp_directory.h"

namespace annulus::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class PlainFileTest : public ::testing::Test {
 protected:
  PlainFileTest() {
    directory_.Write("file", "content");
    std::filesystem::create_directory(directory_.path() / "folder");
    EXPECT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
    std::filesystem::create_symlink("file", directory_.path() / "link");
    std::filesystem::create_symlink("pipe", directory_.path() / "pipe_link");
    std::filesystem::create_symlink("loop", directory_.path() / "loop");
  }
  std::string Path(const std::string& name) const { return (directory_.path() / name).string(); }
  std::string ReadError(const std::string& path) const {
    return std::string(ReadPlainFile("option", path, 100).status().message());
  }
  static std::string WriteError(const std::string& path) {
    return std::string(CheckFileToWrite("option", path).message());
  }

  const testing::TempDirectory directory_;
};

TEST_F(PlainFileTest, ReadsRegularFilesAndLinksToThem) {
  EXPECT_EQ(ReadPlainFile("option", Path("file"), 7).value(), "content");
  EXPECT_EQ(ReadPlainFile("option", Path("link"), 7).value(), "content");
}

TEST_F(PlainFileTest, TellsTheModeOfWhatWasRead) {
  ASSERT_EQ(chmod(Path("file").c_str(), 0604), 0);
  mode_t mode = 0;
  ASSERT_TRUE(ReadPlainFile("option", Path("link"), 7, &mode).ok());
  EXPECT_EQ(mode & 07777u, 0604u);
}

// None of these blocks.
TEST_F(PlainFileTest, EverythingElseIsRefusedAtOnceByItsKind) {
  EXPECT_THAT(ReadError(Path("folder")), AllOf(HasSubstr("option: "), HasSubstr("is a folder")));
  EXPECT_THAT(ReadError(Path("pipe")), HasSubstr("is a pipe"));
  EXPECT_THAT(ReadError(Path("pipe_link")), HasSubstr("is a pipe"));
  EXPECT_THAT(ReadError("/dev/zero"), HasSubstr("is a device"));
  EXPECT_THAT(ReadError(Path("absent")), HasSubstr("No such file"));
  EXPECT_THAT(ReadError(Path("loop")), HasSubstr("cannot open"));
  EXPECT_THAT(ReadError(""), HasSubstr("cannot open"));
  EXPECT_THAT(std::string(ReadPlainFile("option", Path("file"), 6).status().message()),
              HasSubstr("longer than 6 bytes"));
}

TEST_F(PlainFileTest, AFileToWriteMayBeAbsentButNothingElse) {
  EXPECT_EQ(WriteError(Path("file")), "");
  EXPECT_EQ(WriteError(Path("link")), "");
  EXPECT_EQ(WriteError(Path("new")), "");
  EXPECT_EQ(WriteError("new"), "");
  EXPECT_THAT(WriteError(Path("folder")), HasSubstr("is a folder"));
  EXPECT_THAT(WriteError(Path("pipe")), HasSubstr("is a pipe"));
  EXPECT_THAT(WriteError("/dev/null"), HasSubstr("is a device"));
  EXPECT_THAT(WriteError(Path("absent/new")), HasSubstr("is not a writable folder"));
  EXPECT_THAT(WriteError(Path("absent/")), HasSubstr("is a folder"));
  EXPECT_THAT(WriteError(Path("file/new")), HasSubstr("cannot use"));
  if (geteuid() != 0) {  // whom no rights stop
    EXPECT_THAT(WriteError("/new"), HasSubstr("writable"));
  }
}

// What the daemon reads or writes later is found out before it loads a model.
TEST_F(PlainFileTest, OptionsThatNameFilesAreChecked) {
  const auto error = [](const std::vector<std::string>& flags) {
    return std::string(LoadConfig(flags, {}).status().message());
  };
  EXPECT_THAT(error({"--ring-profile", Path("folder")}),
              AllOf(HasSubstr("profile: "), HasSubstr("is a folder")));
  EXPECT_THAT(error({"--ring-profile", Path("absent/new")}), HasSubstr("is not a writable folder"));
  EXPECT_THAT(error({"--config", Path("folder")}),
              AllOf(HasSubstr("config: "), HasSubstr("is a folder")));
  EXPECT_THAT(error({"--config", Path("pipe")}), HasSubstr("is a pipe"));
}

}  // namespace
}  // namespace annulus::server
