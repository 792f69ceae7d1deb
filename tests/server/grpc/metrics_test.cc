// The Prometheus endpoint over HTTP.

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <map>
#include <mutex>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "tests/server/test_server.h"
#include "tests/support/temp_directory.h"

namespace annulus::server {
namespace {

class MetricsTest : public ::testing::Test {
 protected:
  std::map<std::string, double> Samples() { return ScrapeSamples(server_.metrics_address()); }

  TestServer server_{{"--metrics", "127.0.0.1:0"}};
};

TEST_F(MetricsTest, ShowsTheServersAndTheEngines) {
  auto samples = Samples();  // also while loading
  EXPECT_EQ(samples.count("annulus_num_requests_running{model_name=\"fake\"}"), 0u);
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
  for (const char* reason : {"headers", "memory", "slow", "room"}) {
    const auto cut_off = absl::StrCat("annulus_connections_cut_off_total{reason=\"", reason, "\"}");
    EXPECT_EQ(samples.at(cut_off), 0) << reason;
  }
  EXPECT_EQ(samples.at("annulus_reload_failed"), 0);
  EXPECT_EQ(samples.at("annulus_documents"), 1);
  EXPECT_GT(samples.at("annulus_document_memory_bytes"), 0);
  EXPECT_EQ(samples.at("annulus_memory_foreseen_bytes{part=\"weights\"}"), 2048);
  EXPECT_GE(samples.at("annulus_memory_foreseen_bytes{part=\"documents\"}"),
            samples.at("annulus_document_memory_bytes"));
  EXPECT_EQ(samples.at("annulus_process_resident_bytes"), 3000);
  EXPECT_EQ(samples.at("annulus_process_resident_most_bytes"), 4000);
  EXPECT_EQ(samples.at("annulus_num_requests_running{model_name=\"fake\"}"), 0);
  EXPECT_EQ(samples.at("annulus_spec_decode_num_draft_tokens_total{model_name=\"fake\"}"), 9);
  EXPECT_EQ(samples.at("annulus_spec_decode_num_accepted_tokens_total{model_name=\"fake\"}"), 6);
  EXPECT_EQ(
      samples.at("annulus_time_to_first_token_seconds_bucket{model_name=\"fake\",le=\"0.1\"}"), 1);
  EXPECT_EQ(
      samples.at("annulus_time_to_first_token_seconds_bucket{model_name=\"fake\",le=\"+Inf\"}"), 4);
  EXPECT_EQ(samples.at("annulus_time_to_first_token_seconds_count{model_name=\"fake\"}"), 4);
  EXPECT_EQ(samples.at("annulus_time_to_first_token_seconds_sum{model_name=\"fake\"}"), 7.5);
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

TEST_F(MetricsTest, CallsAreCountedByMethodAndCode) {
  server_.Serve();
  const auto count = [&](const std::string& method, const std::string& code) {
    const auto samples = Samples();
    const auto found = samples.find("annulus_grpc_requests_total{method=\"" + method +
                                    "\",code=\"" + code + "\"}");
    return found == samples.end() ? -1 : found->second;
  };
  EXPECT_EQ(count("StreamGenerate", "OK"), 0) << "before the first call";
  EXPECT_EQ(count("StreamGenerate", "INVALID_ARGUMENT"), -1);
  EXPECT_TRUE(ReadStream(*server_.inference(), TextStreamRequest("x")).status.ok());
  EXPECT_FALSE(ReadStream(*server_.inference(), TextStreamRequest("")).status.ok());
  grpc::ClientContext context;
  v1::GetDocumentResponse nothing;
  v1::GetDocumentRequest look;
  look.set_name("b");
  EXPECT_FALSE(server_.documents()->GetDocument(&context, look, &nothing).ok());
  EXPECT_EQ(count("StreamGenerate", "OK"), 1);
  EXPECT_EQ(count("StreamGenerate", "INVALID_ARGUMENT"), 1);
  EXPECT_EQ(count("GetDocument", "NOT_FOUND"), 1);
  EXPECT_EQ(count("Drain", "OK"), 0);
}

// Otherwise sums over both would not be right while requests come and go.
TEST_F(MetricsTest, OneSnapshotOfTheEngineGivesAllItsFigures) {
  server_.Serve();
  const auto samples = Samples();
  EXPECT_EQ(samples.at("annulus_memory_foreseen_bytes{part=\"requests\"}"),
            samples.at("annulus_fake_snapshot"));
}

TEST_F(MetricsTest, TellsHowKeysAndValuesAreCached) {
  server_.Serve();
  std::string found;
  for (const auto& [name, value] : Samples()) {
    if (value == 1 && name.find("annulus_cache_config_info{") == 0) found = name;
  }
  EXPECT_THAT(found, ::testing::AllOf(::testing::HasSubstr("block_size=\"64\""),
                                      ::testing::HasSubstr("cache_dtype=\"f32\""),
                                      ::testing::HasSubstr("kv_host_bytes=\"0\""),
                                      ::testing::HasSubstr("kv_disk_bytes=\"0\""),
                                      ::testing::HasSubstr("model_name=\"fake\"")));
}

TEST_F(MetricsTest, TellsOfTheProcessUnderTheNamesThatAllHave) {
  const auto samples = Samples();
  EXPECT_GT(samples.at("process_cpu_seconds_total"), 0);
  EXPECT_NEAR(samples.at("process_resident_memory_bytes"), static_cast<double>(ResidentBytes()),
              1e8);
  EXPECT_GT(samples.at("process_virtual_memory_bytes"),
            samples.at("process_resident_memory_bytes"));
  EXPECT_GE(samples.at("process_open_fds"), 5);
  EXPECT_GE(samples.at("process_max_fds"), samples.at("process_open_fds"));
  const double age = static_cast<double>(time(nullptr)) - samples.at("process_start_time_seconds");
  EXPECT_GE(age, -2);
  EXPECT_LT(age, 3600);
}

// Random traffic of every ending, and scrapes all the while.
TEST_F(MetricsTest, OfferedIsWhatBecameOfItAndWhatIsOpen) {
  server_.engine().set_scripter([](const RequestSpec& spec) {
    return spec.prompt.size() > 3 ? Endless(std::chrono::milliseconds(1)) : FakeScript();
  });
  server_.Serve();
  const auto sample = [](const std::map<std::string, double>& samples, const std::string& fate) {
    return samples.at("annulus_requests_settled_total{fate=\"" + fate + "\"}");
  };
  const auto expect_balance = [&] {
    const auto samples = Samples();
    EXPECT_EQ(samples.at("annulus_requests_offered_total"),
              samples.at("annulus_requests_open") + sample(samples, "completed") +
                  sample(samples, "rejected") + sample(samples, "cancelled") +
                  sample(samples, "failed"));
  };
  constexpr int kClients = 4, kCalls = 40;
  std::map<std::string, int> seen;
  // Calls whose time may have run out on the way: the server need not have heard of them.
  int unheard = 0;
  std::mutex mutex;
  std::vector<std::thread> clients;
  for (int client = 0; client < kClients; ++client) {
    clients.emplace_back([&, client] {
      std::mt19937 random(static_cast<uint32_t>(client));
      const auto stub = v1::InferenceService::NewStub(server_.NewChannel());
      for (int i = 0; i < kCalls; ++i) {
        grpc::ClientContext context;
        const int kind = static_cast<int>(random() % 4);
        std::string fate = "completed";
        bool heard = true;
        if (kind == 0) {
          fate = "rejected";
          EXPECT_FALSE(ReadStream(*stub, TextStreamRequest(""), &context).status.ok());
        } else if (kind == 1) {
          fate = "cancelled";
          context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(20));
          const auto read = ReadStream(*stub, TextStreamRequest("on and on"), &context);
          EXPECT_FALSE(read.status.ok());
          heard = !read.events.empty();
        } else if (kind == 2) {
          fate = "cancelled";
          const auto stream = stub->StreamGenerate(&context, TextStreamRequest("on and on"));
          v1::StreamGenerateResponse event;
          EXPECT_TRUE(stream->Read(&event));
          context.TryCancel();
          stream->Finish();
        } else {
          EXPECT_TRUE(ReadStream(*stub, TextStreamRequest("x"), &context).status.ok());
        }
        std::lock_guard lock(mutex);
        ++(heard ? seen[fate] : unheard);
      }
    });
  }
  for (int i = 0; i < 50; ++i) expect_balance();
  for (std::thread& client : clients) client.join();
  EXPECT_TRUE(Eventually([&] { return Samples().at("annulus_requests_open") == 0; }));
  expect_balance();
  const auto samples = Samples();
  for (const char* fate : {"completed", "rejected", "failed"}) {
    EXPECT_EQ(sample(samples, fate), seen[fate]) << fate;
  }
  EXPECT_GE(sample(samples, "cancelled"), seen["cancelled"]);
  EXPECT_LE(sample(samples, "cancelled"), seen["cancelled"] + unheard);
  // Nobody serves it any more.
  server_.server().RequestDrain(std::nullopt);
  EXPECT_FALSE(ReadStream(*server_.inference(), TextStreamRequest("x")).status.ok());
  EXPECT_EQ(sample(Samples(), "failed"), 1);
}

// Operators watch that overload is refused within 50 ms, which only the server's clock can tell.
TEST_F(MetricsTest, TheTimeOfRefusalsIsTold) {
  server_.Serve();
  EXPECT_EQ(Samples().at("annulus_refusal_seconds_count"), 0);
  EXPECT_TRUE(ReadStream(*server_.inference(), TextStreamRequest("x")).status.ok());
  server_.engine().set_submit_error(absl::OutOfRangeError("never fits"));
  EXPECT_FALSE(ReadStream(*server_.inference(), TextStreamRequest("x")).status.ok());
  // As for clients that read too slowly: that may take minutes, and is no refusal.
  server_.engine().set_submit_error(absl::ResourceExhaustedError("nothing was read"));
  EXPECT_FALSE(ReadStream(*server_.inference(), TextStreamRequest("x")).status.ok());
  // A tenant's request may wait long before it is known that its quota leaves no room.
  absl::Status quota = absl::ResourceExhaustedError("the tenant is full");
  quota.SetPayload(kLimitPayload, absl::Cord("kv_bytes"));
  quota.SetPayload(kRetryPayload, absl::Cord("750"));
  server_.engine().set_submit_error(quota);
  EXPECT_FALSE(ReadStream(*server_.inference(), TextStreamRequest("x")).status.ok());
  EXPECT_EQ(Samples().at("annulus_refusal_seconds_count"), 0);
  absl::Status full = absl::ResourceExhaustedError("the queue is full");
  full.SetPayload(kRetryPayload, absl::Cord("750"));
  server_.engine().set_submit_error(full);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(ReadStream(*server_.inference(), TextStreamRequest("x")).status.error_code(),
              grpc::StatusCode::RESOURCE_EXHAUSTED);
  }
  auto samples = Samples();
  EXPECT_EQ(samples.at("annulus_refusal_seconds_count"), 3);
  EXPECT_EQ(samples.at("annulus_refusal_seconds_bucket{le=\"+Inf\"}"), 3);
  EXPECT_EQ(samples.count("annulus_refusal_seconds_bucket{le=\"0.05\"}"), 1u);
  EXPECT_GT(samples.at("annulus_refusal_seconds_sum"), 0);
  // Work before the refusal counts: here the queue fills up while a text is tokenized.
  server_.engine().set_submit_error(absl::OkStatus());
  server_.engine().set_tokenize_delay(std::chrono::milliseconds(1000));
  std::thread late(
      [&] { EXPECT_FALSE(ReadStream(*server_.inference(), TextStreamRequest("x")).status.ok()); });
  EXPECT_TRUE(Eventually([&] { return server_.engine().tokenizing() == 1; }));
  server_.engine().set_submit_error(full);
  late.join();
  const double before = samples.at("annulus_refusal_seconds_bucket{le=\"0.25\"}");
  samples = Samples();
  EXPECT_EQ(samples.at("annulus_refusal_seconds_bucket{le=\"0.25\"}"), before);
  EXPECT_EQ(samples.at("annulus_refusal_seconds_count"), 4);
}

// However long its text would take to tokenize.
TEST_F(MetricsTest, WhoFindsTheQueueFullIsRefusedAtOnce) {
  server_.Serve();
  server_.engine().set_tokenize_delay(std::chrono::milliseconds(300));
  absl::Status full = absl::ResourceExhaustedError("the queue is full");
  full.SetPayload(kRetryPayload, absl::Cord("750"));
  server_.engine().set_submit_error(full);
  constexpr int kCalls = 5;
  for (int i = 0; i < kCalls; ++i) {
    const grpc::Status status = ReadStream(*server_.inference(), TextStreamRequest("x")).status;
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_EQ(status.error_message(), "the queue is full");
    EXPECT_EQ(Details(status).reason, "QUEUE_FULL");
    EXPECT_EQ(Details(status).retry_ms, 750);
  }
  const auto samples = Samples();
  EXPECT_EQ(samples.at("annulus_refusal_seconds_count"), kCalls);
  // None would be that fast if its text were tokenized first. Not all need be: the machine may be
  // busy with other things.
  EXPECT_GE(samples.at("annulus_refusal_seconds_bucket{le=\"0.25\"}"), 1);
  EXPECT_EQ(samples.at("annulus_requests_offered_total"), kCalls);
  EXPECT_EQ(samples.at("annulus_requests_settled_total{fate=\"rejected\"}"), kCalls);
  EXPECT_EQ(samples.at("annulus_requests_open"), 0);
}

// A client's retry policy repeats RESOURCE_EXHAUSTED only if that can help.
TEST_F(MetricsTest, AutomaticRetriesOfferWhatLastsOnce) {
  server_.Serve();
  constexpr int kAttempts = 3;
  grpc::ChannelArguments arguments;
  arguments.SetServiceConfigJSON(
      absl::StrCat(R"({"methodConfig": [{"name": [{"service": "annulus.v1.InferenceService"}],)",
                   R"("retryPolicy": {"maxAttempts": )", kAttempts,
                   R"(, "initialBackoff": "0.01s", "maxBackoff": "0.01s", "backoffMultiplier": 1,)",
                   R"("retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]})"));
  const auto stub = v1::InferenceService::NewStub(
      grpc::CreateCustomChannel(server_.address(), grpc::InsecureChannelCredentials(), arguments));
  const auto offers_of = [&](const absl::Status& refusal) {
    server_.engine().set_submit_error(refusal);
    const double before = Samples().at("annulus_requests_offered_total");
    grpc::ClientContext context;
    v1::GenerateResponse response;
    EXPECT_EQ(stub->Generate(&context, TextRequest("x"), &response).error_code(),
              grpc::StatusCode::RESOURCE_EXHAUSTED);
    return Samples().at("annulus_requests_offered_total") - before;
  };
  absl::Status quota = absl::ResourceExhaustedError("more than the tenant may ever have");
  quota.SetPayload(kLimitPayload, absl::Cord("kv_bytes"));
  EXPECT_EQ(offers_of(quota), 1);
  quota.SetPayload(kRetryPayload, absl::Cord("5"));  // now others of its requests take the room
  EXPECT_EQ(offers_of(quota), kAttempts);
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
  EXPECT_EQ(std::system(("promtool check metrics < '" + path + "'").c_str()), 0);
}

}  // namespace
}  // namespace annulus::server
