#include "server/net/peer_stream.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

namespace annulus::server {
namespace {

class PeerStreamTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends_), 0);
  }
  void TearDown() override {
    close(ends_[0]);
    Leave();
  }
  void Leave() {
    if (ends_[1] >= 0) close(ends_[1]);
    ends_[1] = -1;
  }

  int ends_[2] = {-1, -1};
};

TEST_F(PeerStreamTest, SaysThatThePeerHasLeftBeforeItsBytesAreRead) {
  const auto stream = PlainStream(ends_[0]);
  ASSERT_EQ(write(ends_[1], "abc", 3), 3);
  EXPECT_FALSE(stream->peer_has_left());
  Leave();
  EXPECT_TRUE(stream->peer_has_left());
  std::array<char, 8> buffer;
  EXPECT_EQ(stream->Read(buffer.data(), buffer.size()).bytes, 3u);
  EXPECT_EQ(stream->Read(buffer.data(), buffer.size()).outcome, PeerStream::Outcome::kEnded);
}

TEST_F(PeerStreamTest, APeerThatOnlyEndsItsSideHasLeft) {
  const auto stream = PlainStream(ends_[0]);
  ASSERT_EQ(shutdown(ends_[1], SHUT_WR), 0);
  EXPECT_TRUE(stream->peer_has_left());
}

}  // namespace
}  // namespace annulus::server
