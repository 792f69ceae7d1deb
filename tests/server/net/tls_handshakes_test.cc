#include "server/net/tls_handshakes.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "tests/server/certificates.h"
#include "tests/server/test_server.h"
#include "tests/support/temp_directory.h"

namespace annulus::server {
namespace {

constexpr size_t kMost = 3;

class TlsHandshakesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const TestIdentity identity = MakeIdentity();
    directory_.Write("cert.pem", identity.certificate);
    directory_.Write("key.pem", identity.key);
    ServerConfig config;
    config.tls_certificate = directory_.path() / "cert.pem";
    config.tls_key = directory_.path() / "key.pem";
    auto files = TlsFiles::Open(config);
    ASSERT_TRUE(files.ok()) << files.status();
    handshakes_ = TlsHandshakes::Start(
                      std::make_unique<TlsStreams>(*std::move(files), TlsStreams::For::kCalls),
                      {std::chrono::hours(1), kMost},
                      [](int client, std::unique_ptr<PeerStream>) { close(client); })
                      .value();
  }
  ~TlsHandshakesTest() override {
    for (const int client : clients_) close(client);
  }

  // A client that says nothing.
  void Arrive() {
    std::array<int, 2> ends{};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()), 0);
    clients_.push_back(ends[1]);
    handshakes_->Begin(ends[0]);
  }
  bool IsClosed(size_t client) const {
    char byte;
    return recv(clients_[client], &byte, 1, 0) == 0;
  }

  testing::TempDirectory directory_;
  std::vector<int> clients_;
  std::unique_ptr<TlsHandshakes> handshakes_;
};

// Otherwise clients that never end theirs could take all connections that there may be.
TEST_F(TlsHandshakesTest, TheOldestOfTooManyMakesRoom) {
  for (size_t i = 0; i < kMost; ++i) Arrive();
  for (size_t i = 0; i < 2; ++i) {
    Arrive();
    EXPECT_TRUE(Eventually([&] { return IsClosed(i); })) << i;
  }
  for (size_t i = 2; i < clients_.size(); ++i) EXPECT_FALSE(IsClosed(i)) << i;
}

}  // namespace
}  // namespace annulus::server
