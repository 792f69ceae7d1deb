// A daemon that was killed finds on disk what it had read.
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "annulus/v1/inference.grpc.pb.h"
#include "bench/demo/document.h"
#include "kernels/base/sanitizers.h"
#include "tests/integration/daemon.h"
#include "tests/support/temp_directory.h"

namespace annulus {
namespace {

class KvDiskTest : public ::testing::Test {
 protected:
  void Start(const std::string& model = "builtin:recall", const std::string& folder = "pages") {
    daemon_ = std::make_unique<Daemon>(std::vector<std::string>{
        "--model", model, "--ranks", "2", "--kv-memory", "256MiB", "--chunk-tokens", "256",
        "--kv-disk", (directory_.path() / folder).string(), "--kv-disk-size", "256MiB"});
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

// Models without windows leave every chunk of a prompt.
TEST_F(KvDiskTest, APromptGoesOnWhereItWasKilled) {
  constexpr int64_t kTokens = kSanitized ? 8'000 : 30'000;
  constexpr int kKills = kSanitized ? 2 : 4;
  directory_.Write("config.json", R"({"architectures": ["LlamaForCausalLM"],
      "model_type": "llama", "vocab_size": 300, "hidden_size": 128, "intermediate_size": 256,
      "num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 1,
      "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
      "max_position_embeddings": 65536, "torch_dtype": "float32"})");
  const std::string model = "random:" + (directory_.path() / "config.json").string();
  const std::string text = Document(kTokens).text;
  Start(model, "other");
  const Answer expected = Ask(text);
  Kill();
  int64_t twice = 0;  // tokens that were computed again
  int64_t reached = 0;
  for (int kill = 1; kill <= kKills; ++kill) {
    Start(model);
    const Answer cut = Ask(text, kTokens * kill / (kKills + 1));
    twice += std::max<int64_t>(0, reached - cut.cached);
    reached = cut.processed;
  }
  Start(model);
  const Answer whole = Ask(text);
  EXPECT_EQ(whole.text, expected.text);
  twice += std::max<int64_t>(0, reached - whole.completion.usage().restored_tokens());
  std::printf("computed twice: %lld of %lld tokens\n", static_cast<long long>(twice),
              static_cast<long long>(kTokens));
  EXPECT_LE(twice, kKills * 1024);  // two chunks of both ranks a kill
}

}  // namespace
}  // namespace annulus
