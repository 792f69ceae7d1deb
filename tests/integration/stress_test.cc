// Many clients that do all that clients do, for better or worse, against the daemon: afterwards
// nothing is lost, and everything is as before. ANNULUS_STRESS_REQUESTS and ANNULUS_STRESS_SEED
// override the defaults, for long runs and to repeat a failure.

#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/sanitizers.h"
#include "tests/integration/daemon.h"
#include "tests/integration/stress_client.h"
#include "tests/server/test_server.h"

namespace annulus::server {
namespace {

using std::chrono::seconds;

constexpr int kClients = 6;
constexpr int kRanks = 3;
// The thread sanitizer's build looks for races, which a few requests of every kind show, and the
// address sanitizer's for what is used too late; what stays behind is Release's to see.
constexpr int kRequests = kSanitized ? 48 : 200;
// So that what is set up once is there.
constexpr int kWarmUp = kThreadSanitizer ? 0 : 60;
constexpr int64_t kDocumentBytes = kSanitized ? 3'000 : 20'000;  // each is a token
constexpr size_t kHeapSlack = size_t{24} << 20;

// gRPC starts a thread of its own executor when its queue is long, up to two for each processor,
// and keeps it; a thread lost with each request of one kind would be more.
size_t ThreadSlack() { return 2 * std::thread::hardware_concurrency(); }

int64_t Variable(const char* name, int64_t fallback) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::stoll(value) : fallback;
}

// What must be the same before and after. Pages of keys and values that were once written stay
// resident, so they do not count.
struct Footprint {
  size_t threads = 0;
  size_t descriptors = 0;
  size_t memory = 0;
};

class StressTest : public ::testing::Test {
 protected:
  void SetUp() override {
    daemon_ = std::make_unique<Daemon>(
        std::vector<std::string>{"--ranks", absl::StrCat(kRanks), "--kv-memory", "128MiB",
                                 // so that the document takes the whole ring
                                 "--tokens-per-rank", absl::StrCat(kDocumentBytes / 10),
                                 "--max-running", "8", "--slow-reader-timeout", "500ms"});
    ASSERT_TRUE(daemon_->WaitUntilReady()) << daemon_->output();
    metrics_address_ = daemon_->metrics_address();
    world_.address = daemon_->address();
    // Somebody must read its log, or it would wait.
    reader_ = std::thread([this] { daemon_->WaitForOutput(" drained", std::chrono::hours(1)); });
    world_.name = "records";
    world_.document = bench::MakeDemoDocument({.bytes = kDocumentBytes}).value();
    world_.limit = seconds(kSanitized ? 240 : 60);
    world_.long_answer = kThreadSanitizer ? 60 : 600;
    Put(world_.name, world_.document.text);
    for (int i = 0; i < 3; ++i) {
      world_.followers.push_back(absl::StrCat("follower-", i));
      Put(world_.followers.back(),
          absl::StrCat("Nothing is said here. ", std::string(500 * i, '.')));
    }
  }

  void TearDown() override {
    daemon_->Signal(SIGTERM);
    if (reader_.joinable()) reader_.join();
    EXPECT_EQ(daemon_->WaitForExit(seconds(30)), 0) << daemon_->output();
  }

  void Put(const std::string& name, const std::string& text) {
    const auto stub = v1::DocumentService::NewStub(
        grpc::CreateChannel(world_.address, grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    const grpc::Status status = UploadText(*stub, context, name, text, 4096);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }

  // All clients at once; their connections end with them.
  void Run(int requests, uint64_t seed) {
    std::vector<std::unique_ptr<StressClient>> clients;
    std::vector<std::thread> threads;
    for (int i = 0; i < kClients; ++i) {
      clients.push_back(std::make_unique<StressClient>(world_, i, seed));
      threads.emplace_back(
          [client = clients.back().get(), share = requests / kClients] { client->Run(share); });
    }
    std::atomic<bool> running = true;
    std::thread accountant([&] {
      while (running) ExpectBalance(Samples());
    });
    std::map<std::string, int> endings;
    for (int i = 0; i < kClients; ++i) {
      threads[i].join();
      for (const auto& [ending, count] : clients[i]->endings()) endings[ending] += count;
      for (const std::string& loss : clients[i]->lost()) ADD_FAILURE() << "lost: " << loss;
    }
    running = false;
    accountant.join();
    for (const auto& [ending, count] : endings) std::cout << ending << ": " << count << "; ";
    std::cout << std::endl;
  }

  std::map<std::string, double> Samples() { return ScrapeSamples(metrics_address_); }

  static double SumOf(const std::map<std::string, double>& samples, const std::string& name,
                      const std::string& labels) {
    double sum = 0;
    for (int rank = 0; rank < kRanks; ++rank) {
      sum += samples.at(absl::StrCat(name, "{pool=\"rank", rank, "-pages\"", labels, "}"));
    }
    return sum;
  }

  // By requests: in use or reserved for them.
  static double HeldIn(const std::map<std::string, double>& samples) {
    return SumOf(samples, "annulus_pool_bytes", ",state=\"held\"") +
           SumOf(samples, "annulus_pool_bytes", ",state=\"reserved\"");
  }

  // At any moment, whatever is under way.
  static void ExpectBalance(const std::map<std::string, double>& samples) {
    double known = samples.at("annulus_requests_open");
    for (const char* fate : {"completed", "rejected", "cancelled", "failed"}) {
      known += samples.at(absl::StrCat("annulus_requests_settled_total{fate=\"", fate, "\"}"));
    }
    EXPECT_EQ(samples.at("annulus_requests_offered_total"), known);
  }

  void ExpectNothingHeld() {
    EXPECT_TRUE(Eventually(
        [&] {
          auto samples = Samples();
          return samples["annulus_active_generations"] == 0 &&
                 samples.at("annulus_num_requests_running{model_name=\"recall\"}") == 0 &&
                 samples.at("annulus_num_requests_waiting{model_name=\"recall\"}") == 0 &&
                 HeldIn(samples) == 0;
        },
        seconds(30)));
    const auto samples = Samples();
    ExpectBalance(samples);
    EXPECT_EQ(samples.at("annulus_requests_open"), 0);
    EXPECT_EQ(HeldIn(samples), 0);
    EXPECT_EQ(SumOf(samples, "annulus_pool_bytes", ",state=\"cached\"") +
                  SumOf(samples, "annulus_pool_bytes", ",state=\"free\""),
              SumOf(samples, "annulus_pool_limit_bytes", ""));
    EXPECT_EQ(samples.at("annulus_documents"), 1.0 + static_cast<double>(world_.followers.size()));
    EXPECT_EQ(samples.at("annulus_document_memory_bytes"), document_memory_);
    EXPECT_EQ(samples.at("annulus_request_errors_total{code=\"INTERNAL\"}"), 0);
  }

  Footprint Measure() {
    const auto pages = SumOf(Samples(), "annulus_pool_high_water_bytes", "");
    return {daemon_->Threads(), daemon_->Descriptors(),
            daemon_->ResidentMemory() - static_cast<size_t>(pages)};
  }

  std::unique_ptr<Daemon> daemon_;
  std::string metrics_address_;
  std::thread reader_;  // alone with daemon_->output() while it runs
  StressWorld world_;
  double document_memory_ = 0;
};

TEST_F(StressTest, NothingIsLostAndNothingStays) {
  const auto requests = static_cast<int>(Variable("ANNULUS_STRESS_REQUESTS", kRequests));
  const auto seed = static_cast<uint64_t>(Variable("ANNULUS_STRESS_SEED", 1));
  std::cout << "ANNULUS_STRESS_REQUESTS=" << requests << " ANNULUS_STRESS_SEED=" << seed
            << std::endl;
  document_memory_ = Samples().at("annulus_document_memory_bytes");
  Run(kWarmUp, seed + 1'000'000);
  ExpectNothingHeld();
  const Footprint before = Measure();
  Run(requests, seed);
  ExpectNothingHeld();
  if (kThreadSanitizer) return;
  // gRPC ends threads and closes sockets a little later; freed memory goes back within seconds.
  EXPECT_TRUE(Eventually(
      [&] {
        const Footprint now = Measure();
        return now.threads <= before.threads + ThreadSlack() &&
               now.descriptors <= before.descriptors &&
               (kSanitized || now.memory <= before.memory + kHeapSlack);
      },
      seconds(30)));
  const Footprint after = Measure();
  std::cout << "threads " << before.threads << " -> " << after.threads << ", descriptors "
            << before.descriptors << " -> " << after.descriptors << ", memory without pages "
            << before.memory / 1024 << " -> " << after.memory / 1024 << " KiB" << std::endl;
}

}  // namespace
}  // namespace annulus::server
