// A client that gives up on a long prompt and sends it again, with the real engine.

#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "annulus/v1/admin.grpc.pb.h"
#include "annulus/v1/inference.grpc.pb.h"
#include "kernels/base/sanitizers.h"
#include "tests/integration/daemon.h"
#include "tests/server/test_server.h"

namespace annulus::server {
namespace {

constexpr int kPrompt = kSanitized ? 30'000 : 200'000;

class RetryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    daemon_ = std::make_unique<Daemon>(
        std::vector<std::string>{"--ranks", "2", "--kv-memory", "512MiB", "--threads", "2"});
    ASSERT_TRUE(daemon_->WaitUntilReady()) << daemon_->output();
    stub_ = v1::InferenceService::NewStub(
        grpc::CreateChannel(daemon_->address(), grpc::InsecureChannelCredentials()));
  }

  static v1::StreamGenerateRequest Named(const std::string& text, int max_tokens) {
    v1::StreamGenerateRequest request;
    request.mutable_spec()->set_request_id("retry");
    request.mutable_spec()->set_text(text);
    request.mutable_spec()->set_digest(true);
    request.mutable_spec()->mutable_sampling()->set_temperature(0.9F);
    request.mutable_spec()->mutable_sampling()->set_seed(5);
    request.mutable_spec()->mutable_sampling()->set_max_tokens(max_tokens);
    request.mutable_spec()->mutable_sampling()->set_ignore_eos(true);
    return request;
  }

  static std::string DigestOf(const StreamResult& result) {
    if (result.events.empty()) return "";
    return result.events.back().completion().origin().digest();
  }

  void WaitUntilIdle() {
    const auto admin = v1::AdminService::NewStub(
        grpc::CreateChannel(daemon_->address(), grpc::InsecureChannelCredentials()));
    EXPECT_TRUE(Eventually([&] {
      grpc::ClientContext context;
      v1::GetLoadResponse load;
      return admin->GetLoad(&context, {}, &load).ok() && load.running() == 0 && load.waiting() == 0;
    }));
  }

  std::unique_ptr<Daemon> daemon_;
  std::unique_ptr<v1::InferenceService::Stub> stub_;
};

// Five times, as the client does that gives up after some time: each goes on where the last one
// stopped. One that waits gets the answer that a single call would have got.
TEST_F(RetryTest, AClientThatGivesUpDoesNotStartAnew) {
  const auto request = Named(std::string(kPrompt, 'x'), 4);
  int64_t cached = 0;
  for (int turn = 0; turn < 5; ++turn) {
    grpc::ClientContext context;
    const auto reader = stub_->StreamGenerate(&context, request);
    v1::StreamGenerateResponse response;
    int64_t processed = 0;
    bool first = true;
    while (processed < cached + 2000 && reader->Read(&response)) {
      if (!response.has_prompt_progress()) continue;
      processed = response.prompt_progress().processed();
      if (!first) continue;
      first = false;
      EXPECT_GE(response.prompt_progress().cached(), cached) << turn;
    }
    ASSERT_GE(processed, cached + 2000) << turn;
    cached = processed / 64 * 64;
    context.TryCancel();
    reader->Finish();
    WaitUntilIdle();  // until then the daemon takes a call with that id for a second reader
  }
  const StreamResult last = ReadStream(*stub_, request);
  ASSERT_TRUE(last.status.ok()) << last.status.error_message();
  const v1::Usage& usage = last.events.back().completion().usage();
  EXPECT_EQ(usage.completion_tokens(), 4);
  EXPECT_GE(usage.cached_tokens(), cached);
  auto at_once = request;
  at_once.mutable_spec()->set_request_id("at once");
  at_once.mutable_spec()->set_ignore_cache(true);
  const StreamResult whole = ReadStream(*stub_, at_once);
  ASSERT_TRUE(whole.status.ok()) << whole.status.error_message();
  EXPECT_EQ(whole.events.back().completion().usage().cached_tokens(), 0);
  EXPECT_EQ(DigestOf(last).size(), 64u);
  EXPECT_EQ(DigestOf(whole), DigestOf(last));
}

TEST_F(RetryTest, ACallThatComesAgainWhileTheFirstRunsGetsTheSameAnswer) {
  const auto request = Named("some words, some words, ", 3000);
  grpc::ClientContext context;
  const auto reader = stub_->StreamGenerate(&context, request);
  v1::StreamGenerateResponse response;
  std::string text;
  std::string digest;
  while (text.size() < 50 && reader->Read(&response)) text += response.delta().text();
  const StreamResult second = ReadStream(*stub_, request);
  while (reader->Read(&response)) {
    text += response.delta().text();
    if (response.has_completion()) digest = response.completion().origin().digest();
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_TRUE(second.status.ok());
  EXPECT_EQ(second.text, text);
  EXPECT_EQ(digest.size(), 64u);
  EXPECT_EQ(DigestOf(second), digest);
  // And when it has ended.
  const StreamResult third = ReadStream(*stub_, request);
  EXPECT_EQ(third.text, text);
  EXPECT_EQ(DigestOf(third), digest);
  EXPECT_EQ(ReadStream(*stub_, Named("other words", 3000)).status.error_code(),
            grpc::StatusCode::ALREADY_EXISTS);
  daemon_.reset();
}

}  // namespace
}  // namespace annulus::server
