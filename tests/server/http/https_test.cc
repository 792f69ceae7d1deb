// The listener of scrapes and probes over TLS: silent and hostile clients, renewed certificates,
// and who may read metrics.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/pem.h"
#include "server/http/operator_http.h"
#include "tests/server/certificates.h"
#include "tests/server/http/tls_client.h"
#include "tests/server/test_server.h"
#include "tests/support/temp_directory.h"

namespace annulus::server {
namespace {

using std::chrono::steady_clock;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kScrapeOverTls[] = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";

class HttpsTest : public ::testing::Test {
 protected:
  HttpsTest() {
    signal(SIGPIPE, SIG_IGN);  // as the daemon does
    Write(own_);
    config_.metrics = "127.0.0.1:0";
    config_.metrics_tls = true;
    config_.tls_certificate = directory_.path() / "cert.pem";
    config_.tls_key = directory_.path() / "key.pem";
  }

  void Write(const TestIdentity& identity) {
    directory_.Write("cert.pem", identity.certificate);
    directory_.Write("key.pem", identity.key);
  }

  // With so many samples.
  void Start(int samples = 1) {
    auto credentials = Credentials::Open(config_);
    ASSERT_TRUE(credentials.ok()) << credentials.status();
    credentials_ = *std::move(credentials);
    auto files = TlsFiles::Open(config_);
    ASSERT_TRUE(files.ok()) << files.status();
    files_ = *std::move(files);
    const auto metrics = [samples] {
      MetricFamily family{"answer", "", MetricFamily::Type::kGauge, {}};
      family.samples.resize(static_cast<size_t>(samples));
      return std::vector<MetricFamily>{family};
    };
    auto responder =
        StartOperatorHttp(config_, *credentials_, files_,
                          {metrics, [] { return true; }, [] { return v1::SERVER_STATE_SERVING; }});
    ASSERT_TRUE(responder.ok()) << responder.status();
    responder_ = *std::move(responder);
  }

  std::string Ask(const std::string& bytes, const TestIdentity* client = nullptr) {
    TlsClient asker(responder_->port());
    return asker.Encrypt(own_.certificate, client) ? asker.Ask(bytes) : "no handshake";
  }

  const testing::TempDirectory directory_;
  TestIdentity own_ = MakeIdentity();
  ServerConfig config_;
  std::unique_ptr<Credentials> credentials_;
  std::shared_ptr<TlsFiles> files_;
  std::unique_ptr<HttpResponder> responder_;
};

TEST_F(HttpsTest, AnswersThroughTlsAlone) {
  Start();
  EXPECT_THAT(Ask(kScrapeOverTls), StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(Ask("GET /healthz HTTP/1.1\r\n\r\n"), HasSubstr("\r\n\r\nalive\n"));
  EXPECT_EQ(HttpGet(absl::StrCat("127.0.0.1:", responder_->port()), "/metrics"), "");
}

// A third each: silent, half a handshake, a whole one. As with plain connections.
TEST_F(HttpsTest, SilentClientsDelayNoScrape) {
  Start();
  const auto expect_soon = [this] {
    const auto start = steady_clock::now();
    EXPECT_THAT(Ask(kScrapeOverTls), StartsWith("HTTP/1.1 200 "));
    EXPECT_LT(steady_clock::now() - start, HttpResponder::kTimeToAsk);
  };
  std::vector<std::unique_ptr<TlsClient>> silent;
  for (int i = 0; i < 200; ++i) {
    silent.push_back(std::make_unique<TlsClient>(responder_->port()));
    if (i % 3 == 1) silent.back()->SendPlain(std::string("\x16\x03\x01\x02\x00\x01\x00", 7));
    if (i % 3 == 2) {
      EXPECT_TRUE(silent.back()->Encrypt(own_.certificate));
    }
    if (i % 50 == 0) expect_soon();
  }
  for (int i = 0; i < 5; ++i) expect_soon();
}

TEST_F(HttpsTest, AnAnswerLargerThanAllBuffersArrivesWhole) {
  constexpr int kSamples = 300'000;
  Start(kSamples);
  const std::string answer = Ask(kScrapeOverTls);
  constexpr int kHeadAndType = 6;
  EXPECT_EQ(std::count(answer.begin(), answer.end(), '\n'), kSamples + kHeadAndType);
}

TEST_F(HttpsTest, TheNextConnectionMeetsARenewedCertificate) {
  Start();
  EXPECT_THAT(Ask(kScrapeOverTls), StartsWith("HTTP/1.1 200 "));
  const TestIdentity old = std::exchange(own_, MakeIdentity());
  Write(own_);
  ASSERT_TRUE(files_->Reload().ok());
  EXPECT_THAT(Ask(kScrapeOverTls), StartsWith("HTTP/1.1 200 "));
  EXPECT_FALSE(TlsClient(responder_->port()).Encrypt(old.certificate));
}

// On an address that others reach.
TEST_F(HttpsTest, ACertificateTellsWhoMayReadMetrics) {
  const TestIdentity scraper = MakeIdentity("prometheus.example");
  const TestIdentity caller = MakeIdentity("app.example");
  const TestIdentity stranger = MakeIdentity("prometheus.example");
  directory_.Write("ca.pem", scraper.certificate + caller.certificate);
  config_.metrics = "0.0.0.0:0";
  config_.tls_client_ca = directory_.path() / "ca.pem";
  Start();
  EXPECT_THAT(Ask(kScrapeOverTls), StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(Ask("GET /readyz HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200 "))
      << "a probe has none";
  EXPECT_THAT(Ask(kScrapeOverTls, &scraper), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(Ask(kScrapeOverTls, &caller), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(Ask(kScrapeOverTls, &stranger), ::testing::Not(StartsWith("HTTP/1.1 200 ")));

  directory_.Write("tokens.yaml",
                   "tenants:\n  - name: acme\n    callers:\n"
                   "      - {certificate: app.example, roles: [generate]}\n"
                   "      - {certificate: prometheus.example, roles: [metrics]}\n");
  std::filesystem::permissions(directory_.path() / "tokens.yaml", std::filesystem::perms(0600));
  config_.tokens_file = directory_.path() / "tokens.yaml";
  Start();
  EXPECT_THAT(Ask(kScrapeOverTls, &scraper), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(Ask(kScrapeOverTls, &caller), StartsWith("HTTP/1.1 403 "));
}

}  // namespace
}  // namespace annulus::server
