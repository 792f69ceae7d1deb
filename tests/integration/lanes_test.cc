// One client's long texts beside another's short call, and a stop while they are worked on.

#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "annulus/v1/inference.grpc.pb.h"
#include "tests/integration/daemon.h"
#include "tests/server/test_server.h"

namespace annulus::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr size_t kLongText = size_t{15} << 20;

// Clients that send long texts over and over until the object ends.
class LongTexts {
 public:
  LongTexts(const std::string& address, int clients) {
    std::string words;
    while (words.size() < kLongText) words += "some words, more words, ";
    request_ = TextRequest(words);
    for (int i = 0; i < clients; ++i) {
      threads_.emplace_back([this, address] { Send(address); });
    }
  }
  ~LongTexts() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  int ended() const { return ended_; }

 private:
  void Send(const std::string& address) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto stub = v1::InferenceService::NewStub(
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
    while (!stop_) {
      grpc::ClientContext context;
      v1::GenerateResponse response;
      const grpc::Status status = stub->Generate(&context, request_, &response);
      EXPECT_FALSE(status.ok());  // far longer than the context
      if (status.error_code() == grpc::StatusCode::UNAVAILABLE) return;
      ++ended_;
    }
  }

  v1::GenerateRequest request_;
  std::atomic<bool> stop_{false};
  std::atomic<int> ended_{0};
  std::vector<std::thread> threads_;
};

class LanesTest : public ::testing::Test {
 protected:
  LanesTest() : daemon_({"--kv-memory", "64MiB", "--grace-time", "1s"}) {}

  void SetUp() override {
    ASSERT_TRUE(daemon_.WaitUntilReady()) << daemon_.output();
    stub_ = v1::InferenceService::NewStub(
        grpc::CreateChannel(daemon_.address(), grpc::InsecureChannelCredentials()));
  }

  // Milliseconds of short calls until there is `enough`, ascending; at least 50 of them.
  std::vector<double> TimeShortCalls(const std::function<bool()>& enough) {
    std::vector<double> times;
    v1::GenerateRequest request = TextRequest("one, two, ");
    request.mutable_spec()->mutable_sampling()->set_max_tokens(1);
    while (times.size() < 50 || !enough()) {
      grpc::ClientContext context;
      v1::GenerateResponse response;
      const auto start = steady_clock::now();
      const grpc::Status status = stub_->Generate(&context, request, &response);
      EXPECT_TRUE(status.ok()) << status.error_message();
      times.push_back(
          std::chrono::duration<double, std::milli>(steady_clock::now() - start).count());
    }
    std::sort(times.begin(), times.end());
    return times;
  }

  Daemon daemon_;
  std::unique_ptr<v1::InferenceService::Stub> stub_;
};

TEST_F(LanesTest, AShortCallDoesNotWaitForLongTexts) {
  const std::vector<double> alone = TimeShortCalls([] { return true; });
  std::vector<double> beside;
  int ended = 0;
  {
    const LongTexts load(daemon_.address(), 12);
    const auto end = steady_clock::now() + seconds(20);
    beside = TimeShortCalls([&] { return load.ended() >= 24 || steady_clock::now() > end; });
    ended = load.ended();
  }
  const auto median = [](const std::vector<double>& times) { return times[times.size() / 2]; };
  RecordProperty("alone_ms", std::to_string(median(alone)));
  RecordProperty("beside_ms", std::to_string(median(beside)));
  RecordProperty("worst_ms", std::to_string(beside.back()));
  std::printf("a short call: %.2f ms alone, %.2f ms (at most %.2f ms) beside %d long texts\n",
              median(alone), median(beside), beside.back(), ended);
  EXPECT_LT(median(beside), std::max(250.0, 20 * median(alone)));
}

// Work of clients that is under way does not hold a stop up.
TEST_F(LanesTest, SigtermEndsTheProcessSoonAfterItsGrace) {
  const LongTexts load(daemon_.address(), 4);
  ASSERT_TRUE(Eventually([&] { return load.ended() > 0; }, seconds(60)));
  const auto start = steady_clock::now();
  daemon_.Signal(SIGTERM);
  EXPECT_EQ(daemon_.WaitForExit(seconds(30)), 0) << daemon_.output();
  // 1 s of grace, 3 s to stop, and what a busy machine adds.
  EXPECT_LT(steady_clock::now() - start, seconds(10)) << daemon_.output();
}

}  // namespace
}  // namespace annulus::server
