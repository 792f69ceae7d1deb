#include "client/generation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/client/fake_server.h"

namespace annulus::client {
namespace {

using ::testing::ElementsAre;
using testing::FakeServer;

class Recorder : public GenerationObserver {
 public:
  void OnQueued(const v1::Queued&) override { seen.push_back("queued"); }
  void OnProgress(const v1::PromptProgress&) override { seen.push_back("progress"); }
  void OnDelta(const v1::Delta& delta) override { seen.push_back(delta.text()); }

  std::vector<std::string> seen;
};

class GenerationTest : public ::testing::Test {
 protected:
  Generation Run() {
    v1::GenerationSpec spec;
    spec.set_text("prompt");
    return StreamGenerate(*connection_, spec, recorder_);
  }

  FakeServer server_;
  Cancellation cancellation_;
  std::unique_ptr<Connection> connection_ =
      std::move(Connection::Open({.server = server_.address()}, cancellation_)).value();
  Recorder recorder_;
};

TEST_F(GenerationTest, CollectsEverything) {
  FakeServer::Reply reply = testing::StoryReply();
  reply.events[3].mutable_delta()->add_logprobs()->set_token_id(10);
  reply.events.insert(reply.events.begin(), v1::StreamGenerateResponse());  // a kind of the future
  server_.SetReply(reply);
  const Generation generation = Run();
  ASSERT_TRUE(generation.status.ok()) << generation.status.error_message();
  EXPECT_EQ(generation.text, "Once upon a time");
  EXPECT_THAT(generation.token_ids, ElementsAre(10, 11, 12, 13, 14));
  EXPECT_EQ(generation.logprobs.size(), 1u);
  EXPECT_EQ(generation.completion->finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(generation.progress->processed(), 8);
  EXPECT_THAT(recorder_.seen,
              ElementsAre("queued", "progress", "progress", "Once upon", " a time"));
  EXPECT_EQ(server_.specs().at(0).text(), "prompt");
}

TEST_F(GenerationTest, KeepsWhatCameBeforeAFailure) {
  server_.SetReply({.events = {testing::DeltaEvent("half", {1})},
                    .status = grpc::Status(grpc::StatusCode::UNAVAILABLE, "a rank failed")});
  const Generation generation = Run();
  EXPECT_EQ(generation.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(generation.text, "half");
  EXPECT_FALSE(generation.completion.has_value());
}

TEST_F(GenerationTest, AnEndWithoutCompletionIsAFault) {
  server_.SetReply({.events = {testing::DeltaEvent("half", {1})}});
  EXPECT_EQ(Run().status.error_code(), grpc::StatusCode::INTERNAL);
}

TEST_F(GenerationTest, IsCancelledFromAnotherThread) {
  server_.SetReply({.events = {testing::DeltaEvent("half", {1})}, .wait_for_cancel = true});
  std::thread canceller([&] {
    EXPECT_TRUE(server_.WaitForGeneration());
    EXPECT_TRUE(cancellation_.Cancel());
  });
  const Generation generation = Run();
  canceller.join();
  EXPECT_EQ(generation.status.error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(server_.WaitForCancel());
}

}  // namespace
}  // namespace annulus::client
