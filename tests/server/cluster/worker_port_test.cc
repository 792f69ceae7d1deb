// Both ends of the line between a coordinator and its workers, over real connections.

#include "server/cluster/worker_port.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/cluster/control_line.h"
#include "server/cluster/dial.h"
#include "server/net/connection_acceptor.h"
#include "tests/server/certificates.h"
#include "tests/server/http2_peer.h"
#include "tests/server/raw_call.h"
#include "tests/server/test_server.h"
#include "tests/support/temp_directory.h"

namespace annulus::server {
namespace {

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr seconds kLimit{30};  // of what should take milliseconds

// Keeps what a link tells.
class KeepingSink final : public WorkerLinkSink {
 public:
  void OnMessage(std::string message) override {
    std::lock_guard lock(mutex_);
    messages_.push_back(std::move(message));
    changed_.notify_all();
  }
  void OnClosed(const absl::Status& why) override {
    std::lock_guard lock(mutex_);
    EXPECT_FALSE(closed_.has_value()) << "twice";
    closed_ = why;
    changed_.notify_all();
  }

  std::string Next() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kLimit, [&] { return !messages_.empty(); })) return "(none)";
    std::string message = std::move(messages_.front());
    messages_.pop_front();
    return message;
  }
  absl::Status Closed() {
    std::unique_lock lock(mutex_);
    const bool is = changed_.wait_for(lock, kLimit, [&] { return closed_.has_value(); });
    return is ? *closed_ : absl::UnknownError("it is not closed");
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> messages_;
  std::optional<absl::Status> closed_;
};

class KeepingSource final : public WorkerSourceSink {
 public:
  void OnWorker(std::unique_ptr<WorkerLink> link) override {
    std::lock_guard lock(mutex_);
    links_.push_back(std::move(link));
    changed_.notify_all();
  }
  void OnStopped(const absl::Status&) override {}

  std::unique_ptr<WorkerLink> Next() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kLimit, [&] { return !links_.empty(); })) return nullptr;
    std::unique_ptr<WorkerLink> link = std::move(links_.front());
    links_.pop_front();
    return link;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<WorkerLink>> links_;
};

class WorkerPortTest : public ::testing::Test {
 protected:
  void Listen() {
    config_.workers_listen = "127.0.0.1:0";
    config_.keepalive_time = seconds(15);
    auto port = WorkerPort::Listen(config_, log_);
    ASSERT_TRUE(port.ok()) << port.status();
    port_ = *std::move(port);
    config_.join = absl::StrCat("127.0.0.1:", port_->port());
  }

  // A line from a worker to the port, started at both ends.
  void Connect() {
    Listen();
    port_->Start(source_);
    auto dialled = DialCoordinator(config_);
    ASSERT_TRUE(dialled.ok()) << dialled.status();
    worker_ = *std::move(dialled);
    coordinator_ = source_.Next();
    ASSERT_NE(coordinator_, nullptr);
    worker_->Start(at_worker_);
    coordinator_->Start(at_coordinator_);
  }

  void WriteTls(const TestIdentity& own, const std::string& authorities) {
    directory_.Write("key.pem", own.key);
    directory_.Write("cert.pem", own.certificate);
    directory_.Write("ca.pem", authorities);
    config_.tls_certificate = directory_.path() / "cert.pem";
    config_.tls_key = directory_.path() / "key.pem";
    config_.tls_client_ca = directory_.path() / "ca.pem";
  }

  const testing::TempDirectory directory_;
  const Logger log_{LogLevel::kError};
  ServerConfig config_;
  KeepingSink at_worker_;
  KeepingSink at_coordinator_;
  std::unique_ptr<WorkerPort> port_;
  KeepingSource source_;  // with links, which the port outlives
  std::unique_ptr<WorkerLink> worker_;
  std::unique_ptr<WorkerLink> coordinator_;
};

TEST_F(WorkerPortTest, CarriesMessagesBothWaysInOrder) {
  Connect();
  EXPECT_THAT(coordinator_->peer(), HasSubstr("127.0.0.1:"));
  EXPECT_EQ(worker_->peer(), config_.join);
  const std::string large(5 << 20, 'x');
  for (int i = 0; i < 100; ++i) {
    worker_->Send(absl::StrCat("up ", i));
    coordinator_->Send(absl::StrCat("down ", i));
  }
  worker_->Send(large);
  coordinator_->Send(std::string());
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(at_coordinator_.Next(), absl::StrCat("up ", i));
    EXPECT_EQ(at_worker_.Next(), absl::StrCat("down ", i));
  }
  EXPECT_TRUE(at_coordinator_.Next() == large);
  EXPECT_EQ(at_worker_.Next(), "");
}

TEST_F(WorkerPortTest, WorkersThatDialBeforeTheyAreAwaitedAreKept) {
  Listen();
  auto early = DialCoordinator(config_);
  ASSERT_TRUE(early.ok()) << early.status();
  (*early)->Start(at_worker_);
  (*early)->Send("hello");
  port_->Start(source_);
  coordinator_ = source_.Next();
  ASSERT_NE(coordinator_, nullptr);
  coordinator_->Start(at_coordinator_);
  EXPECT_EQ(at_coordinator_.Next(), "hello");
}

TEST_F(WorkerPortTest, TheWorkerLearnsWhyTheCoordinatorCloses) {
  Connect();
  coordinator_->Send("last");
  const absl::Status why = absl::FailedPreconditionError("another build: 1, and here 2");
  coordinator_->Close(why);
  coordinator_.reset();
  EXPECT_EQ(at_worker_.Next(), "last");
  EXPECT_EQ(at_worker_.Closed(), why);
}

TEST_F(WorkerPortTest, TheCoordinatorLearnsThatTheWorkerCloses) {
  Connect();
  worker_->Send("last");
  worker_.reset();
  EXPECT_EQ(at_coordinator_.Next(), "last");
  EXPECT_EQ(at_coordinator_.Closed(), absl::OkStatus());
}

TEST_F(WorkerPortTest, AWorkerThatFailsIsNoGoodEnd) {
  Connect();
  worker_->Close(absl::ResourceExhaustedError("no memory"));
  EXPECT_EQ(at_worker_.Closed().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(at_coordinator_.Closed().code(), absl::StatusCode::kUnavailable);
}

TEST_F(WorkerPortTest, AMessageThatIsTooLongEndsTheLineAndNothingElse) {
  Connect();
  worker_->Send(std::string(kMostControlBytes + 1, 'x'));
  EXPECT_FALSE(at_coordinator_.Closed().ok());
  EXPECT_EQ(at_worker_.Closed().code(), absl::StatusCode::kResourceExhausted);
  // One who does not limit itself.
  RawCall raw(grpc::CreateChannel(config_.join, grpc::InsecureChannelCredentials()),
              kControlMethod);
  raw.Start();
  const std::unique_ptr<WorkerLink> link = source_.Next();
  ASSERT_NE(link, nullptr);
  KeepingSink sink;
  link->Start(sink);
  raw.Write(std::string(kMostControlBytes + 1, 'x'));
  EXPECT_FALSE(sink.Closed().ok());
  EXPECT_EQ(raw.Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  auto next = DialCoordinator(config_);
  EXPECT_TRUE(next.ok()) << next.status();
}

TEST_F(WorkerPortTest, AStoppedPortRefusesWithItsReason) {
  Listen();
  port_->Start(source_);
  port_->Stop(absl::FailedPreconditionError("the ring is full"));
  auto late = DialCoordinator(config_);
  ASSERT_TRUE(late.ok()) << late.status();
  (*late)->Start(at_worker_);
  EXPECT_EQ(at_worker_.Closed(), absl::FailedPreconditionError("the ring is full"));
}

TEST_F(WorkerPortTest, LinesEndWithThePort) {
  Connect();
  coordinator_.reset();
  port_.reset();
  EXPECT_EQ(at_worker_.Closed(), absl::OkStatus());
  EXPECT_EQ(DialCoordinator(config_).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(WorkerPortTest, StrangersAreToldWhatThePortIsFor) {
  Connect();
  const auto channel = grpc::CreateChannel(config_.join, grpc::InsecureChannelCredentials());
  const grpc::Status status = CallRaw(channel, "/annulus.v1.InferenceService/Generate", "x");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_THAT(status.error_message(), AllOf(HasSubstr("for workers"), HasSubstr("--listen")));
  // A browser, a scan that says nothing and leaves, bytes that mean nothing, frames that do.
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), std::string(),
        std::string(100'000, '\xAB'), std::string(kHttp2Preface) + std::string(100'000, '\0')}) {
    Http2Peer peer(config_.join, std::nullopt);
    if (!bytes.empty()) {
      peer.Send(bytes);
      EXPECT_TRUE(peer.WaitForClose(kLimit)) << bytes.substr(0, 8);
    }
  }
  worker_->Send("still there");
  EXPECT_EQ(at_coordinator_.Next(), "still there");
}

// Answers every connection with `bytes`, and closes it.
class Impostor {
 public:
  explicit Impostor(std::string bytes) : bytes_(std::move(bytes)) {
    auto acceptor = ConnectionAcceptor::Listen("127.0.0.1:0");
    EXPECT_TRUE(acceptor.ok());
    acceptor_ = *std::move(acceptor);
    acceptor_->Start(8, [this](int connection) {
      EXPECT_EQ(write(connection, bytes_.data(), bytes_.size()),
                static_cast<ssize_t>(bytes_.size()));
      shutdown(connection, SHUT_WR);
      open_.push_back(connection);  // a reset would overtake the bytes
    });
  }
  ~Impostor() {
    acceptor_.reset();
    for (const int connection : open_) close(connection);
  }
  std::string address() const { return absl::StrCat("127.0.0.1:", acceptor_->port()); }

 private:
  const std::string bytes_;
  std::vector<int> open_;  // of the acceptor's thread
  std::unique_ptr<ConnectionAcceptor> acceptor_;
};

TEST_F(WorkerPortTest, AWorkerSaysWhatItFindsInsteadOfACoordinator) {
  const Impostor web("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
  config_.join = web.address();
  absl::Status status = DialCoordinator(config_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("is a web server"));
  const Impostor closing("");
  config_.join = closing.address();
  EXPECT_EQ(DialCoordinator(config_).status().code(), absl::StatusCode::kUnavailable);
  TestServer server;
  server.Serve();
  config_.join = server.address();
  status = DialCoordinator(config_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("not that of --listen"));
}

TEST_F(WorkerPortTest, CertificatesNeedACommonName) {
  const TestIdentity ring = MakeIdentity("127.0.0.1");
  const TestIdentity client = MakeIdentity("client.example");
  const TestIdentity stranger = MakeIdentity("127.0.0.1");  // by another signer
  WriteTls(ring, ring.certificate + client.certificate);
  Connect();
  worker_->Send("hello");
  EXPECT_EQ(at_coordinator_.Next(), "hello");
  const testing::TempDirectory theirs;
  ServerConfig other = config_;
  const auto become = [&](const TestIdentity& identity) {
    theirs.Write("key.pem", identity.key);
    theirs.Write("cert.pem", identity.certificate);
    other.tls_certificate = theirs.path() / "cert.pem";
    other.tls_key = theirs.path() / "key.pem";
  };
  become(client);
  const absl::Status status = DialCoordinator(other).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("no name in common"));
  become(stranger);
  EXPECT_EQ(DialCoordinator(other).status().code(), absl::StatusCode::kUnavailable);
  other = config_;
  other.tls_certificate = other.tls_key = other.tls_client_ca = "";
  EXPECT_FALSE(DialCoordinator(other).ok()) << "without a certificate";
}

TEST_F(WorkerPortTest, FailedHandshakesAreLoggedWithTheirReason) {
  const TestIdentity ring = MakeIdentity("127.0.0.1");
  WriteTls(ring, ring.certificate);
  const std::string file = directory_.path() / "log";
  const int descriptor = open(file.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  ASSERT_GE(descriptor, 0);
  const absl::Cleanup close_file = [&] { close(descriptor); };
  const Logger log(LogLevel::kInfo, descriptor);
  config_.workers_listen = "127.0.0.1:0";
  config_.keepalive_time = seconds(15);
  const auto port = WorkerPort::Listen(config_, log).value();
  const std::string address = absl::StrCat("127.0.0.1:", port->port());
  const auto logged = [&] {
    log.Flush(kLimit);
    std::ifstream lines(file);
    return std::string(std::istreambuf_iterator<char>(lines), {});
  };
  Http2Peer plain(address, std::nullopt);
  plain.Send("GET / HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(plain.WaitForClose(kLimit));
  EXPECT_TRUE(Eventually([&] { return absl::StrContains(logged(), "TLS: http request"); }))
      << logged();
  const TestIdentity stranger = MakeIdentity("127.0.0.1");  // by another signer
  const testing::TempDirectory theirs;
  theirs.Write("key.pem", stranger.key);
  theirs.Write("cert.pem", stranger.certificate);
  ServerConfig other = config_;
  other.tls_certificate = theirs.path() / "cert.pem";
  other.tls_key = theirs.path() / "key.pem";
  other.join = address;
  EXPECT_FALSE(DialCoordinator(other).ok());
  EXPECT_TRUE(Eventually([&] { return absl::StrContains(logged(), "TLS: its certificate: "); }))
      << logged();
}

}  // namespace
}  // namespace annulus::server
