// The Prometheus endpoint over HTTP.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "tests/server/test_server.h"
#include "tests/support/temp_directory.h"

namespace annulus {
namespace {

class MetricsTest : public ::testing::Test {
 protected:
  std::map<std::string, double> Samples() { return ScrapeSamples(server_.metrics_address()); }

  TestServer server_{{"--metrics", "127.0.0.1:0"}};
};

TEST_F(MetricsTest, ShowsTheServersAndTheEngines) {
  auto samples = Samples();  // also while loading
  EXPECT_EQ(samples.count("annulus_num_requests_running"), 0u);
  EXPECT_EQ(samples.at("annulus_build_info{version=\"0.1.0\"}"), 1);
  server_.Serve();
  EXPECT_EQ(ReadStream(*server_.inference(), TextStreamRequest("")).status.error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  ASSERT_TRUE(server_.Upload("a", "text").ok());
  ASSERT_TRUE(server_.Upload("a", "text").ok());
  EXPECT_FALSE(server_.Upload("a", "other").ok());
  // Clients look whether a document is there before they upload it.
  grpc::ClientContext context;
  v1::GetDocumentRequest look;
  look.set_name("b");
  v1::GetDocumentResponse nothing;
  EXPECT_EQ(server_.documents()->GetDocument(&context, look, &nothing).error_code(),
            grpc::StatusCode::NOT_FOUND);
  grpc::ClientContext delete_context;
  v1::DeleteDocumentRequest remove;
  remove.set_name("b");
  v1::DeleteDocumentResponse deleted;
  EXPECT_EQ(server_.documents()->DeleteDocument(&delete_context, remove, &deleted).error_code(),
            grpc::StatusCode::NOT_FOUND);
  samples = Samples();
  EXPECT_EQ(samples.at("annulus_request_errors_total{code=\"NOT_FOUND\"}"), 1);
  EXPECT_EQ(samples.at("annulus_request_errors_total{code=\"INVALID_ARGUMENT\"}"), 1);
  EXPECT_EQ(samples.at("annulus_request_errors_total{code=\"ALREADY_EXISTS\"}"), 1);
  EXPECT_EQ(samples.at("annulus_request_errors_total{code=\"INTERNAL\"}"), 0);
  EXPECT_EQ(samples.at("annulus_document_uploads_total{outcome=\"stored\"}"), 1);
  EXPECT_EQ(samples.at("annulus_document_uploads_total{outcome=\"unchanged\"}"), 1);
  EXPECT_EQ(samples.at("annulus_document_uploads_total{outcome=\"failed\"}"), 1);
  EXPECT_EQ(samples.at("annulus_log_lines_dropped_total{reason=\"blocked\"}"), 0);
  EXPECT_EQ(samples.at("annulus_log_lines_dropped_total{reason=\"rate\"}"), 0);
  EXPECT_EQ(samples.at("annulus_quota_refusals_total{quota=\"running_requests\"}"), 0);
  EXPECT_EQ(samples.at("annulus_quota_refusals_total{quota=\"document_bytes\"}"), 0);
  EXPECT_EQ(samples.at("annulus_reload_failed"), 0);
  EXPECT_EQ(samples.at("annulus_documents"), 1);
  EXPECT_GT(samples.at("annulus_document_memory_bytes"), 0);
  EXPECT_EQ(samples.at("annulus_memory_foreseen_bytes{part=\"weights\"}"), 2048);
  EXPECT_GE(samples.at("annulus_memory_foreseen_bytes{part=\"documents\"}"),
            samples.at("annulus_document_memory_bytes"));
  EXPECT_EQ(samples.at("annulus_process_resident_bytes"), 3000);
  EXPECT_EQ(samples.at("annulus_process_resident_most_bytes"), 4000);
  EXPECT_EQ(samples.at("annulus_num_requests_running"), 0);
  EXPECT_EQ(samples.at("annulus_time_to_first_token_seconds_bucket{le=\"0.1\"}"), 1);
  EXPECT_EQ(samples.at("annulus_time_to_first_token_seconds_bucket{le=\"+Inf\"}"), 4);
  EXPECT_EQ(samples.at("annulus_time_to_first_token_seconds_count"), 4);
  EXPECT_EQ(samples.at("annulus_time_to_first_token_seconds_sum"), 7.5);
}

TEST_F(MetricsTest, SaysWhatTheServerIsDoing) {
  const auto state = [&] {
    std::string now;
    for (const auto& [name, value] : Samples()) {
      if (value == 1 && name.find("annulus_server_state") == 0) now += name;
    }
    return now;
  };
  EXPECT_EQ(state(), "annulus_server_state{state=\"loading\"}");
  EXPECT_EQ(Samples().count("annulus_rank_up{rank=\"0\"}"), 0u);
  server_.Serve();
  EXPECT_EQ(state(), "annulus_server_state{state=\"serving\"}");
  server_.engine().set_healthy(false);
  EXPECT_EQ(state(), "annulus_server_state{state=\"unhealthy\"}");
  server_.server().RequestDrain(std::nullopt);
  EXPECT_EQ(state(), "annulus_server_state{state=\"draining\"}");
}

TEST_F(MetricsTest, RanksThatNeverCameUpAreDown) {
  server_.server().CannotServe(absl::UnavailableError("no device"));
  const auto samples = Samples();
  EXPECT_EQ(samples.at("annulus_server_state{state=\"unhealthy\"}"), 1);
  EXPECT_EQ(samples.at("annulus_server_state{state=\"loading\"}"), 0);
  EXPECT_EQ(samples.at("annulus_rank_up{rank=\"0\"}"), 0);
}

TEST_F(MetricsTest, CountsGenerationsUnderWay) {
  server_.engine().set_scripter([](const RequestSpec&) {
    FakeScript script;
    script.deltas = {"x"};
    script.endless = true;
    script.interval = std::chrono::milliseconds(1);
    return script;
  });
  server_.Serve();
  const auto stub = server_.inference();
  grpc::ClientContext context;
  const auto reader = stub->StreamGenerate(&context, TextStreamRequest("x"));
  v1::StreamGenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(Samples().at("annulus_active_generations"), 1);
  context.TryCancel();
  EXPECT_TRUE(Eventually([&] { return Samples().at("annulus_active_generations") == 0; }));
  EXPECT_EQ(Samples().at("annulus_request_errors_total{code=\"CANCELLED\"}"), 1);
}

TEST_F(MetricsTest, PromtoolAgrees) {
  if (std::system("promtool --version > /dev/null 2>&1") != 0) {
    GTEST_SKIP() << "promtool (Debian package prometheus) is not here";
  }
  server_.Serve();
  const testing::TempDirectory directory;
  const std::string path = directory.path() / "metrics.txt";
  // The HTTP library's own families are not ours to name.
  std::istringstream lines(Scrape(server_.metrics_address()));
  std::ofstream out(path);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("annulus_") != std::string::npos) out << line << "\n";
  }
  out.close();
  EXPECT_EQ(std::system(("promtool check metrics < " + path).c_str()), 0);
}

}  // namespace
}  // namespace annulus
