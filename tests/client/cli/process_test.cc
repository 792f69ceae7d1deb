// What only the program itself can show: signals, real pipes, exit codes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/client/cli/child_process.h"
#include "tests/client/fake_server.h"
#include "tests/support/temp_directory.h"
#include "tests/support/test_data.h"

namespace annulus::client {
namespace {

using ::testing::AllOf;
using testing::ChildProcess;
using testing::FakeServer;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

std::string Annulus() { return testing::BuildFolder() / "annulus"; }

FakeServer::Reply EndlessReply() {
  return {.events = {testing::DeltaEvent("Once upon", {10, 11})}, .wait_for_cancel = true};
}

TEST(Process, AnswersFromAPipe) {
  FakeServer server;
  server.SetReply(testing::StoryReply());
  ChildProcess annulus({Annulus(), "complete", "--server", server.address()});
  annulus.Write("Tell me\n");
  EXPECT_EQ(annulus.Wait(), 0);
  EXPECT_EQ(annulus.out(), "Once upon a time\n");
  EXPECT_EQ(annulus.err(), "");
  EXPECT_EQ(server.specs().at(0).text(), "Tell me\n");
}

TEST(Process, InterruptCancelsTheCallAndKeepsTheText) {
  FakeServer server;
  server.SetReply(EndlessReply());
  ChildProcess annulus({Annulus(), "complete", "x", "--server", server.address()});
  annulus.ReadOutputUntil("Once upon");
  annulus.Signal(SIGINT);
  EXPECT_EQ(annulus.Wait(), 130);
  EXPECT_EQ(annulus.out(), "Once upon\n");
  EXPECT_EQ(annulus.err(), "annulus: interrupted\n");
  EXPECT_TRUE(server.WaitForCancel());
}

TEST(Process, InterruptWhileReadingInputEndsAtOnce) {
  FakeServer server;
  server.SetReply(testing::StoryReply());
  ChildProcess annulus({Annulus(), "tokenize", "--server", server.address()});
  annulus.Write("some");
  annulus.Signal(SIGINT);
  EXPECT_EQ(annulus.Wait(), 130);
  EXPECT_TRUE(server.tokenize_requests().empty());
}

// As tests/engine/text/golden/small/byte_level.json has it, which has no token for the text's
// start.
TEST(Process, TokenizesWithoutAServer) {
  testing::TempDirectory directory;
  std::filesystem::copy(testing::TestFile("engine/text/golden/small/byte_level.json"),
                        directory.path() / "tokenizer.json");
  const auto run = [&](std::vector<std::string> arguments, const std::string& text) {
    arguments.insert(arguments.begin(), {Annulus(), "tokenize", "--tokenizer"});
    ChildProcess annulus(arguments);
    annulus.Write(text);
    const int exit_code = annulus.Wait();
    return std::to_string(exit_code) + "|" + annulus.out() + "|" + annulus.err();
  };
  const std::string plain = run({directory.path().string(), "--no-special"}, "the cat\n");
  EXPECT_THAT(plain, MatchesRegex("0\\|[0-9]+( [0-9]+)+\n\\|"));
  std::string json = "0|{\"token_ids\":[" + plain.substr(2, plain.find('\n') - 2) + "]}\n|";
  std::replace(json.begin(), json.end(), ' ', ',');
  EXPECT_EQ(run({directory.path().string(), "--no-special", "--json"}, "the cat\n"), json);
  EXPECT_EQ(run({directory.path().string(), "--no-special"}, ""), "0|\n|");
  EXPECT_THAT(run({directory.path().string()}, "a\xFF"),
              AllOf(StartsWith("2|"), HasSubstr("UTF-8")));
  EXPECT_THAT(run({(directory.path() / "none").string()}, ""),
              AllOf(StartsWith("2||annulus: "), HasSubstr("needs a tokenizer.json")));
  EXPECT_THAT(run({directory.path().string(), "--model", "m"}, ""), StartsWith("2||"));
}

TEST(Process, AReaderThatLeavesEndsTheProgram) {
  FakeServer server;
  FakeServer::Reply reply = EndlessReply();
  for (int i = 0; i < 2000; ++i) {
    reply.events.push_back(testing::DeltaEvent(std::string(1000, 'x'), {1}));
  }
  server.SetReply(reply);
  ChildProcess annulus({Annulus(), "complete", "x", "--server", server.address()});
  annulus.ReadOutputUntil("Once");
  annulus.CloseOutput();
  EXPECT_EQ(annulus.Wait(), 128 + SIGPIPE);
  EXPECT_TRUE(server.WaitForCancel());
}

TEST(Process, MisuseIsTwo) {
  ChildProcess annulus({Annulus(), "no-such-command"});
  EXPECT_EQ(annulus.Wait(), 2);
  EXPECT_THAT(annulus.err(), HasSubstr("no-such-command"));
}

TEST(Process, AnUnreachableServerIsUnavailable) {
  std::string address;
  { address = FakeServer().address(); }  // nobody listens there any more
  ChildProcess annulus({Annulus(), "models", "--timeout", "5", "--server", address});
  EXPECT_EQ(annulus.Wait(), 64 + grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(annulus.err(), HasSubstr("Is annulusd running at " + address));
}

}  // namespace
}  // namespace annulus::client
