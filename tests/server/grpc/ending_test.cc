// The ways in which a generation ends early: cancel, disconnect, deadline, slow readers, answers
// that are too long. Each stops the engine's work and leaves others alone.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/server/test_server.h"

namespace annulus::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using std::chrono::system_clock;

constexpr milliseconds kSoon{5000};  // generous: the machine may be busy; typically under 5 ms

class EndingTest : public ::testing::Test {
 protected:
  EndingTest() : stub_(server_.inference()) {
    server_.engine().set_scripter([](const RequestSpec&) { return Endless(milliseconds(1)); });
    server_.Serve();
  }

  FakeEngine& engine() { return server_.engine(); }

  // Until one Cancel has reached the engine since `start`.
  void ExpectCancelledSoonAfter(steady_clock::time_point start) {
    ASSERT_TRUE(Eventually([&] { return engine().cancelled().size() == 1; }));
    EXPECT_LT(engine().cancelled()[0] - start, kSoon);
    EXPECT_TRUE(engine().WaitUntilIdle(kSoon));
  }

  TestServer server_;
  std::unique_ptr<v1::InferenceService::Stub> stub_;
};

TEST_F(EndingTest, CancelOfAStreamReachesTheEngine) {
  grpc::ClientContext context;
  const auto reader = stub_->StreamGenerate(&context, TextStreamRequest("x"));
  v1::StreamGenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  const auto start = steady_clock::now();
  context.TryCancel();
  ExpectCancelledSoonAfter(start);
  while (reader->Read(&response)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(EndingTest, CancelOfAUnaryCallReachesTheEngine) {
  grpc::ClientContext context;
  steady_clock::time_point start;
  std::thread canceller([&] {
    ASSERT_TRUE(Eventually([&] { return engine().active() == 1; }));
    start = steady_clock::now();
    context.TryCancel();
  });
  v1::GenerateResponse response;
  const grpc::Status status = stub_->Generate(&context, TextRequest("x"), &response);
  canceller.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
  ExpectCancelledSoonAfter(start);
}

TEST_F(EndingTest, CancelWhileThePromptIsPreparedCancelsToo) {
  engine().set_tokenize_delay(milliseconds(100));
  grpc::ClientContext context;
  const auto reader = stub_->StreamGenerate(&context, TextStreamRequest("x"));
  std::this_thread::sleep_for(milliseconds(30));
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  std::this_thread::sleep_for(milliseconds(150));
  EXPECT_TRUE(engine().WaitUntilIdle(kSoon));
}

TEST_F(EndingTest, DisconnectReachesTheEngine) {
  grpc::ClientContext context;
  auto channel = server_.NewChannel();
  auto stub = v1::InferenceService::NewStub(channel);
  auto reader = stub->StreamGenerate(&context, TextStreamRequest("x"));
  v1::StreamGenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  const auto start = steady_clock::now();
  reader.reset();
  stub.reset();
  context.TryCancel();  // without it the library keeps the connection for the call's sake
  channel.reset();
  ExpectCancelledSoonAfter(start);
}

TEST_F(EndingTest, TheDeadlineIsGivenToTheEngineOnTheSteadyClock) {
  grpc::ClientContext context;
  context.set_deadline(system_clock::now() + milliseconds(300));
  const auto start = steady_clock::now();
  const StreamResult result = ReadStream(*stub_, TextStreamRequest("x"), &context);
  EXPECT_EQ(result.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_LT(steady_clock::now() - start, milliseconds(300) + kSoon);
  const auto deadline = engine().submitted()[0].deadline;
  EXPECT_GT(deadline, start + milliseconds(100));
  EXPECT_LT(deadline, start + milliseconds(300) + kSoon);
  EXPECT_TRUE(engine().WaitUntilIdle(kSoon));
}

TEST_F(EndingTest, StrangeDeadlinesAreHarmless) {
  for (const auto deadline :
       {system_clock::now() - std::chrono::hours(1), system_clock::now() + milliseconds(1)}) {
    grpc::ClientContext context;
    context.set_deadline(deadline);
    const StreamResult result = ReadStream(*stub_, TextStreamRequest("x"), &context);
    EXPECT_EQ(result.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  }
  EXPECT_TRUE(engine().WaitUntilIdle(kSoon));
  engine().set_scripter([](const RequestSpec&) { return FakeScript(); });
  // Of calls that the client has given up some may still arrive.
  const auto far = [&] {
    const auto submitted = engine().submitted();
    return std::count_if(submitted.begin(), submitted.end(), [](const RequestSpec& spec) {
      return spec.deadline > steady_clock::now() + std::chrono::hours(1);
    });
  };
  int calls = 0;
  for (const auto deadline : {system_clock::time_point::max(),
                              system_clock::now() + std::chrono::hours(24 * 365 * 100)}) {
    grpc::ClientContext context;
    context.set_deadline(deadline);
    EXPECT_TRUE(ReadStream(*stub_, TextStreamRequest("x"), &context).status.ok());
    EXPECT_EQ(far(), ++calls);
  }
}

TEST_F(EndingTest, ASlowReaderFillsOnlyItsOwnSink) {
  engine().set_slow_reader_timeout(milliseconds(200));
  engine().set_scripter([](const RequestSpec& spec) {
    return spec.prompt.back() == 's' ? Endless(milliseconds(0), std::string(4096, 'x'))
                                     : Endless(milliseconds(5));
  });
  grpc::ClientContext fast_context;
  const auto fast = stub_->StreamGenerate(&fast_context, TextStreamRequest("fast"));
  v1::StreamGenerateResponse response;
  ASSERT_TRUE(fast->Read(&response));

  grpc::ClientContext slow_context;
  const auto slow_channel = server_.NewChannel();
  const auto slow_stub = v1::InferenceService::NewStub(slow_channel);
  const auto slow = slow_stub->StreamGenerate(&slow_context, TextStreamRequest("reads"));
  // Nobody reads: the fake engine sees no room and gives up after its time; the other stream runs
  // on.
  ASSERT_TRUE(Eventually([&] { return engine().active() == 2; }));
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(fast->Read(&response));
  ASSERT_TRUE(Eventually([&] { return engine().active() == 1; }));

  // What was sent before is still valid, then comes the reason.
  size_t received = 0;
  while (slow->Read(&response)) received += response.delta().text().size();
  const grpc::Status status = slow->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Details(status).reason, "SLOW_READER");
  EXPECT_GT(received, 0u);
  EXPECT_LT(received, size_t{16} << 20);  // transport windows and one sink, not the whole answer
  fast_context.TryCancel();
}

TEST_F(EndingTest, ANeverReadStreamCanStillBeCancelled) {
  engine().set_scripter(
      [](const RequestSpec&) { return Endless(milliseconds(0), std::string(4096, 'x')); });
  grpc::ClientContext context;
  const auto reader = stub_->StreamGenerate(&context, TextStreamRequest("x"));
  ASSERT_TRUE(Eventually([&] { return engine().active() == 1; }));
  std::this_thread::sleep_for(milliseconds(100));
  const auto start = steady_clock::now();
  context.TryCancel();
  ExpectCancelledSoonAfter(start);
}

TEST(AnswerLimitTest, AnAnswerBeyondOneMessageIsEndedWithAdvice) {
  TestServer server({"--max-message-size", "64KiB"});
  server.engine().set_scripter(
      [](const RequestSpec&) { return Endless(milliseconds(0), std::string(1024, 'x')); });
  server.Serve();
  grpc::ClientContext context;
  v1::GenerateResponse response;
  const grpc::Status status = server.inference()->Generate(&context, TextRequest("x"), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_EQ(Details(status).reason, "ANSWER_TOO_LARGE");
  EXPECT_EQ(Details(status).field, "spec.sampling");
  EXPECT_EQ(status.error_message().find("spec.sampling: "), 0u) << status.error_message();
  EXPECT_TRUE(server.engine().WaitUntilIdle(kSoon));
}

// Text that tokenizers cut.
std::string Words(size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += "word ";
  return text;
}

// The engine may end well before it hears that a part of its answer did not fit.
TEST(AnswerLimitTest, AnAnswerThatEndsBeyondTheLimitIsNotCutSilently) {
  TestServer server({"--max-message-size", "64KiB"});
  server.engine().set_scripter([](const RequestSpec&) {
    FakeScript script;
    script.deltas.assign(70, std::string(1024, 'x'));
    return script;
  });
  server.Serve();
  for (int i = 0; i < 20; ++i) {
    grpc::ClientContext context;
    v1::GenerateResponse response;
    const grpc::Status status = server.inference()->Generate(&context, TextRequest("x"), &response);
    EXPECT_EQ(Details(status).reason, "ANSWER_TOO_LARGE") << response.text().size();
  }
}

// Whatever is left at the end must fit too.
TEST(AnswerLimitTest, DetailsThatDoNotFitAreAnErrorWithAdvice) {
  TestServer server({"--max-message-size", "64KiB"});
  server.engine().set_scripter([](const RequestSpec&) {
    FakeScript script;
    script.deltas = {"x"};
    script.completion.status = absl::OkStatus();
    script.completion.attention.policy = std::string(70'000, 'p');
    return script;
  });
  server.Serve();
  grpc::ClientContext context;
  v1::GenerateResponse response;
  const grpc::Status status = server.inference()->Generate(&context, TextRequest("x"), &response);
  const grpc::Status streamed = ReadStream(*server.inference(), TextStreamRequest("x")).status;
  for (const grpc::Status& failed : {status, streamed}) {
    EXPECT_EQ(Details(failed).reason, "ANSWER_TOO_LARGE") << failed.error_message();
    EXPECT_EQ(Details(failed).field, "spec.attention.details");
  }
}

// Requests of names and numbers are decoded on threads that all calls share.
TEST(MessageLimitTest, SmallCallsTakeSmallMessages) {
  TestServer server;
  server.Serve();
  v1::GetDocumentRequest request;
  request.set_name("a");
  request.GetReflection()->MutableUnknownFields(&request)->AddLengthDelimited(
      1000, std::string(100'000, 'x'));
  grpc::ClientContext context;
  v1::GetDocumentResponse response;
  const grpc::Status status = server.documents()->GetDocument(&context, request, &response);
  EXPECT_EQ(Details(status).reason, "MESSAGE_TOO_LARGE") << status.error_message();
  // gRPC's automatic retries would send the same again.
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto pushback = trailers.find("grpc-retry-pushback-ms");
  ASSERT_NE(pushback, trailers.end());
  EXPECT_EQ(std::string(pushback->second.data(), pushback->second.size()), "-1");
}

// Text without a place to cut it takes more while it is tokenized.
TEST(PromptMemoryTest, StretchesWithoutACutAreForeseen) {
  TestServer server({"--max-prompts-memory", "4MiB"});
  server.engine().set_max_context(1 << 20);
  server.Serve();
  EXPECT_TRUE(ReadStream(*server.inference(), TextStreamRequest(Words(150'000))).status.ok());
  const grpc::Status refused =
      ReadStream(*server.inference(), TextStreamRequest(std::string(150'000, 'x'))).status;
  EXPECT_EQ(Details(refused).reason, "MEMORY_TOO_SMALL") << refused.error_message();
  EXPECT_EQ(Details(refused).field, "spec");
}

// A schema of some hundred kilobytes makes many times that while it is compiled.
TEST(PromptMemoryTest, CompilingAnOutputConstraintIsBounded) {
  TestServer server({"--max-prompts-memory", "4MiB"});
  server.Serve();
  const auto with_values = [](int values) {
    v1::StreamGenerateRequest request = TextStreamRequest("x");
    std::string schema = R"({"enum":[1)";
    for (int i = 0; i < values; ++i) absl::StrAppend(&schema, ",\"value ", i, "\"");
    request.mutable_spec()->mutable_output()->set_json_schema(schema + "]}");
    return request;
  };
  const grpc::Status refused = ReadStream(*server.inference(), with_values(30'000)).status;
  EXPECT_EQ(Details(refused).reason, "MEMORY_TOO_SMALL") << refused.error_message();
  EXPECT_TRUE(ReadStream(*server.inference(), with_values(30)).status.ok());
}

TEST(PromptMemoryTest, PromptsOfCallsUnderWayAreBounded) {
  TestServer server({"--max-prompts-memory", "4MiB"});
  server.engine().set_max_context(1 << 20);
  server.engine().set_scripter([](const RequestSpec&) { return Endless(milliseconds(5)); });
  server.Serve();
  const auto stub = server.inference();
  {
    grpc::ClientContext context;
    const auto reader = stub->StreamGenerate(&context, TextStreamRequest(Words(200'000)));
    v1::StreamGenerateResponse response;
    ASSERT_TRUE(reader->Read(&response));
    const grpc::Status later = ReadStream(*stub, TextStreamRequest(Words(200'000))).status;
    EXPECT_EQ(Details(later).reason, "QUEUE_FULL") << later.error_message();
    EXPECT_GT(Details(later).retry_ms, 0);
    context.TryCancel();
  }
  EXPECT_TRUE(Eventually([&] {
    grpc::ClientContext context;
    const auto reader = stub->StreamGenerate(&context, TextStreamRequest(Words(200'000)));
    v1::StreamGenerateResponse response;
    const bool fits = reader->Read(&response);
    context.TryCancel();
    return fits;
  }));
  EXPECT_TRUE(Eventually([&] {
    const auto request = TextStreamRequest(Words(300'000));
    return Details(ReadStream(*stub, request).status).reason == "MEMORY_TOO_SMALL";
  }));
}

TEST(PromptMemoryTest, RequestsUnderWayAreBoundedAsTheyWereSent) {
  TestServer server({"--max-prompts-memory", "1500KiB"});
  server.engine().set_scripter([](const RequestSpec&) { return Endless(milliseconds(5)); });
  server.Serve();
  const auto stub = server.inference();
  const std::string ballast(600'000, '\n');
  v1::StreamGenerateRequest heavy = TextStreamRequest("x");
  heavy.GetReflection()->MutableUnknownFields(&heavy)->AddLengthDelimited(1000, ballast);
  v1::TokenizeRequest tokenize;
  tokenize.set_text(ballast);
  const auto tokenize_status = [&] {
    grpc::ClientContext context;
    v1::TokenizeResponse response;
    return stub->Tokenize(&context, tokenize, &response);
  };
  {
    grpc::ClientContext context;
    const auto reader = stub->StreamGenerate(&context, heavy);
    v1::StreamGenerateResponse response;
    ASSERT_TRUE(reader->Read(&response));
    EXPECT_EQ(Details(ReadStream(*stub, heavy).status).reason, "QUEUE_FULL");
    EXPECT_EQ(Details(tokenize_status()).reason, "QUEUE_FULL");
    context.TryCancel();
  }
  // Alone it fits, but not with its ids and its answer.
  EXPECT_TRUE(Eventually([&] { return Details(tokenize_status()).reason == "MEMORY_TOO_SMALL"; }));
  tokenize.set_text("x");
  EXPECT_TRUE(Eventually([&] { return tokenize_status().ok(); }));
}

TEST(EngineEndsFirstTest, CallsEndWhenTheEngineIsDestroyedAfterTheServer) {
  auto server = std::make_unique<TestServer>();
  server->engine().set_scripter([](const RequestSpec&) { return Endless(milliseconds(1)); });
  server->Serve();
  const auto stub = server->inference();
  grpc::ClientContext context;
  const auto reader = stub->StreamGenerate(&context, TextStreamRequest("x"));
  v1::StreamGenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  server->StopServer();  // the call ends; the engine still holds the sink
  while (reader->Read(&response)) {
  }
  EXPECT_FALSE(reader->Finish().ok());
  server.reset();
}

TEST_F(EndingTest, ManyStreamsThatComeAndGoLeaveNothing) {
  engine().set_scripter([](const RequestSpec&) { return Endless(milliseconds(2)); });
  std::vector<std::thread> clients;
  for (int client = 0; client < 4; ++client) {
    clients.emplace_back([this, client] {
      const auto stub = v1::InferenceService::NewStub(server_.NewChannel());
      for (int i = 0; i < 25; ++i) {
        grpc::ClientContext context;
        if (i % 3 == 0) context.set_deadline(system_clock::now() + milliseconds(i % 7));
        const auto reader = stub->StreamGenerate(&context, TextStreamRequest("x"));
        v1::StreamGenerateResponse response;
        for (int reads = (i + client) % 4; reads > 0; --reads) reader->Read(&response);
        context.TryCancel();
        EXPECT_FALSE(reader->Finish().ok());
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_TRUE(engine().WaitUntilIdle(milliseconds(5000)));
}

}  // namespace
}  // namespace annulus::server
