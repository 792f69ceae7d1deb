// AskMany: many questions in one call, each with an end of its own.

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/generation/ask_many_call.h"
#include "tests/server/test_server.h"
#include "tests/support/temp_directory.h"

namespace annulus::server {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

grpc::Status ToStatus(const google::rpc::Status& wire) {
  return {static_cast<grpc::StatusCode>(wire.code()), wire.message(), wire.SerializeAsString()};
}

std::string Text(const std::vector<int32_t>& prompt) {
  std::string text;
  for (const int32_t id : prompt) {
    text += id == FakeEngine::kBeginOfText ? "<s>" : std::string(1, static_cast<char>(id));
  }
  return text;
}

// What came of a call: of each question its text, and how it ended.
struct Answers {
  std::map<int, std::string> texts;
  std::map<int, v1::Completion> completions;
  std::map<int, grpc::Status> failures;
  std::vector<v1::AskManyResponse> events;
  grpc::Status status;
};

class AskManyTest : public ::testing::Test {
 protected:
  explicit AskManyTest(const std::vector<std::string>& flags = {}) : server_(flags) {
    server_.engine().set_chat_template(true);
    server_.Serve();
    stub_ = server_.inference();
    Answer([](const std::string& prompt) { return prompt; });
  }

  // Every answer is one token, made of the prompt's text.
  void Answer(const std::function<std::string(const std::string& prompt)>& answer,
              milliseconds interval = milliseconds(0)) {
    server_.engine().set_scripter([=](const RequestSpec& spec) {
      FakeScript script;
      script.queued = {0};
      script.progress_events = 1;
      script.deltas = {answer(Text(spec.prompt))};
      script.interval = interval;
      return script;
    });
  }

  static v1::AskManyRequest Questions(const std::vector<std::string>& questions) {
    v1::AskManyRequest request;
    for (const std::string& question : questions) request.add_questions(question);
    return request;
  }
  static v1::AskManyRequest Numbered(int count) {
    v1::AskManyRequest request;
    for (int i = 0; i < count; ++i) request.add_questions(absl::StrCat("q", i));
    return request;
  }

  static void Note(v1::AskManyResponse event, Answers& answers) {
    const int index = event.index();
    if (event.has_failure()) answers.failures.emplace(index, ToStatus(event.failure()));
    answers.texts[index] += event.event().delta().text();
    if (event.event().has_completion()) {
      answers.completions[index] = event.event().completion();
    }
    answers.events.push_back(std::move(event));
  }

  Answers Ask(const v1::AskManyRequest& request, grpc::ClientContext* context = nullptr) {
    grpc::ClientContext own;
    Answers answers;
    const auto reader = stub_->AskMany(context != nullptr ? context : &own, request);
    v1::AskManyResponse event;
    while (reader->Read(&event)) Note(event, answers);
    answers.status = reader->Finish();
    return answers;
  }

  TestServer server_;
  std::unique_ptr<v1::InferenceService::Stub> stub_;
};

TEST_F(AskManyTest, QuestionsCarryTheClientsAddressAndConnection) {
  ASSERT_TRUE(Ask(Questions({"Who?", "Why?"})).status.ok());
  const std::vector<RequestSpec> submitted = server_.engine().submitted();
  ASSERT_GE(submitted.size(), 2u);
  for (const RequestSpec& spec : submitted) {
    EXPECT_EQ(spec.client, "ipv4:127.0.0.1");
    EXPECT_THAT(spec.connection, StartsWith("ipv4:127.0.0.1:"));
    EXPECT_EQ(spec.connection, submitted[0].connection);
  }
}

TEST_F(AskManyTest, EachQuestionFollowsWhatAllShare) {
  ASSERT_TRUE(server_.Upload("story", "Once.").ok());
  v1::AskManyRequest request = Questions({"Who?", "Why?", "When?"});
  request.mutable_spec()->add_documents("story");
  request.mutable_spec()->set_request_id("mine");
  v1::Message& system = *request.mutable_spec()->mutable_messages()->add_messages();
  system.set_role("system");
  system.set_content("Be brief.");
  const Answers answers = Ask(request);
  ASSERT_TRUE(answers.status.ok()) << answers.status.error_message();
  ASSERT_EQ(answers.completions.size(), 3u);
  const std::vector<std::string> questions = {"Who?", "Why?", "When?"};
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(answers.texts.at(i), HasSubstr("system:Be brief.|user:"));
    EXPECT_THAT(answers.texts.at(i), HasSubstr("Once."));
    EXPECT_THAT(answers.texts.at(i), HasSubstr(questions[static_cast<size_t>(i)] + "|"));
    EXPECT_EQ(answers.completions.at(i).request_id(), absl::StrCat("mine-", i));
  }
  EXPECT_THAT(answers.texts.at(2), ::testing::Not(HasSubstr("Why?")));
}

TEST_F(AskManyTest, EventsOfAQuestionComeAsStreamGenerateSendsThem) {
  const Answers answers = Ask(Numbered(5));
  ASSERT_TRUE(answers.status.ok());
  for (int i = 0; i < 5; ++i) {
    std::vector<int> kinds;
    for (const v1::AskManyResponse& event : answers.events) {
      if (event.index() != i) continue;
      EXPECT_EQ(event.event().has_origin(), kinds.empty());
      kinds.push_back(event.event().event_case());
    }
    EXPECT_TRUE(std::is_sorted(kinds.begin(), kinds.end()));
    EXPECT_EQ(kinds.back(), v1::StreamGenerateResponse::kCompletion);
  }
}

TEST_F(AskManyTest, TextIsContinuedByTheQuestion) {
  v1::AskManyRequest request = Questions({"one", "two"});
  request.mutable_spec()->set_text("Say ");
  const Answers answers = Ask(request);
  ASSERT_TRUE(answers.status.ok());
  EXPECT_EQ(answers.texts.at(0), "<s>Say one");
  EXPECT_EQ(answers.texts.at(1), "<s>Say two");
}

TEST_F(AskManyTest, OneIsAloneUntilItsAnswerBegins) {
  Answer([](const std::string&) { return "x"; }, milliseconds(20));
  const Answers answers = Ask(Numbered(4));
  ASSERT_TRUE(answers.status.ok());
  // Nothing of another comes before the first delta.
  for (const v1::AskManyResponse& event : answers.events) {
    EXPECT_EQ(event.index(), 0);
    if (event.event().has_delta()) break;
  }
  EXPECT_EQ(answers.completions.size(), 4u);
}

TEST_F(AskManyTest, SixteenRunAtOnceAndNotMore) {
  server_.engine().set_scripter([](const RequestSpec&) { return Endless(milliseconds(5)); });
  grpc::ClientContext context;
  const auto reader = stub_->AskMany(&context, Numbered(60));
  v1::AskManyResponse event;
  std::set<int> seen;
  while (seen.size() < AskManyCall::kAtOnce && reader->Read(&event)) seen.insert(event.index());
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(reader->Read(&event));
  EXPECT_EQ(server_.engine().submitted().size(), AskManyCall::kAtOnce);
  context.TryCancel();
  while (reader->Read(&event)) {
  }
  reader->Finish();
}

TEST_F(AskManyTest, AThousandAreAnswered) {
  constexpr int kMost = 1000;
  const Answers answers = Ask(Numbered(kMost));
  ASSERT_TRUE(answers.status.ok()) << answers.status.error_message();
  EXPECT_EQ(answers.completions.size(), kMost);
  EXPECT_THAT(answers.texts.at(kMost - 1), ::testing::HasSubstr(absl::StrCat("q", kMost - 1)));
}

// Documents may leave room for one question and not for another, also if the first has none.
TEST_F(AskManyTest, AFirstQuestionTooLongBesideTheDocumentsEndsAlone) {
  server_.engine().set_max_context(500);
  ASSERT_TRUE(server_.Upload("story", std::string(300, 's')).ok());
  v1::AskManyRequest request = Questions({std::string(250, 'x'), "good"});
  request.mutable_spec()->add_documents("story");
  const Answers answers = Ask(request);
  ASSERT_TRUE(answers.status.ok()) << answers.status.error_message();
  ASSERT_EQ(answers.failures.size(), 1u);
  EXPECT_EQ(Details(answers.failures.at(0)).reason, "CONTEXT_TOO_LONG");
  EXPECT_EQ(Details(answers.failures.at(0)).field, "spec.documents");
  EXPECT_EQ(answers.completions.size(), 1u);
}

TEST_F(AskManyTest, AQuestionThatFailsEndsAlone) {
  server_.engine().set_max_context(500);
  const Answers answers = Ask(Questions({"", "good", std::string(600, 'x'), "good too"}));
  ASSERT_TRUE(answers.status.ok()) << answers.status.error_message();
  ASSERT_EQ(answers.failures.size(), 2u);
  EXPECT_EQ(answers.failures.at(0).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Details(answers.failures.at(0)).reason, "INVALID_FIELD");
  EXPECT_EQ(Details(answers.failures.at(0)).field, "questions[0]");
  EXPECT_EQ(answers.failures.at(2).error_code(), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_EQ(Details(answers.failures.at(2)).reason, "CONTEXT_TOO_LONG");
  EXPECT_THAT(Details(answers.failures.at(2)).request_id, ::testing::EndsWith("-2"));
  EXPECT_EQ(answers.completions.size(), 2u);
}

TEST_F(AskManyTest, AnAnswerThatFailsHalfWayEndsAlone) {
  server_.engine().set_scripter([](const RequestSpec& spec) {
    FakeScript script;
    script.deltas = {"x"};
    if (Text(spec.prompt).find("q1|") != std::string::npos) {
      script.completion.status = absl::UnavailableError("a rank is gone");
    }
    return script;
  });
  const Answers answers = Ask(Numbered(3));
  ASSERT_TRUE(answers.status.ok());
  ASSERT_EQ(answers.failures.size(), 1u);
  EXPECT_EQ(Details(answers.failures.at(1)).reason, "RANK_FAILED");
  EXPECT_EQ(answers.completions.size(), 2u);
}

TEST_F(AskManyTest, WhatIsWrongForAllEndsTheCall) {
  struct Case {
    std::string field;
    std::function<void(v1::AskManyRequest&)> spoil;
  };
  const std::vector<Case> cases = {
      {"questions", [](auto& request) { request.clear_questions(); }},
      {"questions",
       [](auto& request) {
         for (int i = 0; i < 1000; ++i) request.add_questions("?");
       }},
      {"spec.token_ids",
       [](auto& request) { request.mutable_spec()->mutable_token_ids()->add_ids(1); }},
      {"spec.request_id", [](auto& request) { request.mutable_spec()->set_request_id("\n"); }},
      {"spec.sampling.top_p",
       [](auto& request) { request.mutable_spec()->mutable_sampling()->set_top_p(2); }},
      {"spec.priority", [](auto& request) { request.mutable_spec()->set_priority(9); }},
  };
  for (const Case& wrong : cases) {
    v1::AskManyRequest request = Questions({"one", "two"});
    wrong.spoil(request);
    const Answers answers = Ask(request);
    EXPECT_EQ(answers.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << wrong.field;
    EXPECT_EQ(Details(answers.status).field, wrong.field);
    EXPECT_TRUE(answers.events.empty());
  }
  v1::AskManyRequest request = Questions({"one"});
  request.mutable_spec()->add_documents("none");
  EXPECT_EQ(Details(Ask(request).status).reason, "DOCUMENT_NOT_FOUND");
  request = Questions({"one"});
  request.mutable_spec()->set_model("other");
  EXPECT_EQ(Details(Ask(request).status).reason, "MODEL_NOT_FOUND");
  EXPECT_TRUE(server_.engine().submitted().empty());
}

TEST_F(AskManyTest, DocumentsAreLookedUpOnce) {
  ASSERT_TRUE(server_.Upload("story", "Once.").ok());
  Answer([](const std::string& prompt) { return prompt; }, milliseconds(20));
  v1::AskManyRequest request = Numbered(3);
  request.mutable_spec()->add_documents("story");
  grpc::ClientContext context;
  const auto reader = stub_->AskMany(&context, request);
  Answers answers;
  v1::AskManyResponse event;
  ASSERT_TRUE(reader->Read(&event));  // the first waits; the others are not begun
  Note(event, answers);
  v1::DeleteDocumentRequest gone;
  gone.set_name("story");
  v1::DeleteDocumentResponse response;
  grpc::ClientContext deleting;
  ASSERT_TRUE(server_.documents()->DeleteDocument(&deleting, gone, &response).ok());
  while (reader->Read(&event)) Note(event, answers);
  EXPECT_TRUE(reader->Finish().ok());
  ASSERT_EQ(answers.completions.size(), 3u);
  for (int i = 0; i < 3; ++i) EXPECT_THAT(answers.texts.at(i), HasSubstr("Once."));
}

TEST_F(AskManyTest, ARetryOfANamedCallFindsItsAnswers) {
  v1::AskManyRequest request = Numbered(4);
  request.mutable_spec()->set_request_id("again");
  const Answers first = Ask(request);
  const Answers second = Ask(request);
  ASSERT_TRUE(second.status.ok());
  EXPECT_EQ(second.texts, first.texts);
  EXPECT_EQ(server_.engine().submitted().size(), 4u);
  // The same questions in another order have other names.
  request.mutable_questions()->SwapElements(0, 1);
  const Answers other = Ask(request);
  ASSERT_EQ(other.failures.size(), 2u);
  EXPECT_EQ(Details(other.failures.at(0)).reason, "REQUEST_EXISTS");
  EXPECT_EQ(other.completions.size(), 2u);
}

TEST_F(AskManyTest, CancellingEndsAllThatRunsAndBeginsNothing) {
  server_.engine().set_scripter([](const RequestSpec&) { return Endless(milliseconds(5)); });
  grpc::ClientContext context;
  const auto reader = stub_->AskMany(&context, Numbered(100));
  v1::AskManyResponse event;
  std::set<int> seen;
  while (seen.size() < 5 && reader->Read(&event)) seen.insert(event.index());
  context.TryCancel();
  while (reader->Read(&event)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(server_.engine().WaitUntilIdle(std::chrono::seconds(10)));
  EXPECT_LE(server_.engine().submitted().size(), AskManyCall::kAtOnce);
}

TEST_F(AskManyTest, TheDeadlineEndsAll) {
  server_.engine().set_scripter([](const RequestSpec&) { return Endless(milliseconds(5)); });
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + milliseconds(200));
  EXPECT_EQ(Ask(Numbered(50), &context).status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(server_.engine().WaitUntilIdle(std::chrono::seconds(10)));
}

TEST_F(AskManyTest, WhoDoesNotReadStopsItsOwnCallOnly) {
  server_.engine().set_slow_reader_timeout(milliseconds(300));
  server_.engine().set_scripter([](const RequestSpec& spec) {
    if (Text(spec.prompt).find("lone") != std::string::npos) {
      FakeScript script;
      script.deltas = {"y"};
      return script;
    }
    return Endless(milliseconds(0), std::string(4000, 'x'));
  });
  const auto channel = server_.NewChannel();
  const auto slow_stub = v1::InferenceService::NewStub(channel);
  grpc::ClientContext context;
  const auto slow = slow_stub->AskMany(&context, Numbered(100));
  v1::AskManyResponse event;
  ASSERT_TRUE(slow->Read(&event));
  // Whatever was begun is ended by the engine, and nothing begins in its place.
  EXPECT_TRUE(server_.engine().WaitUntilIdle(std::chrono::seconds(10)));
  const size_t begun = server_.engine().submitted().size();
  EXPECT_LE(begun, AskManyCall::kAtOnce + 1);
  EXPECT_EQ(Ask(Questions({"lone"})).texts.at(0), "y");
  context.TryCancel();
  while (slow->Read(&event)) {
  }
  slow->Finish();
  EXPECT_EQ(server_.engine().submitted().size(), begun + 1);
}

class MeteredAskManyTest : public AskManyTest {
 protected:
  MeteredAskManyTest()
      : AskManyTest({"--metrics", "127.0.0.1:0", "--max-prompts-memory", "2MiB",
                     "--max-message-size", "1MiB"}) {}
  double Sample(const std::string& name) { return ScrapeSamples(server_.metrics_address())[name]; }
};

TEST_F(MeteredAskManyTest, PromptsWaitForMemoryAndGiveItBack) {
  server_.engine().set_max_context(1'000'000);
  Answer([](const std::string&) { return "x"; }, milliseconds(5));
  ASSERT_TRUE(server_.Upload("story", std::string(60'000, 's')).ok());
  v1::AskManyRequest request = Numbered(20);
  request.mutable_spec()->add_documents("story");
  // One takes 480 KB while it is built and 240 KB after; sixteen would take 3.8 MB.
  for (int i = 0; i < 3; ++i) {
    const Answers answers = Ask(request);
    ASSERT_TRUE(answers.status.ok());
    EXPECT_EQ(answers.completions.size(), 20u) << answers.failures.size();
  }
}

TEST_F(MeteredAskManyTest, AListOfNothingIsRefusedBeforeItIsDecoded) {
  v1::AskManyRequest request;
  for (int i = 0; i < 400'000; ++i) request.add_questions("");
  const Answers answers = Ask(request);
  EXPECT_EQ(Details(answers.status).field, "questions");
  EXPECT_THAT(answers.status.error_message(), HasSubstr("400000 questions are not allowed"));
}

TEST_F(MeteredAskManyTest, EachFailureIsCounted) {
  const std::string name = "annulus_request_errors_total{code=\"INVALID_ARGUMENT\"}";
  const double before = Sample(name);
  Ask(Questions({"", "good", ""}));
  EXPECT_EQ(Sample(name), before + 2);
}

TEST_F(MeteredAskManyTest, RefusalsForOverloadAreTimed) {
  const std::string count = "annulus_refusal_seconds_count";
  EXPECT_EQ(Ask(Questions({"", "good"})).failures.size(), 1u);  // wrong, which is no overload
  EXPECT_EQ(Sample(count), 0);
  absl::Status full = absl::ResourceExhaustedError("the queue is full");
  full.SetPayload(kRetryPayload, absl::Cord("750"));
  server_.engine().set_submit_error(full);
  const Answers answers = Ask(Numbered(3));
  ASSERT_TRUE(answers.status.ok()) << answers.status.error_message();
  ASSERT_EQ(answers.failures.size(), 3u);
  for (const auto& [index, failure] : answers.failures) {
    EXPECT_EQ(Details(failure).reason, "QUEUE_FULL") << index;
  }
  EXPECT_EQ(Sample(count), 3);
}

class QuotaAskManyTest : public ::testing::Test {
 protected:
  void Serve(const std::string& quotas) {
    directory_.Write("tokens.yaml",
                     absl::StrCat("tenants:\n  - name: acme\n    quotas: {", quotas,
                                  "}\n    callers:\n      - {token: \"", TokenHash::Of("g").text(),
                                  "\", roles: [generate]}\n", "      - {token: \"",
                                  TokenHash::Of("d").text(), "\", roles: [documents]}\n"));
    const std::string path = directory_.path() / "tokens.yaml";
    ASSERT_EQ(chmod(path.c_str(), 0600), 0);
    server_ = std::make_unique<TestServer>(std::vector<std::string>{"--tokens-file", path});
    server_->engine().set_chat_template(true);
    server_->Serve();
  }
  Answers Ask(int count, const std::string& token = "g") {
    v1::AskManyRequest request;
    for (int i = 0; i < count; ++i) request.add_questions("?");
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer " + token);
    Answers answers;
    const auto reader = server_->inference()->AskMany(&context, request);
    v1::AskManyResponse event;
    while (reader->Read(&event)) {
      if (event.has_failure()) answers.failures.emplace(event.index(), ToStatus(event.failure()));
      if (event.event().has_completion()) {
        answers.completions[event.index()] = event.event().completion();
      }
    }
    answers.status = reader->Finish();
    return answers;
  }

  const testing::TempDirectory directory_;
  std::unique_ptr<TestServer> server_;
};

TEST_F(QuotaAskManyTest, EveryQuestionIsARequest) {
  Serve("requests_per_minute: 3");
  const Answers answers = Ask(5);
  ASSERT_TRUE(answers.status.ok());
  EXPECT_EQ(answers.completions.size(), 3u);
  ASSERT_EQ(answers.failures.size(), 2u);
  for (const auto& [index, failure] : answers.failures) {
    EXPECT_EQ(Details(failure).reason, "QUOTA_EXCEEDED");
    EXPECT_EQ(Details(failure).metadata["quota"], "requests_per_minute");
    EXPECT_GT(Details(failure).retry_ms, 0);
  }
}

TEST_F(QuotaAskManyTest, ThoseThatMayNotRunYetWaitForOthersOfTheCall) {
  Serve("running_requests: 2");
  const Answers answers = Ask(10);
  ASSERT_TRUE(answers.status.ok());
  EXPECT_EQ(answers.completions.size(), 10u);
}

TEST_F(QuotaAskManyTest, ALonePlaceGoesFromOneToTheNext) {
  Serve("running_requests: 1");
  EXPECT_EQ(Ask(20).completions.size(), 20u);
}

TEST_F(QuotaAskManyTest, ItsTokensCount) {
  Serve("tokens_per_minute: 20");
  const Answers answers = Ask(20);
  EXPECT_GT(answers.completions.size(), 0u);
  ASSERT_GT(answers.failures.size(), 0u);
  EXPECT_EQ(Details(answers.failures.begin()->second).metadata["quota"], "tokens_per_minute");
}

TEST_F(QuotaAskManyTest, ItNeedsTheRoleOfGenerate) {
  Serve("requests_per_minute: 3");
  EXPECT_EQ(Details(Ask(1, "d").status).reason, "ROLE_MISSING");
}

TEST(AskManyDrainTest, WhatWasAdmittedEndsUnlessTheTimeIsOver) {
  TestServer server({"--grace-time", "300ms"});
  server.engine().set_chat_template(true);
  server.engine().set_scripter([](const RequestSpec&) { return Endless(milliseconds(5)); });
  server.Serve();
  v1::AskManyRequest request;
  for (int i = 0; i < 30; ++i) request.add_questions("?");
  const auto stub = server.inference();
  grpc::ClientContext context;
  const auto reader = stub->AskMany(&context, request);
  v1::AskManyResponse event;
  ASSERT_TRUE(reader->Read(&event));
  v1::DrainRequest drain;
  v1::DrainResponse drained;
  grpc::ClientContext draining;
  ASSERT_TRUE(server.operators()->Drain(&draining, drain, &drained).ok());
  grpc::ClientContext late;
  const auto refused = stub->AskMany(&late, request);
  while (refused->Read(&event)) {
  }
  EXPECT_EQ(Details(refused->Finish()).reason, "DRAINING");
  std::thread stop([&] {
    server.server().WaitUntilDrained();
    server.server().Stop(nullptr);
  });
  while (reader->Read(&event)) {
  }
  EXPECT_EQ(Details(reader->Finish()).reason, "DRAINING");
  stop.join();
}

}  // namespace
}  // namespace annulus::server
