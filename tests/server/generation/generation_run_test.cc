// Generations whose clients leave while they are submitted, without a transport.

#include "server/generation/generation_run.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "engine/text/answer/answer_format.h"
#include "kernels/base/sanitizers.h"
#include "server/config/load_config.h"
#include "tests/server/fake_engine.h"

namespace annulus::server {
namespace {

class GenerationRunTest : public ::testing::Test {
 protected:
  class NoReader final : public SinkReader {
   public:
    void OnReady() override {}
  };

  static ServerConfig Config() {
    ServerConfig config = LoadConfig({"--served-model-name", "fake"}, {})->config;
    config.attach = {size_t{64} << 20, std::chrono::hours(1), std::chrono::hours(1)};
    return config;
  }

  FakeEngine engine_;
  const ServerConfig config_ = Config();
  const Logger log_{LogLevel::kError};
  const std::unique_ptr<Credentials> credentials_ = *Credentials::Open(config_);
  const std::unique_ptr<const Authenticator> authenticator_ = Authenticator::For(*credentials_);
  PeerBook peers_;
  const AdminGate admin_gate_{*credentials_};
  Lifecycle lifecycle_;
  DocumentStore documents_{config_.documents};
  ServerMetrics metrics_;
  DeliveryThread delivery_;
  WorkPool pool_{WorkPool::Options{}};
  UnreadAnswers unread_;
  AttachTable attach_{config_.attach};
  ServiceContext context_{
      config_,    log_,        *authenticator_,
      peers_,     admin_gate_, lifecycle_,
      documents_, metrics_,    pool_,
      delivery_,  unread_,     std::make_shared<MemoryBudget>(config_.max_prompts_memory),
      attach_};
  NoReader reader_;
};

// A client that leaves hands the request's place in the quotas over, at whatever moment of the
// submission that is.
TEST_F(GenerationRunTest, AClientMayLeaveAtAnyMomentOfTheSubmission) {
  const CallContext call{.method = "/annulus.v1.InferenceService/Generate"};
  const int rounds = kSanitized ? 300 : 3000;
  for (int round = 0; round < rounds; ++round) {
    GenerationRun run(context_, call, SinkLimits{}, reader_);
    run.MayFollow();
    ASSERT_TRUE(run.TakePlace().ok());
    AskedGeneration asked;
    asked.spec.set_text("text");
    asked.spec.mutable_sampling()->set_max_tokens(1);
    asked.spec.set_request_id(absl::StrCat("request-", round));
    asked.lasting.lingers = true;
    run.set_request_id(asked.spec.request_id());
    const size_t before = attach_.bytes();
    std::atomic<bool> ended{false};
    std::thread leaver([&] {
      // From the moment when the request is in the table on, a little later each round.
      while (attach_.bytes() == before && !ended) {
      }
      for (std::atomic<int> turn{0}; turn < round % 300; ++turn) {
      }
      run.AbortForClient(absl::CancelledError("gone"));
    });
    CallMemory memory(context_.prompts);
    const absl::Status submitted =
        run.Submit(engine_, asked, SIZE_MAX, memory, CancelFlag::Never());
    ended = true;
    leaver.join();
    EXPECT_TRUE(submitted.ok()) << submitted;
    run.Close();
    ASSERT_TRUE(engine_.WaitUntilIdle(std::chrono::milliseconds(10'000)));
  }
  EXPECT_FALSE(engine_.submitted().empty());
}

// Calls of tools are kept until the answer ends, and some of a call is held back.
TEST_F(GenerationRunTest, WhatReadingAnAnswerTakesIsHeld) {
  AnswerReading reading;
  reading.format = AnswerFormat::Make("hermes", [](absl::string_view) { return false; });
  engine_.set_reading(reading);
  engine_.set_chat_template(true);
  const CallContext call{.method = "/annulus.v1.InferenceService/Generate"};
  engine_.set_keeps_accounts(true);
  size_t held[2] = {};
  for (const bool chat : {false, true}) {
    for (const bool named : {false, true}) {
      GenerationRun run(context_, call, SinkLimits{}, reader_);
      ASSERT_TRUE(run.TakePlace().ok());
      AskedGeneration asked;
      if (chat) {
        v1::Message& message = *asked.spec.mutable_messages()->add_messages();
        message.set_role("user");
        message.set_content("text");
      } else {
        asked.spec.set_text("text");
      }
      asked.spec.mutable_sampling()->set_max_tokens(1);
      if (named) asked.spec.set_request_id(absl::StrCat("request-", chat));
      run.set_request_id(absl::StrCat("request-", chat));
      CallMemory memory(context_.prompts);
      const size_t none = context_.prompts->used();
      ASSERT_TRUE(run.Submit(engine_, asked, SIZE_MAX, memory, CancelFlag::Never()).ok());
      if (!named) held[chat] = context_.prompts->used() - none;
      run.Close();
      const std::shared_ptr<MemoryGrant> grant = engine_.submitted().back().reading.memory;
      ASSERT_EQ(grant != nullptr, chat) << "texts are not parted";
      if (!chat) continue;
      const size_t used = context_.prompts->used();
      EXPECT_TRUE(grant->Allow(100'000).ok());
      EXPECT_TRUE(grant->Allow(50'000).ok());
      EXPECT_EQ(context_.prompts->used(), used + 100'000);
      EXPECT_FALSE(grant->Allow(context_.prompts->limit()).ok());
    }
  }
  EXPECT_GE(held[true], held[false] + AnswerReading::kOwnBytes);
}

// A step may be long, and clients may come and leave while it runs.
TEST_F(GenerationRunTest, APromptIsHeldUntilTheEngineLetsGoOfIt) {
  const CallContext call{.method = "/annulus.v1.InferenceService/Generate"};
  engine_.set_keeps_accounts(true);
  for (const bool named : {false, true}) {
    GenerationRun run(context_, call, SinkLimits{}, reader_);
    ASSERT_TRUE(run.TakePlace().ok());
    AskedGeneration asked;
    asked.spec.set_text(std::string(1000, 'a'));
    asked.spec.mutable_sampling()->set_max_tokens(1);
    if (named) asked.spec.set_request_id("request");
    run.set_request_id("request");
    CallMemory memory(context_.prompts);
    ASSERT_TRUE(run.Submit(engine_, asked, SIZE_MAX, memory, CancelFlag::Never()).ok());
    run.Abort(absl::CancelledError("gone"));
    run.Close();
  }
  ASSERT_TRUE(engine_.WaitUntilIdle(std::chrono::milliseconds(10'000)));
  EXPECT_GE(context_.prompts->used(), 2 * 1000 * sizeof(int32_t));
  engine_.set_keeps_accounts(false);
  EXPECT_EQ(context_.prompts->used(), 0u);
}

}  // namespace
}  // namespace annulus::server
