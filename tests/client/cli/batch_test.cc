#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "google/rpc/error_details.pb.h"
#include "tests/client/cli/run_cli.h"
#include "tests/client/fake_server.h"
#include "tests/support/temp_directory.h"

namespace annulus::client {
namespace {

using testing::CliInput;
using testing::CliResult;
using ::testing::ElementsAre;
using testing::FakeServer;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

class BatchTest : public ::testing::Test {
 protected:
  BatchTest() { server_.SetReply(testing::StoryReply()); }

  CliResult Run(const std::string& in, std::vector<std::string> more = {},
                Cancellation* cancellation = nullptr) {
    Write("in.jsonl", in);
    std::vector<std::string> arguments = {"batch",    Path("in.jsonl"),  Path("out.jsonl"),
                                          "--server", server_.address(), "--progress=never"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return testing::RunCliInProcess(arguments, {.cancellation = cancellation});
  }
  std::string Path(const std::string& name) { return directory_.path() / name; }
  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(Path(name), std::ios::binary) << text;
    return Path(name);
  }
  std::string Read(const std::string& name) {
    std::ifstream file(Path(name), std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  std::vector<nlohmann::json> Objects(const std::string& name) {
    std::vector<nlohmann::json> objects;
    for (const absl::string_view line : absl::StrSplit(Read(name), '\n', absl::SkipEmpty())) {
      objects.push_back(nlohmann::json::parse(line));
    }
    return objects;
  }
  std::vector<std::string> Ids(const std::string& name) {
    std::vector<std::string> ids;
    for (const nlohmann::json& object : Objects(name)) ids.push_back(object.at("id"));
    return ids;
  }
  std::vector<std::string> Files() {
    std::vector<std::string> names;
    for (const auto& file : std::filesystem::directory_iterator(directory_.path())) {
      names.push_back(file.path().filename());
    }
    return names;
  }
  // The questions or prompts that were asked, in any order.
  std::vector<std::string> AskedTexts() {
    std::vector<std::string> texts;
    for (const v1::GenerationSpec& spec : server_.specs()) {
      const int last = spec.messages().messages_size() - 1;
      texts.push_back(last < 0 ? spec.text() : spec.messages().messages(last).content());
    }
    return texts;
  }

  FakeServer server_;
  const testing::TempDirectory directory_;
};

TEST_F(BatchTest, AnswersInOrderAndUploadsDocumentsOnce) {
  const std::string file = Write("a.txt", "abc");
  const std::string document = absl::StrCat("\"documents\": [\"", file, "\"]");
  std::string in;
  for (int i = 0; i < 9; ++i) {
    absl::StrAppend(&in, "{\"id\": \"q", i, "\", \"question\": \"", i, "?\", ", document, "}\n");
  }
  absl::StrAppend(&in, "\n{\"prompt\": \"Once\", \"max_tokens\": 7, \"stop\": [\"x\"]}");
  const CliResult result =
      Run(in, {"--temperature", "0", "--stop", "y", "--concurrency", "3", "--request-id", "run"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(Ids("out.jsonl"),
              ElementsAre("q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "q8", "11"));
  EXPECT_EQ(Objects("out.jsonl").at(3).at("text"), "Once upon a time");
  EXPECT_EQ(Objects("out.jsonl").at(3).at("finish_reason"), "stop");
  EXPECT_THAT(Files(), UnorderedElementsAre("a.txt", "in.jsonl", "out.jsonl"));
  EXPECT_THAT(server_.documents(), SizeIs(1));
  std::set<std::string> ids;
  for (const v1::GenerationSpec& spec : server_.specs()) {
    EXPECT_TRUE(ids.insert(spec.request_id()).second) << spec.request_id();
    EXPECT_EQ(spec.sampling().temperature(), 0);
    EXPECT_TRUE(spec.sampling().has_temperature());
    if (!spec.has_text()) continue;
    EXPECT_EQ(spec.sampling().max_tokens(), 7);
    EXPECT_THAT(spec.sampling().stop(), ElementsAre("x"));
  }
}

TEST_F(BatchTest, WhatIsDoneIsNotAskedAgain) {
  ASSERT_EQ(Run("{\"question\": \"One?\"}\n").exit_code, 0);
  const std::string first = Read("out.jsonl");
  // As a run leaves it that is killed while it writes the third answer.
  Write("out.jsonl.part", first + "{\"id\":\"3\",\"requ");
  std::filesystem::remove(Path("out.jsonl"));
  CliResult result = Run("{\"question\": \"One?\"}\n{\"question\": \"Two?\"}\n", {"--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "{\"requests\":2,\"answered\":1,\"from_before\":1,\"failed\":0}\n");
  EXPECT_THAT(AskedTexts(), ElementsAre("One?", "Two?"));
  EXPECT_THAT(Ids("out.jsonl"), ElementsAre("1", "2"));
  EXPECT_EQ(Read("out.jsonl").substr(0, first.size()), first);

  // Another question, or other sampling, is another request.
  EXPECT_EQ(Run("{\"question\": \"One?\"}\n", {"--seed", "3"}).exit_code, 0);
  EXPECT_THAT(AskedTexts(), ElementsAre("One?", "Two?", "One?"));
}

TEST_F(BatchTest, FailuresGoToAFileOfTheirOwn) {
  const std::string empty = Write("empty.txt", "");
  const std::string in =
      absl::StrCat("{\"question\": \"One?\"}\n{\"id\": 7, \"question\": \"Two?\", ",
                   "\"documents\": \"", empty, "\"}\n");
  CliResult result = Run(in);
  EXPECT_EQ(result.exit_code, 3) << result.err;
  EXPECT_THAT(result.err, HasSubstr("1 of 2 failed"));
  EXPECT_THAT(Ids("out.jsonl"), ElementsAre("1"));
  ASSERT_THAT(Objects("out.jsonl.failed"), SizeIs(1));
  EXPECT_EQ(Objects("out.jsonl.failed")[0].at("id"), "7");
  EXPECT_EQ(Objects("out.jsonl.failed")[0].at("line"), 2);
  EXPECT_THAT(std::string(Objects("out.jsonl.failed")[0].at("message")), HasSubstr("is empty"));

  Write("empty.txt", "now there is something");
  result = Run(in);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(AskedTexts(), ElementsAre("One?", "Two?"));
  EXPECT_THAT(Ids("out.jsonl"), ElementsAre("1", "7"));
  EXPECT_FALSE(std::filesystem::exists(Path("out.jsonl.failed")));
}

TEST_F(BatchTest, ARefusedRequestIsOneFailureAndALostServerEndsAll) {
  server_.SetReply({.status = testing::MakeFailure(grpc::StatusCode::OUT_OF_RANGE, "too long")});
  CliResult result = Run("{\"question\": \"One?\"}\n{\"question\": \"Two?\"}\n");
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(Objects("out.jsonl.failed"), SizeIs(2));
  EXPECT_EQ(Objects("out.jsonl.failed").at(0).at("code"), "OUT_OF_RANGE");
  EXPECT_EQ(Read("out.jsonl"), "");

  server_.SetReply({.status = {grpc::StatusCode::UNAVAILABLE, "gone"}});
  result = Run("{\"question\": \"One?\"}\n", {"--concurrency", "1"});
  EXPECT_EQ(result.exit_code, 64 + grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(result.err, HasSubstr("repeat the command to resume"));
}

TEST_F(BatchTest, ComesBackWhenTheServerSays) {
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_nanos(100000000);
  server_.SetReply(
      {.status = testing::MakeFailure(grpc::StatusCode::RESOURCE_EXHAUSTED, "full", {&retry})});
  std::thread later([&] {
    while (server_.specs().empty()) std::this_thread::yield();
    server_.SetReply(testing::StoryReply());
  });
  const CliResult result = Run("{\"question\": \"One?\"}\n");
  later.join();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(Ids("out.jsonl"), ElementsAre("1"));
}

TEST_F(BatchTest, AnInterruptionKeepsWhatWasAnswered) {
  ASSERT_EQ(Run("{\"question\": \"One?\"}\n").exit_code, 0);
  const std::string before = Read("out.jsonl");
  server_.SetReply({.events = {testing::DeltaEvent("Once", {1})}, .wait_for_cancel = true});
  Cancellation cancellation;
  std::string in;
  for (const char* question : {"One?", "2?", "3?", "4?", "5?", "6?"}) {
    absl::StrAppend(&in, "{\"question\": \"", question, "\"}\n");
  }
  std::thread user([&] {
    while (server_.specs().size() < 4) std::this_thread::yield();
    cancellation.Cancel();
  });
  const CliResult result = Run(in, {"--concurrency", "3"}, &cancellation);
  user.join();
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_THAT(result.err, HasSubstr("stopped with 1 of 6 answered"));
  EXPECT_THAT(server_.specs(), SizeIs(4)) << "three at a time";
  EXPECT_EQ(Read("out.jsonl"), before);
}

TEST_F(BatchTest, BadLinesAreFoundBeforeAnythingIsAsked) {
  const auto refuses = [&](const std::string& line, const char* message) {
    const CliResult result = Run("{\"question\": \"One?\"}\n" + line + "\n");
    EXPECT_EQ(result.exit_code, 2) << line;
    EXPECT_THAT(result.err, HasSubstr("in.jsonl:2: ")) << line;
    EXPECT_THAT(result.err, HasSubstr(message)) << line;
  };
  refuses("{", "not JSON");
  refuses("\"\xFF\"", "not JSON");
  refuses("[]", "not a JSON object");
  refuses("{}", "exactly one of");
  refuses(R"({"question": "a", "prompt": "b"})", "exactly one of");
  refuses(R"({"question": 1})", "\"question\" must be a string");
  refuses(R"({"questoin": "a"})", "did you mean \"question\"?");
  refuses(R"({"question": "a", "max_tokens": "x"})", "wrong type");
  refuses(R"({"question": "a", "documents": [1]})", "\"documents\"");
  refuses(R"({"question": "a", "documents": "-"})", "standard input");
  refuses(R"({"messages": [{"role": "user"}]})", "\"content\"");
  refuses(R"({"id": "1", "question": "a"})", "the id 1 is that of line 1");
  const std::string deep(200000, '[');
  refuses("{\"question\": \"a\", \"max_tokens\": " + deep + std::string(200000, ']') + "}",
          "too deep");
  EXPECT_THAT(AskedTexts(), IsEmpty());
  EXPECT_EQ(Run("\n \n").exit_code, 2);

  Write("out.jsonl", "something dear\n");
  const CliResult result = Run("{\"question\": \"One?\"}\n");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err,
              HasSubstr("out.jsonl exists and line 1 was not written by annulus batch"));
  EXPECT_EQ(Read("out.jsonl"), "something dear\n");
  EXPECT_THAT(Files(), UnorderedElementsAre("in.jsonl", "out.jsonl"));
}

}  // namespace
}  // namespace annulus::client
