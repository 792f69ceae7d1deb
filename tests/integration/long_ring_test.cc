// A long document on a ring of four processes, one of which is killed while it is read.
//   ANNULUS_RECALL_TOKENS=1000000   a longer document than the suite takes

#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "annulus/v1/inference.grpc.pb.h"
#include "bench/demo/document.h"
#include "engine/ring/wire/ucx_library.h"
#include "tests/integration/daemon.h"

namespace annulus::server {
namespace {

constexpr int kRanks = 4;
constexpr std::chrono::seconds kStartLimit{60};

int64_t Tokens() {
  const char* const wanted = std::getenv("ANNULUS_RECALL_TOKENS");
  return wanted == nullptr ? 20'000 : std::atoll(wanted);
}

class LongRingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!LoadUcx().ok()) GTEST_SKIP() << "libucx0 is not installed";
    document_ = bench::MakeDemoDocument({.bytes = Tokens()}).value();
    // The document's pages in float32, and room for questions, answers and uneven shares.
    const int64_t kv_memory = Tokens() * 1024 + (int64_t{100} << 20);
    coordinator_ = std::make_unique<Daemon>(
        std::vector<std::string>{"--ranks", absl::StrCat(kRanks), "--workers-listen", "127.0.0.1:0",
                                 "--kv-memory", absl::StrCat(kv_memory), "--threads", "1"});
    ASSERT_TRUE(coordinator_->WaitForOutput(" ring_waits ", kStartLimit)) << coordinator_->output();
    for (int i = 1; i < kRanks; ++i) AddWorker(absl::StrCat("worker-", i));
    ASSERT_TRUE(coordinator_->WaitUntilReady()) << coordinator_->output();
    AddWorker("spare");
  }

  void AddWorker(const std::string& name) {
    const std::string& said = coordinator_->output();
    const std::string key = " workers_port=";
    const int port = std::stoi(said.substr(said.find(key) + key.size()));
    workers_.push_back(std::make_unique<Program>(std::vector<std::string>{
        testing::BuildFolder() / "annulusd", "--join", absl::StrCat("127.0.0.1:", port),
        "--worker-name", name, "--threads", "1"}));
    ASSERT_TRUE(workers_.back()->WaitForOutput(" connected ", kStartLimit))
        << workers_.back()->output();
  }

  // Asks for a fact. Kills `victim` once half of the prompt is read, if there is one.
  v1::Completion Ask(const bench::DemoFact& fact, Program* victim) {
    v1::StreamGenerateRequest request;
    request.mutable_spec()->set_text(document_.text + fact.cue);
    request.mutable_spec()->mutable_sampling()->set_temperature(0);
    request.mutable_spec()->mutable_sampling()->set_max_tokens(64);
    request.mutable_spec()->mutable_sampling()->add_stop("\n");
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::hours(1));
    const auto stub = v1::InferenceService::NewStub(
        grpc::CreateChannel(coordinator_->address(), grpc::InsecureChannelCredentials()));
    const auto reader = stub->StreamGenerate(&context, request);
    std::string answer;
    v1::Completion completion;
    v1::StreamGenerateResponse event;
    while (reader->Read(&event)) {
      const v1::PromptProgress& progress = event.prompt_progress();
      if (victim != nullptr && event.has_prompt_progress() &&
          progress.processed() * 2 >= progress.total()) {
        victim->Signal(SIGKILL);
        victim = nullptr;
      }
      answer += event.delta().text();
      if (event.has_completion()) completion = event.completion();
    }
    const grpc::Status status = reader->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message() << coordinator_->output();
    EXPECT_EQ(victim, nullptr) << "no event told that half of the prompt is read";
    EXPECT_EQ(answer, fact.answer) << fact.depth;
    return completion;
  }

  bench::DemoDocument document_;
  std::unique_ptr<Daemon> coordinator_;
  std::vector<std::unique_ptr<Program>> workers_;
};

TEST_F(LongRingTest, FactsAreFoundThoughAWorkerIsKilled) {
  Program* victim = workers_[1].get();
  for (const bench::DemoFact& fact : document_.facts) {
    const v1::Completion done = Ask(fact, victim);
    if (victim != nullptr) {
      EXPECT_GE(done.timings().recovered(), 1);
    }
    victim = nullptr;
    std::cout << Tokens() << " tokens, fact at " << fact.depth << ": "
              << done.timings().ShortDebugString() << std::endl;
  }
}

}  // namespace
}  // namespace annulus::server
