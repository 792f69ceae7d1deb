#include "server/net/tls_handshakes.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <future>
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
                      [this](int client, std::unique_ptr<PeerStream>) {
                        done_.set_value();
                        go_on_.get_future().wait();
                        close(client);
                      })
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
  // A client of another address.
  void ArriveFrom(const char* source) {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    ASSERT_EQ(listen(listener, 1), 0);
    sockaddr_in address{};
    socklen_t size = sizeof(address);
    getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
    sockaddr_in own{};
    own.sin_family = AF_INET;
    inet_pton(AF_INET, source, &own.sin_addr);
    clients_.push_back(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    ASSERT_EQ(bind(clients_.back(), reinterpret_cast<sockaddr*>(&own), sizeof(own)), 0);
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    connect(clients_.back(), reinterpret_cast<sockaddr*>(&address), size);
    handshakes_->Begin(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK));
    close(listener);
  }
  // Completes a handshake, after which the thread waits for go_on_.
  void HoldThread() {
    std::array<int, 2> ends{};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    clients_.push_back(ends[1]);
    handshakes_->Begin(ends[0]);
    const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(
        SSL_CTX_new(TLS_client_method()), &SSL_CTX_free);
    const std::unique_ptr<SSL, decltype(&SSL_free)> client(SSL_new(context.get()), &SSL_free);
    SSL_set_alpn_protos(client.get(), reinterpret_cast<const unsigned char*>("\x02h2"), 3);
    SSL_set_fd(client.get(), ends[1]);
    ASSERT_EQ(SSL_connect(client.get()), 1);
    done_.get_future().wait();
  }
  bool IsClosed(size_t client) const {
    char byte;
    return recv(clients_[client], &byte, 1, 0) == 0;
  }

  testing::TempDirectory directory_;
  std::vector<int> clients_;
  std::promise<void> done_;
  std::promise<void> go_on_;
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

// The thread may be busy for long.
TEST_F(TlsHandshakesTest, ManyThatWaitPushOutNoOtherAddress) {
  constexpr size_t kMany = 40;
  HoldThread();
  for (size_t i = 0; i < kMany; ++i) Arrive();
  ArriveFrom("127.0.0.2");
  go_on_.set_value();
  const auto closed = [&] {
    size_t sum = 0;
    for (size_t i = 1; i <= kMany; ++i) sum += IsClosed(i);
    return sum;
  };
  EXPECT_TRUE(Eventually([&] { return closed() == kMany - kMost + 1; })) << closed();
  EXPECT_FALSE(IsClosed(kMany + 1));
}

TEST_F(TlsHandshakesTest, ThoseThatHaveLeftPushOutNobody) {
  HoldThread();
  for (size_t i = 0; i < 40; ++i) {
    Arrive();
    close(clients_.back());
    clients_.pop_back();
  }
  Arrive();
  go_on_.set_value();
  // When this one has its answer, those before it have been looked at.
  ArriveFrom("127.0.0.2");
  ASSERT_EQ(send(clients_.back(), "no hello", 8, 0), 8);
  const size_t last = clients_.size() - 1;
  EXPECT_TRUE(Eventually([&] {
    char bytes[64];
    return recv(clients_[last], bytes, sizeof(bytes), 0) > 0 || IsClosed(last);
  }));
  EXPECT_FALSE(IsClosed(last - 1));
}

}  // namespace
}  // namespace annulus::server
