// The listener of scrapes and probes: HTTP, silent and hostile clients.

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/http/http_responder.h"
#include "server/http/operator_http.h"
#include "server/metrics/metrics_text.h"
#include "tests/server/test_server.h"
#include "tests/support/temp_directory.h"

namespace annulus::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A plain TCP connection over IPv4 or IPv6 to this machine. Nothing blocks for longer than 10 s.
class Peer {
 public:
  explicit Peer(int port, bool six = false)
      : descriptor_(socket(six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval limit{10, 0};
    setsockopt(descriptor_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(descriptor_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    sockaddr_in four{};
    four.sin_family = AF_INET;
    four.sin_port = htons(static_cast<uint16_t>(port));
    four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sockaddr_in6 other{};
    other.sin6_family = AF_INET6;
    other.sin6_port = four.sin_port;
    other.sin6_addr = in6addr_loopback;
    const auto* target =
        six ? reinterpret_cast<const sockaddr*>(&other) : reinterpret_cast<const sockaddr*>(&four);
    connected_ = connect(descriptor_, target, six ? sizeof(other) : sizeof(four)) == 0;
  }
  ~Peer() { close(descriptor_); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  bool connected() const { return connected_; }
  void LimitReceiving(int bytes) {
    setsockopt(descriptor_, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
  }
  bool Send(const std::string& bytes) {
    return send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }
  // Up to the end of the connection.
  std::string ReadAll() {
    std::string text;
    char buffer[4096];
    for (ssize_t n; (n = recv(descriptor_, buffer, sizeof(buffer), 0)) > 0;) {
      text.append(buffer, static_cast<size_t>(n));
    }
    return text;
  }
  std::string Ask(const std::string& bytes) {
    Send(bytes);
    return ReadAll();
  }

 private:
  const int descriptor_;
  bool connected_ = false;
};

constexpr char kScrape[] = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";

class HttpTest : public ::testing::Test {
 protected:
  void Start(const std::string& address = "127.0.0.1:0", const std::string& body = "text\n") {
    auto responder = HttpResponder::Start(
        address, {{"/metrics", [body](const HttpRequest&) { return HttpAnswer{.body = body}; }}});
    ASSERT_TRUE(responder.ok()) << responder.status();
    responder_ = *std::move(responder);
  }
  std::string Ask(const std::string& bytes) { return Peer(responder_->port()).Ask(bytes); }

  std::unique_ptr<HttpResponder> responder_;
};

TEST_F(HttpTest, AnswersOneRequestAndParts) {
  Start();
  EXPECT_EQ(Ask(kScrape),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 5\r\n"
            "Connection: close\r\n\r\ntext\n");
  EXPECT_THAT(Ask("HEAD /metrics HTTP/1.1\r\n\r\n"),
              AllOf(HasSubstr("Content-Length: 5\r\n"), Not(HasSubstr("text\n"))));
  for (const char* good : {"GET /metrics?x=1 HTTP/1.0\r\n\r\n",
                           "GET http://a:1/metrics HTTP/1.1\r\nHost: a:1\r\n\r\n"}) {
    EXPECT_THAT(Ask(good), StartsWith("HTTP/1.1 200 ")) << good;
  }
}

TEST_F(HttpTest, WhatIsNotAnsweredIsToldWhy) {
  Start();
  EXPECT_THAT(Ask("GET /x HTTP/1.1\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 404 "), HasSubstr("known paths are /metrics")));
  EXPECT_THAT(Ask("POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello"),
              AllOf(StartsWith("HTTP/1.1 405 "), HasSubstr("Allow: GET, HEAD\r\n")));
  const std::string nul("GET /metrics\0 HTTP/1.1\r\n\r\n", 26);
  for (const std::string& bad :
       {std::string("\r\n\r\n"), std::string("GET /metrics\r\n\r\n"), nul,
        std::string("GET  /metrics HTTP/1.1\r\n\r\n"), std::string("GET metrics HTTP/1.1\r\n\r\n"),
        std::string("GET /metrics HTTP/1.1\n\n"), std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        std::string("\x16\x03\x01\x02\n\n"),
        std::string("GET /metrics HTTP/1.1\r\nno colon\r\n\r\n"),
        std::string("GET /metrics HTTP/1.1\r\n folded: x\r\n\r\n"),
        std::string("GET /metrics HTTP/1.1\r\nAuthorization: a\r\nauthorization: b\r\n\r\n")}) {
    EXPECT_THAT(Ask(bad), StartsWith("HTTP/1.1 400 ")) << bad;
  }
  const std::string start = "GET /metrics HTTP/1.1\r\nX: ";
  const size_t room = HttpResponder::kMostHeadBytes - start.size() - 4;
  EXPECT_THAT(Ask(start + std::string(room, 'x') + "\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(Ask(start + std::string(room + 1, 'x') + "\r\n\r\n"), StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(Ask(start + std::string(1 << 20, 'x')), Not(StartsWith("HTTP/1.1 200")));
}

// What a scrape took at most while these connections were open.
class SilentClientsTest : public HttpTest, public ::testing::WithParamInterface<bool> {
 protected:
  milliseconds Scrape() {
    const auto start = steady_clock::now();
    Peer peer(responder_->port(), GetParam());
    EXPECT_THAT(peer.Ask(kScrape), StartsWith("HTTP/1.1 200 "));
    return std::chrono::duration_cast<milliseconds>(steady_clock::now() - start);
  }
};

TEST_P(SilentClientsTest, DelayNoScrape) {
  Start(GetParam() ? "[::1]:0" : "127.0.0.1:0");
  if (GetParam() && !Peer(responder_->port(), true).connected()) {
    GTEST_SKIP() << "this machine has no IPv6";
  }
  std::vector<std::unique_ptr<Peer>> silent;
  for (int i = 0; i < 200; ++i) {
    silent.push_back(std::make_unique<Peer>(responder_->port(), GetParam()));
    ASSERT_TRUE(silent.back()->connected());
    if (i % 3 == 1) silent.back()->Send("GET /metrics HT");
    if (i % 50 == 0) {
      EXPECT_LT(Scrape(), HttpResponder::kTimeToAsk);
    }
  }
  for (int i = 0; i < 5; ++i) EXPECT_LT(Scrape(), HttpResponder::kTimeToAsk);
}

INSTANTIATE_TEST_SUITE_P(Both, SilentClientsTest, ::testing::Values(false, true),
                         [](const auto& info) { return info.param ? "IPv6" : "IPv4"; });

TEST_F(HttpTest, TheOldestSilentConnectionMakesRoom) {
  Start();
  std::vector<std::unique_ptr<Peer>> silent;
  for (size_t i = 0; i <= HttpResponder::kMostConnections; ++i) {
    silent.push_back(std::make_unique<Peer>(responder_->port()));
  }
  EXPECT_EQ(silent.front()->ReadAll(), "");  // closed; else this takes 2 s
  EXPECT_THAT(silent.back()->Ask(kScrape), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpTest, TricklingDoesNotPutOffTheDeadline) {
  Start();
  const auto start = steady_clock::now();
  Peer peer(responder_->port());
  while (peer.Send("x") && steady_clock::now() - start < seconds(20)) {
    std::this_thread::sleep_for(milliseconds(50));
  }
  EXPECT_GE(steady_clock::now() - start, HttpResponder::kTimeToAsk);
  EXPECT_LT(steady_clock::now() - start, seconds(15));
}

// An answer larger than all buffers, for clients of which one does not read.
TEST_F(HttpTest, AReaderThatStopsHoldsUpNobody) {
  const std::string body(size_t{16} << 20, 'x');
  Start("127.0.0.1:0", body);
  Peer stopped(responder_->port());
  stopped.LimitReceiving(4096);
  stopped.Send(kScrape);
  const std::string answer = Ask(kScrape);
  EXPECT_EQ(answer.substr(answer.size() - body.size()), body);
}

// 128 scrapers that did not read delayed others by 2.6 s: each had a page of metrics of its own.
TEST_F(HttpTest, RequestsThatHaveComeAreOneRound) {
  std::promise<void> begun, go_on;
  std::vector<uint64_t> rounds;
  auto responder =
      HttpResponder::Start("127.0.0.1:0", {{"/metrics", [&](const HttpRequest& request) {
                                              rounds.push_back(request.round);
                                              if (rounds.size() == 1) {
                                                begun.set_value();
                                                go_on.get_future().wait();
                                              }
                                              return HttpAnswer{.body = "text\n"};
                                            }}});
  ASSERT_TRUE(responder.ok()) << responder.status();
  responder_ = *std::move(responder);
  Peer first(responder_->port());
  first.Send(kScrape);
  begun.get_future().wait();
  std::vector<std::unique_ptr<Peer>> peers;
  for (int i = 0; i < 100; ++i) {
    peers.push_back(std::make_unique<Peer>(responder_->port()));
    peers.back()->Send(kScrape);
  }
  go_on.set_value();
  for (const auto& peer : peers) EXPECT_THAT(peer->ReadAll(), HasSubstr("text\n"));
  responder_.reset();
  ASSERT_EQ(rounds.size(), 101u);
  EXPECT_NE(rounds[1], rounds[0]) << "what comes later is answered freshly";
  EXPECT_LE(rounds.back() - rounds[1], 20u);
}

TEST_F(HttpTest, StopsAtOnceWhateverIsOpen) {
  Start();
  std::vector<std::unique_ptr<Peer>> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(std::make_unique<Peer>(responder_->port()));
  const auto start = steady_clock::now();
  responder_.reset();
  EXPECT_LT(steady_clock::now() - start, HttpResponder::kTimeToAsk);
}

class OperatorHttpTest : public ::testing::Test {
 protected:
  // The first line of what a scrape gets from a listener on `address`.
  std::string Scrape(const std::string& address, const std::string& header = "") {
    const std::string answer = Ask(address, "/metrics", header);
    return answer.substr(0, answer.find("\r\n"));
  }

  // The whole answer.
  std::string Ask(const std::string& address, const std::string& path,
                  const std::string& header = "") {
    ServerConfig config;
    config.metrics = address;
    config.auth_token_file = tokens_ ? (directory_.path() / "user").string() : "";
    config.admin_token_file = tokens_ ? (directory_.path() / "admin").string() : "";
    directory_.Write("user", "s3cret\n");
    directory_.Write("admin", "r00t\n");
    const auto credentials = Credentials::Open(config);
    EXPECT_TRUE(credentials.ok()) << credentials.status();
    auto responder = StartOperatorHttp(config, **credentials, nullptr,
                                       {[] { return std::vector<MetricFamily>(); },
                                        [this] { return alive_; }, [this] { return state_; }});
    EXPECT_TRUE(responder.ok()) << responder.status();
    if (!responder.ok()) return "";
    return Peer((*responder)->port())
        .Ask(absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: a\r\n", header, "\r\n"));
  }

  bool tokens_ = true;
  bool alive_ = true;
  v1::ServerState state_ = v1::SERVER_STATE_SERVING;
  const testing::TempDirectory directory_;
};

TEST_F(OperatorHttpTest, ElsewhereThanOnLoopbackTheTokenIsNeeded) {
  EXPECT_EQ(Scrape("127.0.0.1:0"), "HTTP/1.1 200 OK");
  EXPECT_EQ(Scrape("0.0.0.0:0"), "HTTP/1.1 401 Unauthorized");
  EXPECT_EQ(Scrape("0.0.0.0:0", "Authorization: Bearer wrong\r\n"), "HTTP/1.1 401 Unauthorized");
  EXPECT_EQ(Scrape("0.0.0.0:0", "authorization: Bearer s3cret\r\n"), "HTTP/1.1 200 OK");
  EXPECT_EQ(Scrape("0.0.0.0:0", "Authorization: Bearer r00t\r\n"), "HTTP/1.1 200 OK");
  tokens_ = false;
  EXPECT_EQ(Scrape("0.0.0.0:0"), "HTTP/1.1 200 OK");
}

TEST_F(OperatorHttpTest, ProbesNeedNoTokenAndGetAVerdict) {
  EXPECT_THAT(Ask("0.0.0.0:0", "/healthz"),
              AllOf(StartsWith("HTTP/1.1 200 "), HasSubstr("\nalive\n")));
  EXPECT_THAT(Ask("0.0.0.0:0", "/readyz"),
              AllOf(StartsWith("HTTP/1.1 200 "), HasSubstr("\nserving\n")));
  alive_ = false;
  EXPECT_THAT(Ask("127.0.0.1:0", "/healthz"), StartsWith("HTTP/1.1 503 Service Unavailable"));
  for (const auto& [state, name] : {std::pair(v1::SERVER_STATE_LOADING, "loading"),
                                    std::pair(v1::SERVER_STATE_DRAINING, "draining"),
                                    std::pair(v1::SERVER_STATE_UNHEALTHY, "unhealthy")}) {
    state_ = state;
    EXPECT_THAT(Ask("127.0.0.1:0", "/readyz"),
                AllOf(StartsWith("HTTP/1.1 503 "), HasSubstr(absl::StrCat("\n", name, "\n"))));
  }
}

}  // namespace
}  // namespace annulus::server
