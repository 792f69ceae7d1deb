// PrefillDocument: what the engine is asked, and what the client hears.

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/server/test_server.h"
#include "tests/support/temp_directory.h"

namespace annulus::server {
namespace {

using ::testing::HasSubstr;

class PrefillDocumentTest : public ::testing::Test {
 protected:
  PrefillDocumentTest() : stub_(server_.documents()) {
    server_.engine().set_scripter([](const RequestSpec& spec) {
      FakeScript script;
      script.queued = {1};
      script.progress_events = 2;
      script.completion.finish_reason = FinishReason::kPrefilled;
      script.completion.usage.cached_tokens = 3;
      script.completion.timings.prefill = 0.5;
      if (!spec.prefill_only) script.deltas = {"hi"};
      return script;
    });
    server_.engine().set_chat_template(true);
    server_.Serve();
  }

  struct Result {
    std::vector<v1::PrefillDocumentResponse> events;
    grpc::Status status;
  };
  Result Prefill(const v1::PrefillDocumentRequest& request, grpc::ClientContext* given = nullptr) {
    grpc::ClientContext own;
    const auto reader = stub_->PrefillDocument(given != nullptr ? given : &own, request);
    Result result;
    v1::PrefillDocumentResponse event;
    while (reader->Read(&event)) result.events.push_back(event);
    result.status = reader->Finish();
    return result;
  }

  static v1::PrefillDocumentRequest Of(const std::string& name) {
    v1::PrefillDocumentRequest request;
    request.set_name(name);
    return request;
  }

  std::string PromptText(size_t submitted) {
    const std::vector<int32_t> prompt = server_.engine().submitted().at(submitted).prompt;
    return server_.engine().Detokenize(prompt, false, CancelFlag::Never()).value();
  }

  TestServer server_;
  const std::unique_ptr<v1::DocumentService::Stub> stub_;
};

TEST_F(PrefillDocumentTest, ReadsWhatAQuestionBeginsWith) {
  ASSERT_TRUE(server_.Upload("a", "Alpha", nullptr, 1000, "a.txt").ok());
  ASSERT_TRUE(server_.Upload("b", "Beta").ok());
  auto request = Of("b");
  request.add_before("a");
  request.set_system("be brief");
  request.set_priority(-1);
  const Result result = Prefill(request);
  ASSERT_TRUE(result.status.ok()) << result.status.error_message();
  ASSERT_FALSE(result.events.empty());
  const v1::Prefilled& done = result.events.back().done();
  EXPECT_EQ(done.cached_tokens(), 3);
  EXPECT_EQ(done.prefill(), 0.5);
  EXPECT_THAT(done.request_id(), HasSubstr("r-"));
  for (const auto& event : result.events) {
    EXPECT_NE(event.event_case(), v1::PrefillDocumentResponse::EVENT_NOT_SET);
  }

  v1::StreamGenerateRequest question;
  question.mutable_spec()->add_documents("a");
  question.mutable_spec()->add_documents("b");
  for (const auto& [role, content] : std::vector<std::pair<std::string, std::string>>{
           {"system", "be brief"}, {"user", "Who? And why?"}}) {
    v1::Message& message = *question.mutable_spec()->mutable_messages()->add_messages();
    message.set_role(role);
    message.set_content(content);
  }
  ASSERT_TRUE(ReadStream(*server_.inference(), question).status.ok());

  const RequestSpec ahead = server_.engine().submitted().at(0);
  const RequestSpec asked = server_.engine().submitted().at(1);
  EXPECT_TRUE(ahead.prefill_only);
  EXPECT_FALSE(asked.prefill_only);
  EXPECT_EQ(ahead.priority, -1);
  EXPECT_EQ(ahead.shared_prefixes, asked.shared_prefixes);
  EXPECT_EQ(ahead.documents.size(), 2u);
  ASSERT_LT(ahead.prompt.size(), asked.prompt.size());
  EXPECT_EQ(static_cast<int32_t>(ahead.prompt.size()), asked.shared_prefixes.back());
  EXPECT_TRUE(std::equal(ahead.prompt.begin(), ahead.prompt.end(), asked.prompt.begin()));
  EXPECT_EQ(PromptText(0), "system:be brief|user:[a.txt:Alpha][b:Beta]");
}

TEST_F(PrefillDocumentTest, ErrorsNameFieldsOfItsOwnRequest) {
  ASSERT_TRUE(server_.Upload("a", "Alpha").ok());
  EXPECT_EQ(Details(Prefill(Of("../a")).status).field, "name");
  EXPECT_EQ(Details(Prefill(Of("")).status).field, "name");
  EXPECT_EQ(Details(Prefill(Of("b")).status).reason, "DOCUMENT_NOT_FOUND");
  auto request = Of("a");
  request.add_before("-");
  EXPECT_EQ(Details(Prefill(request).status).field, "before");
  request = Of("a");
  for (int i = 0; i < 64; ++i) request.add_before("a");
  EXPECT_EQ(Prefill(request).status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  request.mutable_before()->RemoveLast();
  EXPECT_TRUE(Prefill(request).status.ok());
  request = Of("a");
  request.mutable_attention()->set_policy("densest");
  EXPECT_EQ(Details(Prefill(request).status).field, "attention.policy");
  request = Of("a");
  request.set_priority(3);
  EXPECT_EQ(Details(Prefill(request).status).field, "priority");
  request = Of("a");
  request.set_model("other");
  EXPECT_EQ(Details(Prefill(request).status).reason, "MODEL_NOT_FOUND");
  request = Of("a");
  request.set_request_id("\n");
  EXPECT_EQ(Details(Prefill(request).status).field, "request_id");
  server_.engine().set_max_context(16);
  ASSERT_TRUE(server_.Upload("fits", "1234567890").ok());
  request = Of("fits");
  request.set_system("as long as the context");
  const ErrorDetails too_long = Details(Prefill(request).status);
  EXPECT_EQ(too_long.reason, "CONTEXT_TOO_LONG");
  EXPECT_EQ(too_long.field, "name");
}

TEST_F(PrefillDocumentTest, PinsAndTimesToLiveReachTheEngine) {
  ASSERT_TRUE(server_.Upload("a", "Alpha").ok());
  ASSERT_TRUE(Prefill(Of("a")).status.ok());
  auto request = Of("a");
  request.set_pin(true);
  request.set_ttl(7200.5);
  ASSERT_TRUE(Prefill(request).status.ok());
  EXPECT_FALSE(server_.engine().submitted().at(0).pin);
  EXPECT_EQ(server_.engine().submitted().at(0).ttl, std::nullopt);
  EXPECT_TRUE(server_.engine().submitted().at(1).pin);
  EXPECT_EQ(server_.engine().submitted().at(1).ttl, std::chrono::milliseconds(7'200'500));
  for (const double ttl :
       {0.0, 0.5, -1.0, 31'536'001.0, 1e300, std::numeric_limits<double>::quiet_NaN()}) {
    request.set_ttl(ttl);
    EXPECT_EQ(Details(Prefill(request).status).field, "ttl") << ttl;
  }
  // Another pin is another call.
  request.set_ttl(60);
  request.set_request_id("pins");
  ASSERT_TRUE(Prefill(request).status.ok());
  request.set_pin(false);
  EXPECT_EQ(Details(Prefill(request).status).reason, "REQUEST_EXISTS");
}

TEST_F(PrefillDocumentTest, AFullQuotaOfPinsSaysSo) {
  server_.engine().set_scripter([](const RequestSpec&) {
    FakeScript script;
    script.completion.finish_reason = FinishReason::kError;
    script.completion.status = absl::ResourceExhaustedError("pin: 9 pages are too many");
    script.completion.status.SetPayload(kLimitPayload, absl::Cord("pinned"));
    return script;
  });
  ASSERT_TRUE(server_.Upload("a", "Alpha").ok());
  const Result result = Prefill(Of("a"));
  EXPECT_EQ(result.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Details(result.status).reason, "QUOTA_EXCEEDED");
  EXPECT_THAT(result.status.error_message(), HasSubstr("9 pages"));
}

// What of an edited document differs from the version before: callers that nobody knows are told
// the position only.
TEST_F(PrefillDocumentTest, TellsWhereTheReadingBegan) {
  server_.engine().set_scripter([](const RequestSpec&) {
    FakeScript script;
    script.completion.finish_reason = FinishReason::kPrefilled;
    script.completion.usage.cache_miss = CacheMiss{CacheMiss::Reason::kOtherTokens, 17};
    return script;
  });
  ASSERT_TRUE(server_.Upload("a", "Alpha").ok());
  const v1::Prefilled done = Prefill(Of("a")).events.back().done();
  EXPECT_EQ(done.cache_miss().reason(), v1::CacheMiss::REASON_UNSPECIFIED);
  EXPECT_EQ(done.cache_miss().position(), 17);
}

// Callers that asked to ignore the cache are told so, known or not.
TEST(CacheMissTest, WhyIsToldToKnownCallers) {
  const testing::TempDirectory directory;
  directory.Write("token", "s3cret\n");
  for (const bool known : {false, true}) {
    TestServer server(
        known ? std::vector<std::string>{"--auth-token-file", (directory.path() / "token").string()}
              : std::vector<std::string>());
    server.Serve();
    const auto told = [&](CacheMiss::Reason reason) {
      server.engine().set_scripter([reason](const RequestSpec&) {
        FakeScript script;
        script.completion.usage.cache_miss = CacheMiss{reason, 17};
        return script;
      });
      grpc::ClientContext context;
      if (known) context.AddMetadata("authorization", "Bearer s3cret");
      v1::GenerateRequest request;
      request.mutable_spec()->set_text("hi");
      v1::GenerateResponse response;
      EXPECT_TRUE(server.inference()->Generate(&context, request, &response).ok());
      const v1::CacheMiss& answer = response.completion().usage().cache_miss();
      EXPECT_EQ(answer.position(), 17);
      return answer.reason();
    };
    EXPECT_EQ(told(CacheMiss::Reason::kEvicted),
              known ? v1::CacheMiss::REASON_EVICTED : v1::CacheMiss::REASON_UNSPECIFIED);
    EXPECT_EQ(told(CacheMiss::Reason::kOtherModel),
              known ? v1::CacheMiss::REASON_OTHER_MODEL : v1::CacheMiss::REASON_UNSPECIFIED);
    EXPECT_EQ(told(CacheMiss::Reason::kIgnored), v1::CacheMiss::REASON_IGNORED);
  }
}

TEST_F(PrefillDocumentTest, TheSameNameFollowsTheSameCallOnly) {
  ASSERT_TRUE(server_.Upload("a", "Alpha").ok());
  auto request = Of("a");
  request.set_request_id("mine");
  EXPECT_EQ(Prefill(request).events.back().done().request_id(), "mine");
  ASSERT_TRUE(Prefill(request).status.ok());
  EXPECT_EQ(server_.engine().submitted().size(), 1u) << "the first one's end is told again";
  request.set_system("other");
  EXPECT_EQ(Details(Prefill(request).status).reason, "REQUEST_EXISTS");
  // A question with the name and the same beginning is something else, too.
  v1::StreamGenerateRequest question;
  question.mutable_spec()->set_request_id("mine");
  question.mutable_spec()->add_documents("a");
  v1::Message& message = *question.mutable_spec()->mutable_messages()->add_messages();
  message.set_role("user");
  message.set_content("?");
  EXPECT_EQ(Details(ReadStream(*server_.inference(), question).status).reason, "REQUEST_EXISTS");
}

TEST_F(PrefillDocumentTest, CancellingEndsTheWork) {
  server_.engine().set_scripter(
      [](const RequestSpec&) { return Endless(std::chrono::milliseconds(5)); });
  ASSERT_TRUE(server_.Upload("a", "Alpha").ok());
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
  EXPECT_EQ(Prefill(Of("a"), &context).status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(server_.engine().WaitUntilIdle(std::chrono::seconds(10)));
}

}  // namespace
}  // namespace annulus::server
