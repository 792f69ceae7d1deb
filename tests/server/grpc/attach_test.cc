// A request_id is an idempotency key: calls that bring it again follow the request that runs, or
// get the answer that is complete.

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "tests/server/grpc/named_tenants.h"
#include "tests/server/test_server.h"

namespace annulus::server {
namespace {

using std::chrono::milliseconds;

v1::StreamGenerateRequest Named(const std::string& id, const std::string& text = "hi") {
  v1::StreamGenerateRequest request = TextStreamRequest(text);
  request.mutable_spec()->set_request_id(id);
  return request;
}

v1::GenerateRequest Whole(const v1::StreamGenerateRequest& request) {
  v1::GenerateRequest whole;
  *whole.mutable_spec() = request.spec();
  return whole;
}

// A call of StreamGenerate that is read step by step.
class Call {
 public:
  Call(v1::InferenceService::Stub& stub, const v1::StreamGenerateRequest& request,
       milliseconds limit = std::chrono::seconds(60), const std::string& tenant = "") {
    if (!tenant.empty()) context_.AddMetadata("x-tenant", tenant);
    context_.set_deadline(std::chrono::system_clock::now() + limit);
    reader_ = stub.StreamGenerate(&context_, request);
  }
  ~Call() { context_.TryCancel(); }

  // Reads until the answer has so many bytes; false if it ended before.
  bool ReadTo(size_t bytes) {
    v1::StreamGenerateResponse response;
    while (text.size() < bytes) {
      if (!reader_->Read(&response)) return false;
      text += response.delta().text();
      kinds.push_back(response.event_case());
      if (response.has_origin()) origin = response.origin();
    }
    return true;
  }
  grpc::Status End() {
    ReadTo(SIZE_MAX);
    return reader_->Finish();
  }
  void Cancel() { context_.TryCancel(); }

  std::string text;
  std::vector<int> kinds;
  v1::Origin origin;  // of the first event

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::StreamGenerateResponse>> reader_;
};

class AttachTest : public ::testing::Test {
 protected:
  void Start(std::vector<std::string> flags = {},
             std::unique_ptr<const Authenticator> authenticator = nullptr) {
    server_ = std::make_unique<TestServer>(std::move(flags), std::move(authenticator));
    server_->engine().set_scripter([script = script_](const RequestSpec&) { return script; });
    stub_ = server_->inference();
    server_->Serve();
  }

  FakeEngine& engine() { return server_->engine(); }

  // Numbers, so that a gap or a repetition shows.
  static FakeScript Numbers(int count, milliseconds interval) {
    FakeScript script;
    script.queued = {1};
    script.progress_events = 1;
    for (int i = 0; i < count; ++i) script.deltas.push_back(std::to_string(i) + ",");
    script.interval = interval;
    return script;
  }
  static std::string Text(const FakeScript& script) {
    std::string text;
    for (const std::string& delta : script.deltas) text += delta;
    return text;
  }

  // What every request does, from Start on.
  FakeScript script_ = Numbers(200, milliseconds(2));
  std::unique_ptr<TestServer> server_;
  std::unique_ptr<v1::InferenceService::Stub> stub_;
};

TEST_F(AttachTest, ASecondCallGetsTheEventsFromTheStartAndBothReceive) {
  Start();
  Call first(*stub_, Named("a"));
  ASSERT_TRUE(first.ReadTo(100));
  Call second(*stub_, Named("a"));
  grpc::ClientContext context;
  v1::GenerateResponse whole;
  ASSERT_TRUE(stub_->Generate(&context, Whole(Named("a")), &whole).ok());
  EXPECT_TRUE(first.End().ok());
  EXPECT_TRUE(second.End().ok());
  for (const std::string& text : {first.text, second.text, whole.text()}) {
    EXPECT_EQ(text, Text(script_));
  }
  EXPECT_EQ(second.kinds.front(), v1::StreamGenerateResponse::kQueued);
  EXPECT_EQ(second.kinds[1], v1::StreamGenerateResponse::kPromptProgress);
  EXPECT_EQ(whole.completion().usage().completion_tokens(), 200);
  EXPECT_EQ(whole.completion().request_id(), "a");
  EXPECT_EQ(whole.completion().origin().seed(), engine().submitted().front().sampling.seed);
  EXPECT_EQ(engine().submitted().size(), 1u);
}

// The first event of a call that comes later is `queued` too, but by then the ranks are known.
TEST_F(AttachTest, TheFirstEventOfALaterCallTellsTheRanks) {
  script_.completion.attention.ring_degree = 3;
  Start();
  Call first(*stub_, Named("a"));
  ASSERT_TRUE(first.ReadTo(1));
  Call second(*stub_, Named("a"));
  EXPECT_TRUE(second.End().ok());
  EXPECT_TRUE(first.End().ok());
  Call third(*stub_, Named("a"));
  EXPECT_TRUE(third.End().ok());
  for (const Call* later : {&second, &third}) {
    EXPECT_EQ(later->kinds.front(), v1::StreamGenerateResponse::kQueued);
    EXPECT_EQ(later->origin.ring_degree(), 3);
    EXPECT_EQ(later->origin.seed(), first.origin.seed());
    EXPECT_EQ(later->origin.kernels(), first.origin.kernels());
  }
  EXPECT_EQ(engine().submitted().size(), 1u);
}

TEST_F(AttachTest, AKeptAnswerTellsTheRanksThoughNoProgressCame) {
  script_.completion.attention.ring_degree = 3;
  script_.progress_events = 0;
  Start();
  EXPECT_TRUE(Call(*stub_, Named("a")).End().ok());
  Call later(*stub_, Named("a"));
  EXPECT_TRUE(later.End().ok());
  EXPECT_EQ(later.kinds.front(), v1::StreamGenerateResponse::kQueued);
  EXPECT_EQ(later.origin.ring_degree(), 3);
}

TEST_F(AttachTest, WorkLastsWhileACallIsAttachedAndStopsWithTheLast) {
  script_ = Endless(milliseconds(1));
  Start();
  auto first = std::make_unique<Call>(*stub_, Named("a"));
  ASSERT_TRUE(first->ReadTo(3));
  Call second(*stub_, Named("a"));
  ASSERT_TRUE(second.ReadTo(3));
  first->Cancel();
  EXPECT_EQ(first->End().error_code(), grpc::StatusCode::CANCELLED);
  ASSERT_TRUE(second.ReadTo(second.text.size() + 200));
  EXPECT_TRUE(engine().cancelled().empty());
  second.Cancel();
  EXPECT_TRUE(Eventually([&] { return engine().active() == 0; }));
  EXPECT_EQ(engine().cancelled().size(), 1u);
  // The name is free: a retry is work of its own.
  Call third(*stub_, Named("a", "something else"));
  ASSERT_TRUE(third.ReadTo(3));
  EXPECT_EQ(engine().submitted().size(), 2u);
}

TEST_F(AttachTest, ADeadlineEndsItsOwnCallAlone) {
  script_ = Endless(milliseconds(1));
  Start();
  Call first(*stub_, Named("a"), milliseconds(1500));
  ASSERT_TRUE(first.ReadTo(3));
  Call second(*stub_, Named("a"));
  ASSERT_TRUE(second.ReadTo(3));
  EXPECT_EQ(first.End().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  ASSERT_TRUE(second.ReadTo(second.text.size() + 200));
  const RequestSpec spec = engine().submitted()[0];
  EXPECT_EQ(spec.deadline, SteadyTime::max());
  EXPECT_LT(spec.wanted_by, SteadyTime::max());
}

TEST_F(AttachTest, ACompleteAnswerStaysForTheWindow) {
  script_ = Numbers(20, milliseconds(1));
  Start({"--attach-window", "1500ms"});
  EXPECT_TRUE(Call(*stub_, Named("a")).End().ok());
  Call again(*stub_, Named("a"));
  EXPECT_TRUE(again.End().ok());
  EXPECT_EQ(again.text, Text(script_));
  EXPECT_EQ(engine().submitted().size(), 1u);
  EXPECT_TRUE(Eventually([&] {
    EXPECT_TRUE(Call(*stub_, Named("a")).End().ok());
    return engine().submitted().size() == 2;
  }));
}

TEST_F(AttachTest, WithoutAWindowOnlyWhatRunsIsFollowed) {
  Start({"--attach-window", "0s"});
  EXPECT_TRUE(Call(*stub_, Named("a")).End().ok());
  EXPECT_TRUE(Call(*stub_, Named("a")).End().ok());
  EXPECT_EQ(engine().submitted().size(), 2u);
}

TEST_F(AttachTest, OtherContentUnderTheNameIsRefusedAndSaysWhatToDo) {
  script_ = Endless(milliseconds(1));
  Start();
  Call first(*stub_, Named("a"));
  ASSERT_TRUE(first.ReadTo(1));
  std::vector<v1::StreamGenerateRequest> others(3, Named("a"));
  others[0].mutable_spec()->set_text("ho");
  others[1].mutable_spec()->mutable_sampling()->set_seed(1);
  others[2].mutable_spec()->mutable_attention()->set_details(true);
  for (const v1::StreamGenerateRequest& other : others) {
    const grpc::Status status = Call(*stub_, other).End();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::ALREADY_EXISTS);
    EXPECT_NE(status.error_message().find("use a new request_id"), std::string::npos);
    EXPECT_EQ(Details(status).reason, "REQUEST_EXISTS");
    EXPECT_EQ(Details(status).resource_type, "request");
    EXPECT_EQ(Details(status).resource_name, "a");
  }
  EXPECT_EQ(engine().submitted().size(), 1u);
  EXPECT_TRUE(first.ReadTo(first.text.size() + 20));
}

// The title is part of what the model reads.
TEST_F(AttachTest, AnotherTitleOfTheSameTextIsOtherContent) {
  Start();
  v1::StreamGenerateRequest request = Named("a");
  request.mutable_spec()->add_documents("doc");
  ASSERT_TRUE(server_->Upload("doc", "text", nullptr, 1000, "one").ok());
  EXPECT_TRUE(Call(*stub_, request).End().ok());
  v1::DeleteDocumentRequest remove;
  remove.set_name("doc");
  grpc::ClientContext context;
  v1::DeleteDocumentResponse removed;
  ASSERT_TRUE(server_->documents()->DeleteDocument(&context, remove, &removed).ok());
  ASSERT_TRUE(server_->Upload("doc", "text", nullptr, 1000, "two").ok());
  EXPECT_EQ(Call(*stub_, request).End().error_code(), grpc::StatusCode::ALREADY_EXISTS);
}

// A name is its tenant's: another with the same content, or other, has a request of its own.
TEST_F(AttachTest, NamesOfTenantsAreApart) {
  script_ = Endless(milliseconds(1));
  Start({}, std::make_unique<NamedTenants>());
  const auto as = [&](const std::string& tenant, const v1::StreamGenerateRequest& request) {
    return std::make_unique<Call>(*stub_, request, std::chrono::seconds(60), tenant);
  };
  const auto first = as("a", Named("x"));
  ASSERT_TRUE(first->ReadTo(50));
  const auto same = as("b", Named("x"));
  ASSERT_TRUE(same->ReadTo(3));
  const auto other = as("c", Named("x", "other content"));
  ASSERT_TRUE(other->ReadTo(3));
  ASSERT_EQ(engine().submitted().size(), 3u);
  EXPECT_EQ(engine().submitted()[1].tenant.name(), "b");
  const auto again = as("a", Named("x"));
  ASSERT_TRUE(again->ReadTo(50));
  EXPECT_EQ(engine().submitted().size(), 3u);
  EXPECT_EQ(as("b", Named("x", "other content"))->End().error_code(),
            grpc::StatusCode::ALREADY_EXISTS);
  // The end of one is not another's.
  same->Cancel();
  EXPECT_TRUE(Eventually([&] { return engine().cancelled().size() == 1; }));
  ASSERT_TRUE(first->ReadTo(first->text.size() + 50));
}

// A request that could not be handed to the engine leaves nothing that a retry would wait for.
TEST_F(AttachTest, WithoutMemoryToSubmitARetryHasWorkOfItsOwn) {
  Start();
  v1::StreamGenerateRequest request = Named("a");
  request.mutable_spec()->mutable_token_ids()->add_ids(7);  // is not tokenized
  engine().set_out_of_memory(true);
  EXPECT_EQ(Call(*stub_, request).End().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  engine().set_out_of_memory(false);
  Call again(*stub_, request, std::chrono::seconds(20));
  EXPECT_TRUE(again.End().ok());
  EXPECT_EQ(again.text, Text(script_));
}

// A failure is not an answer: whoever tries again has work of its own.
TEST_F(AttachTest, AFailedRequestIsTriedAnew) {
  script_.completion.status = absl::UnavailableError("a rank failed");
  Start();
  EXPECT_EQ(Call(*stub_, Named("a")).End().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Call(*stub_, Named("a")).End().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(engine().submitted().size(), 2u);
  engine().set_submit_error(absl::ResourceExhaustedError("full"));
  EXPECT_EQ(Call(*stub_, Named("b")).End().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  engine().set_submit_error(absl::OkStatus());
  EXPECT_EQ(Call(*stub_, Named("b")).End().error_code(), grpc::StatusCode::UNAVAILABLE);
}

// Following takes no place in the queue.
TEST_F(AttachTest, AFullQueueKeepsNobodyFromARequestThatItHasTaken) {
  Start();
  Call first(*stub_, Named("a"));
  ASSERT_TRUE(first.ReadTo(10));
  absl::Status full = absl::ResourceExhaustedError("the queue is full");
  full.SetPayload(kRetryPayload, absl::Cord("750"));
  engine().set_submit_error(full);
  Call second(*stub_, Named("a"));
  EXPECT_EQ(Call(*stub_, Named("b")).End().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(first.End().ok());
  EXPECT_TRUE(second.End().ok());
  Call late(*stub_, Named("a"));  // the answer is complete and kept
  EXPECT_TRUE(late.End().ok());
  for (const std::string& text : {first.text, second.text, late.text}) {
    EXPECT_EQ(text, Text(script_));
  }
  EXPECT_EQ(engine().submitted().size(), 1u);
  // Nothing of the refused one is in the way of its retry.
  engine().set_submit_error(absl::OkStatus());
  EXPECT_TRUE(Call(*stub_, Named("b")).End().ok());
}

// Many calls at once: all of them, whichever comes first, have one answer.
TEST_F(AttachTest, CallsAtTheSameTimeShareOneRequest) {
  script_ = Numbers(50, milliseconds(5));
  Start();
  std::vector<std::thread> threads;
  std::vector<std::string> texts(12);
  for (std::string& text : texts) {
    threads.emplace_back([&] {
      Call call(*stub_, Named("a"));
      if (call.End().ok()) text = call.text;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts) EXPECT_EQ(text, Text(script_));
  EXPECT_EQ(engine().submitted().size(), 1u);
}

TEST_F(AttachTest, TooManyFollowersAreSentAway) {
  script_ = Endless(milliseconds(1));
  Start();
  std::vector<std::unique_ptr<Call>> calls;
  for (int i = 0; i < 16; ++i) {
    calls.push_back(std::make_unique<Call>(*stub_, Named("a")));
    ASSERT_TRUE(calls.back()->ReadTo(1));
  }
  const grpc::Status status = Call(*stub_, Named("a")).End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_GT(Details(status).retry_ms, 0);
}

// A reader that stands still misses nothing, and holds nobody up.
TEST_F(AttachTest, ASlowFollowerDoesNotHoldUpAnother) {
  script_ = FakeScript();
  script_.deltas.assign(3000, std::string(2000, 'x'));
  Start({"--slow-reader-timeout", "20s"});
  Call slow(*stub_, Named("a"));
  Call fast(*stub_, Named("a"));
  EXPECT_TRUE(fast.End().ok());
  EXPECT_EQ(fast.text.size(), 6'000'000u);
  EXPECT_TRUE(slow.End().ok());
  EXPECT_EQ(slow.text, fast.text);
}

// Answers that do not fit are not kept, the calls that follow them are none the worse, and complete
// ones make room.
TEST_F(AttachTest, KeptAnswersStayWithinTheirMemory) {
  script_ = FakeScript();
  script_.deltas.assign(200, std::string(1000, 'x'));
  Start({"--max-replay-memory", "1MiB", "--metrics", "127.0.0.1:0"});
  for (int i = 0; i < 20; ++i) {
    Call call(*stub_, Named(std::to_string(i)));
    EXPECT_TRUE(call.End().ok());
    EXPECT_EQ(call.text.size(), 200'000u);
    const auto samples = ScrapeSamples(server_->metrics_address());
    EXPECT_LE(samples.at("annulus_replay_memory_bytes"), 1 << 20);
    // Foreseen is what they took at most, so far.
    EXPECT_GE(samples.at("annulus_memory_foreseen_bytes{part=\"replay\"}"),
              samples.at("annulus_replay_memory_bytes"));
    EXPECT_GE(samples.at("annulus_memory_foreseen_bytes{part=\"replay\"}"), 200'000);
    EXPECT_LE(samples.at("annulus_memory_foreseen_bytes{part=\"replay\"}"), 1 << 20);
  }
  EXPECT_TRUE(Call(*stub_, Named("19")).End().ok());
  EXPECT_EQ(engine().submitted().size(), 20u);
  EXPECT_TRUE(Call(*stub_, Named("0")).End().ok());
  EXPECT_EQ(engine().submitted().size(), 21u);
  EXPECT_EQ(ScrapeSamples(server_->metrics_address()).at("annulus_calls_attached_total"), 1);
}

TEST_F(AttachTest, AnAnswerTooLargeToKeepCannotBeFollowed) {
  for (int i = 0; i < 100; ++i) script_.deltas[i] += std::string(100'000, 'x');
  script_.endless = true;
  Start({"--max-replay-memory", "1MiB"});
  Call first(*stub_, Named("a"));
  ASSERT_TRUE(first.ReadTo(3'000'000));
  const grpc::Status status = Call(*stub_, Named("a")).End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_NE(status.error_message().find("--max-replay-memory"), std::string::npos);
  ASSERT_TRUE(first.ReadTo(6'000'000));
  EXPECT_TRUE(first.text == Text(script_).substr(0, first.text.size()))
      << "something is missing, or came twice";
}

TEST_F(AttachTest, AStopWithAnswersKeptAndCallsAttachedEndsThem) {
  Start();
  EXPECT_TRUE(Call(*stub_, Named("kept")).End().ok());
  engine().set_scripter([](const RequestSpec&) { return Endless(milliseconds(1)); });
  Call first(*stub_, Named("a"));
  Call second(*stub_, Named("a"));
  ASSERT_TRUE(first.ReadTo(3) && second.ReadTo(3));
  server_->server().Stop(nullptr);
  EXPECT_FALSE(first.End().ok());
  EXPECT_FALSE(second.End().ok());
}

}  // namespace
}  // namespace annulus::server
