#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "google/rpc/error_details.pb.h"
#include "tests/client/cli/run_cli.h"
#include "tests/client/fake_server.h"
#include "tests/support/temp_directory.h"

namespace annulus::client {
namespace {

using testing::CliInput;
using testing::CliResult;
using testing::FakeServer;
using ::testing::HasSubstr;

class QuestionsOfAFile : public ::testing::Test {
 protected:
  QuestionsOfAFile() { server_.SetReply(testing::StoryReply()); }

  CliResult Run(std::vector<std::string> arguments, const CliInput& input = {}) {
    arguments.insert(arguments.end(), {"--server", server_.address()});
    return testing::RunCliInProcess(arguments, input);
  }

  FakeServer server_;
  const testing::TempDirectory directory_;
  const std::filesystem::path& folder_ = directory_.path();
};

TEST_F(QuestionsOfAFile, AskAsksTheQuestionsOfAFile) {
  server_.AddDocument("story", "Once.");
  directory_.Write("q.txt", "Who?\n\n  And why? \r\n");
  const CliResult result = Run({"ask", "story", "--questions", folder_ / "q.txt"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "# Who?\nOnce upon a time\n\n# And why?\nOnce upon a time\n");
  const std::vector<v1::GenerationSpec> specs = server_.specs();
  ASSERT_EQ(specs.size(), 2u);
  std::set<std::string> asked;
  for (const v1::GenerationSpec& spec : specs) {
    EXPECT_EQ(spec.documents(0), "story");
    ASSERT_EQ(spec.messages().messages_size(), 1);
    asked.insert(spec.messages().messages(0).content());
  }
  EXPECT_EQ(asked, (std::set<std::string>{"Who?", "And why?"}));
}

TEST_F(QuestionsOfAFile, QuestionsMayBeJsonLinesAndAnswersAre) {
  server_.AddDocument("story", "Once.");
  const std::string lines = "{\"question\": \"Who?\\nAll.\"}\n{\"question\": \"Why?\"}\n";
  const CliResult result =
      Run({"ask", "story", "--questions", "-", "-s", "be brief", "--json"}, {.in = lines});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("{\"index\":0,\"question\":\"Who?\\nAll.\",\"text\":\"Once"));
  EXPECT_THAT(result.out, HasSubstr("\n{\"index\":1,\"question\":\"Why?\",\"text\":\"Once"));
  EXPECT_EQ(server_.specs()[0].messages().messages(0).role(), "system");
}

TEST_F(QuestionsOfAFile, BadQuestionsAreMisuse) {
  server_.AddDocument("story", "Once.");
  std::string many;
  for (int i = 0; i <= 1000; ++i) many += "Who?\n";
  for (const std::string& bad :
       {std::string(), std::string("\n \n"), std::string("{\"question\": 1}\n"),
        std::string("{\"question\": \"a\"}\nWho?\n"), std::string("\xFF\n"), many}) {
    const CliResult result = Run({"ask", "story", "--questions", "-"}, {.in = bad});
    EXPECT_EQ(result.exit_code, 2) << bad.substr(0, 40);
  }
  EXPECT_EQ(Run({"ask", "story", "--questions", folder_ / "none"}).exit_code, 2);
  EXPECT_EQ(Run({"ask", "-", "--questions", "-"}, {.in = "Who?"}).exit_code, 2);
  EXPECT_EQ(Run({"ask", "story", "--questions", "-", "--show-prompt"}, {.in = "Who?"}).exit_code,
            2);
  EXPECT_TRUE(server_.specs().empty());
}

TEST_F(QuestionsOfAFile, QuestionsThatFailEndAlone) {
  const CliResult result = Run({"ask", "none", "--questions", "-"}, {.in = "Who?\nWhy?\n"});
  EXPECT_EQ(result.exit_code, 64 + 5);
  server_.AddDocument("story", "Once.");
  FakeServer::Reply reply;
  reply.status = grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "not that");
  server_.SetReply(reply);
  const CliResult all = Run({"ask", "story", "--questions", "-", "--json"}, {.in = "Who?\nWhy?\n"});
  EXPECT_EQ(all.exit_code, 64 + 3);
  EXPECT_THAT(all.out, HasSubstr("{\"index\":1,\"question\":\"Why?\""));
  EXPECT_THAT(all.out, HasSubstr("\"error\":{\"code\":\"INVALID_ARGUMENT\""));
}

std::string Question(const v1::GenerationSpec& spec) {
  return spec.messages().messages(0).content();
}

FakeServer::Reply Echo(const v1::GenerationSpec& spec) {
  return {.events = {testing::QueuedEvent(0), testing::DeltaEvent("re: " + Question(spec), {1}),
                     testing::CompletionEvent(v1::FINISH_REASON_STOP, 1)}};
}

FakeServer::Reply Refusal(std::chrono::milliseconds delay) {
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_nanos(static_cast<int32_t>(delay.count()) * 1'000'000);
  return {.status = testing::MakeFailure(grpc::StatusCode::RESOURCE_EXHAUSTED, "busy", {&retry})};
}

TEST_F(QuestionsOfAFile, EachGetsItsOwnAnswerAndSomeMayFail) {
  server_.AddDocument("story", "Once.");
  server_.SetReplies([](const v1::GenerationSpec& spec) {
    FakeServer::Reply reply = Echo(spec);
    if (Question(spec) == "q7") {
      reply = {.status = grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "not that")};
    }
    return reply;
  });
  std::string questions = "\xEF\xBB\xBF";  // a byte order mark
  for (int i = 0; i < 40; ++i) questions += "q" + std::to_string(i) + "\n";
  const CliResult result = Run({"ask", "story", "--questions", "-"}, {.in = questions});
  EXPECT_EQ(result.exit_code, 3) << result.err;
  EXPECT_THAT(result.err, HasSubstr("question 8 failed: not that"));
  EXPECT_THAT(result.err, HasSubstr("1 of 40 questions failed"));
  std::string expected;
  for (int i = 0; i < 40; ++i) {
    const std::string question = "q" + std::to_string(i);
    expected +=
        (i > 0 ? "\n# " : "# ") + question + "\n" + (i == 7 ? "" : "re: " + question + "\n");
  }
  EXPECT_EQ(result.out, expected);
}

TEST_F(QuestionsOfAFile, TheFirstIsAloneUntilItsAnswerBegins) {
  server_.AddDocument("story", "Once.");
  size_t begun = 0;
  size_t beside = 0;  // how many had begun when the first one ended, without an answer
  server_.SetReplies([&](const v1::GenerationSpec& spec) {
    ++begun;
    if (Question(spec) != "a") return Echo(spec);
    FakeServer::Reply reply{.events = {testing::QueuedEvent(0)},
                            .status = grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "not that")};
    reply.until = [&, looks = 0]() mutable {
      beside = begun;
      return ++looks == 40;
    };
    return reply;
  });
  const CliResult result = Run({"ask", "story", "--questions", "-"}, {.in = "a\nb\nc\n"});
  EXPECT_EQ(result.exit_code, 3) << result.err;
  EXPECT_EQ(beside, 1u);
  EXPECT_EQ(begun, 3u);
}

// As with a quota of running requests: who is refused while others are served waits for them, more
// often than a lone one would try.
TEST_F(QuestionsOfAFile, RefusalsBesideOthersThatAreServedCountNoTry) {
  server_.AddDocument("story", "Once.");
  std::map<std::string, int> asked;
  server_.SetReplies([&](const v1::GenerationSpec& spec) {
    const std::string question = Question(spec);
    ++asked[question];
    if (question == "long") {
      FakeServer::Reply reply = Echo(spec);
      reply.until = [&asked] { return asked["refused"] >= 12; };
      return reply;
    }
    return asked[question] < 12 ? Refusal(std::chrono::milliseconds(1)) : Echo(spec);
  });
  const CliResult result = Run({"ask", "story", "--questions", "-"}, {.in = "long\nrefused\n"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(asked["refused"], 12);
  // A lone one gives up.
  asked.clear();
  const CliResult lone = Run({"ask", "story", "--questions", "-"}, {.in = "refused\n"});
  EXPECT_EQ(lone.exit_code, 64 + 8) << lone.err;
  EXPECT_EQ(asked["refused"], 6);
}

TEST_F(QuestionsOfAFile, AServerThatIsLostForAMomentIsAskedAgain) {
  server_.AddDocument("story", "Once.");
  int lost = 0;
  server_.SetReplies([&](const v1::GenerationSpec& spec) {
    if (Question(spec) == "b" && lost++ == 0) {
      return FakeServer::Reply{.status = grpc::Status(grpc::StatusCode::UNAVAILABLE, "lost")};
    }
    return Echo(spec);
  });
  const CliResult result = Run({"ask", "story", "--questions", "-"}, {.in = "a\nb\n"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("re: b"));
  EXPECT_EQ(Run({"ask", "story", "--questions", ""}, {.in = "a\n"}).exit_code, 2);
}

// Against a daemon that has AskMany.
class QuestionsInOneCall : public QuestionsOfAFile {
 protected:
  using Write = std::function<void(const v1::AskManyResponse&)>;

  QuestionsInOneCall() { server_.AddDocument("story", "Once."); }

  static void Send(int index, const v1::StreamGenerateResponse& event, const Write& write) {
    v1::AskManyResponse response;
    response.set_index(index);
    *response.mutable_event() = event;
    write(response);
  }
  static void Answer(int index, const v1::AskManyRequest& request, const Write& write) {
    Send(index, testing::QueuedEvent(0), write);
    Send(index, testing::ProgressEvent(4, 8), write);
    Send(index, testing::DeltaEvent("re: " + request.questions(index), {1}), write);
    Send(index, testing::CompletionEvent(v1::FINISH_REASON_STOP, 1), write);
  }
  static void Fail(int index, const grpc::Status& status, const Write& write) {
    v1::AskManyResponse response;
    response.set_index(index);
    if (!response.mutable_failure()->ParseFromString(status.error_details()) ||
        status.error_details().empty()) {
      response.mutable_failure()->set_code(status.error_code());
      response.mutable_failure()->set_message(status.error_message());
    }
    write(response);
  }

  CliResult Ask(const std::string& questions, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"ask", "story", "--questions", "-"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Run(arguments, {.in = questions});
  }
};

TEST_F(QuestionsInOneCall, AnswersComeInOrderWhateverTheirEnds) {
  v1::AskManyRequest asked;
  server_.SetManyReplies([&](const v1::AskManyRequest& request, const Write& write) {
    asked = request;
    Answer(2, request, write);
    Fail(1, grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "not that"), write);
    Answer(0, request, write);
    return grpc::Status::OK;
  });
  const CliResult result = Ask("a\nb\nc\n", {"-s", "be brief"});
  EXPECT_EQ(result.exit_code, 3) << result.err;
  EXPECT_EQ(result.out, "# a\nre: a\n\n# b\n\n# c\nre: c\n");
  EXPECT_THAT(result.err, HasSubstr("question 2 failed: not that"));
  EXPECT_TRUE(server_.specs().empty());
  EXPECT_EQ(asked.spec().documents(0), "story");
  ASSERT_EQ(asked.spec().messages().messages_size(), 1);
  EXPECT_EQ(asked.spec().messages().messages(0).role(), "system");
  EXPECT_EQ(asked.questions_size(), 3);
}

TEST_F(QuestionsInOneCall, ThoseThatAreRefusedForAWhileAreAskedByThemselves) {
  server_.SetManyReplies([&](const v1::AskManyRequest& request, const Write& write) {
    Answer(0, request, write);
    Fail(1, Refusal(std::chrono::milliseconds(1)).status, write);
    Fail(2, grpc::Status(grpc::StatusCode::UNAVAILABLE, "a rank is gone"), write);
    return grpc::Status::OK;
  });
  server_.SetReplies(Echo);
  const CliResult result = Ask("a\nb\nc\n");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "# a\nre: a\n\n# b\nre: b\n\n# c\nre: c\n");
  EXPECT_EQ(server_.specs().size(), 2u);
}

TEST_F(QuestionsInOneCall, ACallThatIsLostGoesOnOneByOne) {
  server_.SetManyReplies([&](const v1::AskManyRequest& request, const Write& write) {
    Answer(0, request, write);
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "lost");
  });
  server_.SetReplies(Echo);
  const CliResult result = Ask("a\nb\n");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "# a\nre: a\n\n# b\nre: b\n");
  EXPECT_EQ(server_.specs().size(), 1u);
}

TEST_F(QuestionsInOneCall, WhatTheCallFailsOfFailsEachQuestionThatIsLeft) {
  server_.SetManyReplies([&](const v1::AskManyRequest& request, const Write& write) {
    Answer(1, request, write);
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no such thing");
  });
  const CliResult result = Ask("a\nb\nc\n", {"--json"});
  EXPECT_EQ(result.exit_code, 3) << result.err;
  EXPECT_THAT(result.out, HasSubstr("{\"index\":2,\"question\":\"c\""));
  EXPECT_THAT(result.out, HasSubstr("\"error\":{\"code\":\"INVALID_ARGUMENT\""));
  server_.SetManyReplies([&](const v1::AskManyRequest&, const Write&) {
    return grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "not you");
  });
  EXPECT_EQ(Ask("a\n").exit_code, 64 + 7);
}

TEST_F(QuestionsInOneCall, NonsenseOfTheServerIsNoAnswer) {
  server_.SetManyReplies([&](const v1::AskManyRequest& request, const Write& write) {
    Answer(0, request, write);
    return grpc::Status::OK;
  });
  EXPECT_EQ(Ask("a\nb\n").exit_code, 3);
  server_.SetManyReplies([&](const v1::AskManyRequest&, const Write& write) {
    Fail(7, grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "?"), write);
    return grpc::Status::OK;
  });
  EXPECT_EQ(Ask("a\n").exit_code, 64 + 13);
}

// --timeout is each question's own.
TEST_F(QuestionsInOneCall, WithATimeoutEachQuestionIsACall) {
  server_.SetManyReplies([&](const v1::AskManyRequest&, const Write&) { return grpc::Status::OK; });
  server_.SetReplies(Echo);
  EXPECT_EQ(Ask("a\nb\n", {"--timeout", "60"}).exit_code, 0);
  EXPECT_EQ(server_.specs().size(), 2u);
}

}  // namespace
}  // namespace annulus::client
