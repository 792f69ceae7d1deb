#include "client/connection.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "client/failure.h"
#include "tests/client/certificate.h"
#include "tests/client/fake_server.h"
#include "tests/support/temp_directory.h"

namespace annulus::client {
namespace {

using testing::FakeServer;
using ::testing::HasSubstr;

class ConnectionTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
  }

  grpc::Status ListModels(const ConnectionOptions& options) {
    const auto connection = Connection::Open(options, cancellation_);
    EXPECT_TRUE(connection.ok()) << connection.status();
    v1::ListModelsResponse response;
    Call call(**connection);
    return (*connection)->models().ListModels(call.context(), v1::ListModelsRequest(), &response);
  }

  Cancellation cancellation_;
  const testing::TempDirectory directory_;
  const std::filesystem::path& folder_ = directory_.path();
};

TEST(ServerAddress, GetsTheDefaultPort) {
  EXPECT_EQ(WithDefaultPort("host"), "host:50051");
  EXPECT_EQ(WithDefaultPort("host:7"), "host:7");
  EXPECT_EQ(WithDefaultPort("[::1]"), "[::1]:50051");
  EXPECT_EQ(WithDefaultPort("[::1]:7"), "[::1]:7");
  EXPECT_EQ(WithDefaultPort("unix:/run/annulus"), "unix:/run/annulus");
}

TEST_F(ConnectionTest, RefusesWhatIsNoAddress) {
  for (const char* server :
       {"host:abc", "host:", "host:0", "host:65536", "host:-1", "::x", "::1", "::1:50051",
        "fe80::1", "[::1:7", "http://host:50051", "https://host:1"}) {
    const auto connection = Connection::Open({.server = server}, cancellation_);
    ASSERT_FALSE(connection.ok()) << server;
    EXPECT_THAT(connection.status().message(), HasSubstr(server));
    EXPECT_THAT(connection.status().message(), HasSubstr("is not HOST:PORT, for example 127."));
  }
  EXPECT_THAT(Connection::Open({.server = "::1"}, cancellation_).status().message(),
              HasSubstr("or [::1]:50051: an IPv6 address needs brackets"));
  for (const char* server : {"host", "host:1", "[::1]", "[::1]:65535", "unix:/run/annulus"}) {
    EXPECT_TRUE(Connection::Open({.server = server}, cancellation_).ok()) << server;
  }
}

TEST(ServerAddress, IsLocalOnLoopbackAndSockets) {
  EXPECT_TRUE(IsLocalServer("127.0.0.1:50051"));
  EXPECT_TRUE(IsLocalServer("localhost:1"));
  EXPECT_TRUE(IsLocalServer("[::1]:1"));
  EXPECT_TRUE(IsLocalServer("unix:/run/annulus"));
  EXPECT_FALSE(IsLocalServer("localhost.example.org:1"));
  EXPECT_FALSE(IsLocalServer("127.example.org:1"));
  EXPECT_FALSE(IsLocalServer("127.0.0.1.example.org:1"));
  EXPECT_FALSE(IsLocalServer("10.0.0.1:1"));
}

TEST_F(ConnectionTest, SendsTheToken) {
  FakeServer server;
  EXPECT_TRUE(ListModels({.server = server.address(), .token = "secret"}).ok());
  EXPECT_EQ(server.authorization(), "Bearer secret");
  EXPECT_TRUE(ListModels({.server = server.address()}).ok());
  EXPECT_EQ(server.authorization(), "");
}

// A daemon that is stopped: the system takes its connections, and nobody answers.
TEST_F(ConnectionTest, AServerThatDoesNotAnswerIsGivenUpSoonAndSaysWhatToDo) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(listener, 8), 0);
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string server = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  for (const bool tls : {false, true}) {
    // A busy machine may be late once. By itself gRPC waits for a second at least.
    auto soonest = std::chrono::steady_clock::duration::max();
    const auto ask = [&] {
      const auto begun = std::chrono::steady_clock::now();
      grpc::Status status = ListModels(
          {.server = server, .connect_timeout = std::chrono::milliseconds(200), .tls = tls});
      soonest = std::min(soonest, std::chrono::steady_clock::now() - begun);
      return status;
    };
    const grpc::Status status = ask();
    for (int turn = 0; turn < 4 && soonest >= std::chrono::milliseconds(900); ++turn) ask();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_THAT(DescribeFailure(status, server),
                HasSubstr(tls ? "never answered it. If annulusd there speaks without TLS, leave out"
                              : "does not answer"));
    EXPECT_LT(soonest, std::chrono::milliseconds(900));
  }
  close(listener);
}

TEST_F(ConnectionTest, TrustsTheGivenAuthority) {
  const testing::Certificate own = testing::MakeCertificate("annulus.test");
  grpc::SslServerCredentialsOptions ssl;
  ssl.pem_key_cert_pairs.push_back({own.key, own.certificate});
  FakeServer server(grpc::SslServerCredentials(ssl));
  ConnectionOptions options{.server = server.address(),
                            .timeout = std::chrono::seconds(10),
                            .tls_ca_file = Write("ca.pem", own.certificate),
                            .tls_server_name = "annulus.test"};
  EXPECT_TRUE(ListModels(options).ok());

  options.tls_server_name = "other.test";
  EXPECT_FALSE(ListModels(options).ok());
  options.tls_server_name = "annulus.test";
  options.tls_ca_file = Write("other.pem", testing::MakeCertificate("annulus.test").certificate);
  EXPECT_FALSE(ListModels(options).ok());
  EXPECT_FALSE(ListModels({.server = server.address()}).ok()) << "without TLS";
}

TEST_F(ConnectionTest, ShowsItsOwnCertificate) {
  const testing::Certificate own = testing::MakeCertificate("annulus.test");
  const testing::Certificate client = testing::MakeCertificate("client.test");
  grpc::SslServerCredentialsOptions ssl(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  ssl.pem_key_cert_pairs.push_back({own.key, own.certificate});
  ssl.pem_root_certs = client.certificate;
  FakeServer server(grpc::SslServerCredentials(ssl));
  ConnectionOptions options{.server = server.address(),
                            .timeout = std::chrono::seconds(10),
                            .tls_ca_file = Write("ca.pem", own.certificate),
                            .tls_server_name = "annulus.test"};
  EXPECT_FALSE(ListModels(options).ok());
  options.tls_cert_file = Write("client.pem", client.certificate);
  options.tls_key_file = Write("client.key", client.key);
  EXPECT_TRUE(ListModels(options).ok());
}

TEST_F(ConnectionTest, RefusesBadOptions) {
  const auto half = Connection::Open({.tls_cert_file = "a.pem"}, cancellation_);
  EXPECT_EQ(half.status().code(), absl::StatusCode::kInvalidArgument);
  const auto missing = Connection::Open({.tls_ca_file = folder_ / "missing.pem"}, cancellation_);
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("--tls-ca"));
  EXPECT_FALSE(Connection::Open({.server = ""}, cancellation_).ok());
}

TEST_F(ConnectionTest, CancelledCallsFailAtOnce) {
  FakeServer server;
  EXPECT_FALSE(cancellation_.Cancel()) << "nothing was in flight";
  EXPECT_TRUE(cancellation_.cancelled());
  EXPECT_EQ(ListModels({.server = server.address()}).error_code(), grpc::StatusCode::CANCELLED);
}

}  // namespace
}  // namespace annulus::client
