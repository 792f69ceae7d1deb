// A real Prometheus (Debian package prometheus) scrapes the daemon.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/integration/daemon.h"
#include "tests/server/certificates.h"
#include "tests/server/test_server.h"
#include "tests/support/temp_directory.h"

namespace annulus::server {
namespace {

using std::chrono::seconds;

// Of 127.0.0.1, as the system gives them out.
int FreePort() {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(bind(listener, generic, size), 0);
  EXPECT_EQ(getsockname(listener, generic, &size), 0);
  close(listener);
  return ntohs(address.sin_port);
}

class PrometheusTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("prometheus --version > /dev/null 2>&1") != 0) {
      GTEST_SKIP() << "prometheus (Debian package prometheus) is not here";
    }
  }

  // Starts Prometheus, which cannot choose a port itself: one that was free a moment ago, and
  // another if somebody was faster. `more`: lines for the job.
  void StartPrometheus(const std::string& target, const std::string& more = "") {
    std::ofstream(folder_ + "/prometheus.yml")
        << "global:\n  scrape_interval: 1s\nscrape_configs:\n  - job_name: annulus\n"
        << "    static_configs:\n      - targets: ['" << target << "']\n"
        << more;
    for (int turn = 0; turn < 5; ++turn) {
      address_ = absl::StrCat("127.0.0.1:", FreePort());
      prometheus_ = std::make_unique<Program>(std::vector<std::string>{
          "prometheus", "--config.file=" + folder_ + "/prometheus.yml",
          "--storage.tsdb.path=" + folder_ + "/data", "--web.listen-address=" + address_});
      if (prometheus_->WaitForOutput("Server is ready", seconds(30))) return;
    }
    FAIL() << "prometheus does not start: " << prometheus_->output();
  }

  std::string Query(const std::string& expression) {
    return HttpGet(address_, "/api/v1/query?query=" + expression);
  }

  const testing::TempDirectory directory_;
  const std::string folder_ = directory_.path();
  std::string address_;
  std::unique_ptr<Program> prometheus_;
};

TEST_F(PrometheusTest, ScrapesTheDaemon) {
  Daemon daemon({"--ranks", "2", "--kv-memory", "64MiB"});
  ASSERT_TRUE(daemon.WaitUntilReady()) << daemon.output();
  StartPrometheus(daemon.metrics_address());
  EXPECT_TRUE(
      Eventually([&] { return Query("up").find(",\"1\"]") != std::string::npos; }, seconds(30)))
      << Query("up");
  EXPECT_NE(Query("annulus_build_info").find("\"version\":\"0.1.0\""), std::string::npos);
  EXPECT_NE(Query("annulus_rank_up").find("\"rank\":\"1\""), std::string::npos)
      << Query("annulus_rank_up");
  EXPECT_NE(Query("annulus_model_info").find("\"value\":["), std::string::npos);
}

// With the token, on an address that others reach. Probes need none.
TEST_F(PrometheusTest, ScrapesOverTls) {
  const TestIdentity identity = MakeIdentity();
  directory_.Write("cert.pem", identity.certificate);
  directory_.Write("key.pem", identity.key);
  directory_.Write("token", "s3cret\n");
  Daemon daemon({"--kv-memory", "64MiB", "--metrics", "0.0.0.0:0", "--metrics-tls",
                 "--tls-certificate", folder_ + "/cert.pem", "--tls-key", folder_ + "/key.pem",
                 "--auth-token-file", folder_ + "/token"});
  ASSERT_TRUE(daemon.WaitUntilReady()) << daemon.output();
  EXPECT_EQ(daemon.output().find("open_to_others"), std::string::npos) << daemon.output();
  StartPrometheus(daemon.metrics_address(),
                  absl::StrCat("    scheme: https\n    tls_config: {ca_file: ", folder_,
                               "/cert.pem, server_name: localhost}\n",
                               "    authorization: {credentials_file: ", folder_, "/token}\n"));
  EXPECT_TRUE(
      Eventually([&] { return Query("up").find(",\"1\"]") != std::string::npos; }, seconds(30)))
      << Query("up");
  EXPECT_NE(Query("annulus_certificate_expiry_timestamp_seconds").find("tls-certificate"),
            std::string::npos);
}

TEST_F(PrometheusTest, PromtoolFindsNothingToBlame) {
  Daemon daemon;
  ASSERT_TRUE(daemon.WaitUntilReady()) << daemon.output();
  const std::string text = HttpGet(daemon.metrics_address(), "/metrics");
  const std::string path = folder_ + "/metrics.txt";
  std::ofstream out(path);
  for (size_t start = 0; start < text.size();) {
    const size_t end = text.find('\n', start);
    const std::string line = text.substr(start, end - start);
    if (line.find("annulus_") != std::string::npos) out << line << "\n";
    start = end == std::string::npos ? text.size() : end + 1;
  }
  out.close();
  const std::string command = "promtool check metrics < " + path;
  Program promtool({"sh", "-c", command});
  EXPECT_EQ(promtool.WaitForExit(seconds(30)), 0) << promtool.output();
}

}  // namespace
}  // namespace annulus::server
