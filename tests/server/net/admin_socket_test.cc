#include "server/net/admin_socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "tests/support/temp_directory.h"

namespace annulus::server {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

unsigned ModeOf(const fs::path& path) {
  struct stat state {};
  EXPECT_EQ(lstat(path.c_str(), &state), 0) << path;
  return state.st_mode & 07777u;
}

class AdminSocketTest : public ::testing::Test {
 protected:
  fs::path path() const { return directory_.path() / "own" / "a.sock"; }
  std::string Error() const {
    const auto opened = AdminSocket::Open(path());
    EXPECT_FALSE(opened.ok());
    return std::string(opened.status().message());
  }

  testing::TempDirectory directory_;
};

TEST_F(AdminSocketTest, IsItsOwnersAlone) {
  for (const mode_t mask : {0, 077}) {
    const mode_t before = umask(mask);
    const auto socket = AdminSocket::Open(path());
    umask(before);
    ASSERT_TRUE(socket.ok()) << socket.status();
    EXPECT_EQ(ModeOf(path()), 0600u);
    EXPECT_EQ(ModeOf(directory_.path() / "own"), 0700u);
  }
  EXPECT_FALSE(fs::exists(path().parent_path())) << "both go with the daemon";
}

TEST_F(AdminSocketTest, AFolderStaysThatWasThereOrIsUsed) {
  {
    const auto first = AdminSocket::Open(path());
    ASSERT_TRUE(first.ok()) << first.status();
    std::ofstream(path().replace_filename("other")) << "of somebody else";
  }
  EXPECT_TRUE(fs::exists(path().replace_filename("other")));
  fs::remove(path().replace_filename("other"));
  { const auto second = AdminSocket::Open(path()); }
  EXPECT_TRUE(fs::exists(path().parent_path())) << "the second did not make it";
}

TEST_F(AdminSocketTest, DaemonsBeginWhileOthersOfTheUserEnd) {
  const auto come_and_go = [this](int name) {
    for (int turn = 0; turn < 300; ++turn) {
      const auto socket = AdminSocket::Open(path().replace_filename(std::to_string(name)));
      ASSERT_TRUE(socket.ok()) << socket.status();
    }
  };
  std::thread other(come_and_go, 1);
  come_and_go(2);
  other.join();
}

TEST_F(AdminSocketTest, ADaemonsSocketIsNotTaken) {
  const auto first = AdminSocket::Open(path());
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_THAT(Error(), HasSubstr("another daemon"));
  EXPECT_EQ(ModeOf(path()), 0600u);
}

TEST_F(AdminSocketTest, OneThatAKilledDaemonLeftIsReplaced) {
  {
    const auto first = AdminSocket::Open(path());
    ASSERT_TRUE(first.ok()) << first.status();
    // As after a kill: the file stays, and nobody listens.
    fs::rename(path(), fs::path(path()).replace_filename("left"));
  }
  fs::rename(fs::path(path()).replace_filename("left"), path());
  EXPECT_TRUE(AdminSocket::Open(path()).ok());
}

TEST_F(AdminSocketTest, AnothersSocketStays) {
  {
    const auto first = AdminSocket::Open(path());
    ASSERT_TRUE(first.ok()) << first.status();
    fs::remove(path());
    std::ofstream(path()) << "not ours";
  }
  EXPECT_TRUE(fs::exists(path()));
  EXPECT_THAT(Error(), HasSubstr("not a socket"));
}

TEST_F(AdminSocketTest, AFolderThatOthersMayWriteIsRefused) {
  fs::create_directory(directory_.path() / "own");
  ASSERT_EQ(chmod((directory_.path() / "own").c_str(), 0777), 0);
  EXPECT_THAT(Error(), HasSubstr("other users can replace"));
  ASSERT_EQ(chmod((directory_.path() / "own").c_str(), 01777), 0);
  EXPECT_TRUE(AdminSocket::Open(path()).ok()) << "as /tmp: nobody removes what is another's";
}

TEST_F(AdminSocketTest, WhatTheSystemRefusesIsSaid) {
  const auto opened = AdminSocket::Open(directory_.path() / "none" / "deeper" / "a.sock");
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(opened.status().message()), HasSubstr("--admin-listen"));
}

}  // namespace
}  // namespace annulus::server
