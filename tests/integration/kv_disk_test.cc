// A daemon that was killed finds on disk what it had read.
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "annulus/v1/inference.grpc.pb.h"
#include "bench/demo/document.h"
#include "kernels/base/sanitizers.h"
#include "tests/integration/daemon.h"
#include "tests/integration/plain_model.h"
#include "tests/support/temp_directory.h"
#include "tests/support/thinned.h"

namespace annulus {
namespace {

class KvDiskTest : public ::testing::Test {
 protected:
  void Start(const std::string& model = "builtin:recall", const std::string& folder = "pages",
             int chunk_tokens = 256) {
    daemon_ = std::make_unique<Daemon>(std::vector<std::string>{
        "--model", model, "--ranks", "2", "--kv-memory", "256MiB", "--chunk-tokens",
        std::to_string(chunk_tokens), "--kv-disk", (directory_.path() / folder).string(),
        "--kv-disk-size", "256MiB"});
    ASSERT_TRUE(daemon_->WaitUntilReady()) << daemon_->output();
    inference_ = v1::InferenceService::NewStub(
        grpc::CreateChannel(daemon_->address(), grpc::InsecureChannelCredentials()));
  }

  void Kill() {
    daemon_->Signal(SIGKILL);
    EXPECT_EQ(daemon_->WaitForExit(std::chrono::seconds(20)), 128 + SIGKILL);
  }

  struct Answer {
    std::string text;
    v1::Completion completion;
    int64_t cached = 0;     // as the first word of progress says
    int64_t processed = 0;  // as the last one does
  };
  // Kills the daemon once so many tokens are processed; 0: lets it answer.
  Answer Ask(const std::string& text, int64_t kill_at = 0) {
    v1::StreamGenerateRequest request;
    request.mutable_spec()->set_text(text);
    request.mutable_spec()->set_digest(true);
    request.mutable_spec()->mutable_sampling()->set_max_tokens(64);
    request.mutable_spec()->mutable_sampling()->set_temperature(0);
    request.mutable_spec()->mutable_sampling()->add_stop("\n");
    grpc::ClientContext context;
    const auto reader = inference_->StreamGenerate(&context, request);
    Answer answer;
    v1::StreamGenerateResponse event;
    bool killed = false;
    while (reader->Read(&event)) {
      if (event.has_delta()) answer.text += event.delta().text();
      if (event.has_completion()) answer.completion = event.completion();
      if (!event.has_prompt_progress() || killed) continue;
      if (answer.processed == 0) answer.cached = event.prompt_progress().cached();
      answer.processed = event.prompt_progress().processed();
      if (kill_at == 0 || answer.processed < kill_at) continue;
      killed = true;
      Kill();
    }
    EXPECT_EQ(reader->Finish().ok(), kill_at == 0);
    return answer;
  }

  // Waits until so many pages are on disk.
  bool WaitForPages(int64_t pages) const {
    for (int i = 0; i < 3000; ++i) {
      int64_t found = 0;
      for (const auto& each : std::filesystem::directory_iterator(directory_.path() / "pages")) {
        if (each.path().extension() == ".page") ++found;
      }
      if (found >= pages) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  testing::TempDirectory directory_;
  std::unique_ptr<Daemon> daemon_;
  std::unique_ptr<v1::InferenceService::Stub> inference_;
};

DemoDocument Document(int64_t bytes) {
  DemoOptions options;
  options.bytes = bytes;
  return *MakeDemoDocument(options);
}

TEST_F(KvDiskTest, WhatWasReadIsThereAfterAKill) {
  constexpr int64_t kBytes = 100'000;
  const DemoDocument document = Document(kBytes);
  Start();
  const DemoFact& fact = document.facts.at(1);
  const Answer first = Ask(document.text + fact.cue);
  EXPECT_EQ(first.text, fact.answer);
  EXPECT_EQ(first.completion.usage().cached_tokens(), 0);
  // All of the full layer, and then the one that the window needs: nothing begins without it.
  ASSERT_TRUE(WaitForPages(first.completion.usage().prompt_tokens() / 64 + 1));
  Kill();
  Start();
  const Answer again = Ask(document.text + fact.cue);
  EXPECT_EQ(again.text, fact.answer);
  EXPECT_GE(again.completion.usage().restored_tokens(), kBytes / 64 * 64);
  EXPECT_EQ(again.completion.usage().cached_tokens(), again.completion.usage().restored_tokens());
  const double before = first.completion.timings().time_to_first_token();
  const double after = again.completion.timings().time_to_first_token();
  std::printf("first token: %.3f s, after the kill %.3f s\n", before, after);
  EXPECT_LT(after, before);
  // Memory has it by now.
  const Answer third = Ask(document.text + fact.cue);
  EXPECT_EQ(third.text, fact.answer);
  EXPECT_EQ(third.completion.usage().restored_tokens(), 0);
  EXPECT_GE(third.completion.usage().cached_tokens(), kBytes / 64 * 64);
}

// Models without windows leave every chunk of a prompt, at most two chunks behind. Killed at random
// points, all starts together compute at most 1.1 times its tokens, as far as the client saw.
//   ANNULUS_KILLS=20             as often as tests/nightly.sh does
//   ANNULUS_TEST_SEED=SEED       other points; both are printed
TEST_F(KvDiskTest, APromptGoesOnWhereItWasKilled) {
  constexpr int kChunk = 128;
  const char* const more = std::getenv("ANNULUS_KILLS");
  const int kills = more != nullptr ? std::stoi(more) : kSanitized ? 2 : 4;
  const int64_t tokens = kSanitized ? 12'000 : kills > 4 ? 60'000 : 30'000;
  const std::string model = testing::PlainModel(directory_);
  const std::string text = Document(tokens).text;
  Start(model, "other", kChunk);
  const Answer expected = Ask(text);
  const std::string digest = expected.completion.origin().digest();
  ASSERT_FALSE(digest.empty());
  Kill();
  std::printf("ANNULUS_KILLS=%d ANNULUS_TEST_SEED=%llu\n", kills,
              static_cast<unsigned long long>(testing::TestSeed()));
  std::mt19937_64 random(testing::TestSeed());
  std::uniform_int_distribution<int64_t> anywhere(1, tokens - 1);
  std::vector<int64_t> points(static_cast<size_t>(kills));
  for (int64_t& point : points) point = anywhere(random);
  std::sort(points.begin(), points.end());
  int64_t computed = 0;
  for (const int64_t point : points) {
    Start(model, "pages", kChunk);
    const Answer cut = Ask(text, point);
    computed += cut.processed - cut.cached + kChunk;  // which was under way
  }
  Start(model, "pages", kChunk);
  const Answer whole = Ask(text);
  EXPECT_EQ(whole.text, expected.text);
  EXPECT_EQ(whole.completion.origin().digest(), digest);
  const v1::Usage& usage = whole.completion.usage();
  computed += usage.prompt_tokens() - usage.cached_tokens();
  const double share = static_cast<double>(computed) / static_cast<double>(usage.prompt_tokens());
  std::printf("computed: %.3f times the prompt of %lld tokens\n", share,
              static_cast<long long>(usage.prompt_tokens()));
  EXPECT_LE(share, 1.1);
}

}  // namespace
}  // namespace annulus
