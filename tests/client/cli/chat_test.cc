#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "client/cli/chat/conversation.h"
#include "tests/client/cli/run_cli.h"
#include "tests/client/cli/terminal_process.h"
#include "tests/client/fake_server.h"
#include "tests/support/temp_directory.h"
#include "tests/support/test_data.h"

namespace annulus::client {
namespace {

using testing::CliInput;
using testing::CliResult;
using ::testing::ElementsAre;
using testing::FakeServer;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TerminalProcess;

// "role: content" of every message.
std::vector<std::string> Said(const v1::GenerationSpec& spec) {
  std::vector<std::string> said;
  for (const v1::Message& message : spec.messages().messages()) {
    said.push_back(message.role() + ": " + message.content());
  }
  return said;
}

class ChatTest : public ::testing::Test {
 protected:
  ChatTest() { server_.SetReply(testing::StoryReply()); }

  CliResult Run(const std::string& lines, std::vector<std::string> arguments = {},
                bool typed = false) {
    arguments.insert(arguments.begin(), "chat");
    arguments.insert(arguments.end(), {"--server", server_.address()});
    return testing::RunCliInProcess(arguments, {.in = lines, .in_is_terminal = typed});
  }
  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(directory_.path() / name, std::ios::binary) << text;
    return directory_.path() / name;
  }
  std::string Read(const std::string& name) {
    std::ifstream file(directory_.path() / name, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

  FakeServer server_;
  const testing::TempDirectory directory_;
};

TEST_F(ChatTest, SendsWhatWasSaidBeforeAndUploadsOnce) {
  const std::string file = Write("a.txt", "abc");
  const CliResult result = Run("Who?\n\nWhy \\\nnow?\n", {file, "--system", "Be short."});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "Once upon a time\nOnce upon a time\n");
  EXPECT_EQ(server_.documents().size(), 1);
  const std::vector<v1::GenerationSpec> specs = server_.specs();
  ASSERT_EQ(specs.size(), 2);
  EXPECT_THAT(Said(specs[0]), ElementsAre("system: Be short.", "user: Who?"));
  EXPECT_THAT(Said(specs[1]), ElementsAre("system: Be short.", "user: Who?",
                                          "assistant: Once upon a time", "user: Why \nnow?"));
  EXPECT_EQ(specs[1].documents_size(), 1);
}

TEST_F(ChatTest, CommandsSaveLoadAndClear) {
  server_.AddDocument("stored", "x");
  const std::string file = Write("a.txt", "abc");
  const std::string saved = directory_.path() / "talk.json";
  CliResult result =
      Run("/docs " + file + "\nOne?\n/save " + saved + "\n/clear\nTwo?\n/help\n/quit\nThree?\n",
          {"stored"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("/save FILE"));
  EXPECT_THAT(result.err, HasSubstr("stored"));
  EXPECT_THAT(Said(server_.specs().back()), ElementsAre("user: Two?"));
  EXPECT_EQ(server_.specs().back().documents_size(), 2);

  result = Run("/load " + saved + "\nMore?\n");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(Said(server_.specs().back()),
              ElementsAre("user: One?", "assistant: Once upon a time", "user: More?"));
  EXPECT_EQ(server_.specs().back().documents_size(), 2);
}

TEST_F(ChatTest, APersonGoesOnAfterFailuresAndAPipeDoesNot) {
  const std::string file = Write("a.txt", "abc");
  const std::string lines = "/sav x\n/load " + file + "\n/save " + file + "\n/docs none\nOne?\n";
  CliResult result = Run(lines, {}, /*typed=*/true);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("did you mean /save?"));
  EXPECT_THAT(result.err, HasSubstr("a.txt is not a saved conversation: it is not JSON"));
  EXPECT_THAT(result.err, HasSubstr("a.txt exists and is not a saved conversation"));
  EXPECT_EQ(Read("a.txt"), "abc");
  EXPECT_THAT(Said(server_.specs().back()), ElementsAre("user: One?"));

  result = Run(lines);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(server_.specs().size(), 1);

  server_.SetFailure(testing::MakeFailure(grpc::StatusCode::OUT_OF_RANGE, "too long"));
  EXPECT_EQ(Run("One?\nTwo?\n").exit_code, 64 + grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_EQ(Run("One?\nTwo?\n", {}, /*typed=*/true).exit_code, 0);
  EXPECT_EQ(Run("One?\n", {"-"}).exit_code, 2);
}

TEST_F(ChatTest, SavesItselfForAPersonAndGoesOn) {
  const std::string file = Write("a.txt", "abc");
  const auto run = [&](const std::string& lines, std::vector<std::string> arguments, bool typed) {
    arguments.insert(arguments.begin(), "chat");
    arguments.insert(arguments.end(), {"--server", server_.address()});
    return testing::RunCliInProcess(
        arguments, {.in = lines,
                    .in_is_terminal = typed,
                    .environment = {{"XDG_STATE_HOME", directory_.path().string()}}});
  };
  EXPECT_EQ(run("One?\n", {file}, /*typed=*/false).exit_code, 0);
  EXPECT_THAT(run("", {"--continue"}, /*typed=*/true).err,
              HasSubstr("no conversation was saved in"));
  EXPECT_EQ(run("One?\n", {file}, /*typed=*/true).exit_code, 0);
  const std::filesystem::path folder = directory_.path() / "annulus" / "chats";
  EXPECT_EQ(std::filesystem::status(folder).permissions(), std::filesystem::perms::owner_all);

  // The document is gone from the server, and comes back from its file.
  ASSERT_EQ(testing::RunCliInProcess({"rm", "sha256-*", "--server", server_.address()}).exit_code,
            0);
  const CliResult result = run("Two?\n", {"--continue"}, /*typed=*/true);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("2 messages and 1 document from "));
  EXPECT_THAT(Said(server_.specs().back()),
              ElementsAre("user: One?", "assistant: Once upon a time", "user: Two?"));
  EXPECT_EQ(server_.specs().back().documents_size(), 1);
  EXPECT_EQ(server_.documents().size(), 1);
  // The same conversation, not another one.
  const auto files = std::filesystem::directory_iterator(folder);
  EXPECT_EQ(std::distance(begin(files), end(files)), 1);
}

// A conversation of somebody else may name any file here.
TEST_F(ChatTest, UploadsWhatAConversationNamesOnlyIfAskedTo) {
  const std::string file = Write("secret.txt", "abc");
  const std::string talk = Write("talk.json", absl::StrCat(R"({"documents": ["gone"], "files": [")",
                                                           file, R"("], "messages": []})"));
  const CliResult piped = Run("/load " + talk + "\nWhat?\n");
  EXPECT_EQ(piped.exit_code, 2);
  EXPECT_THAT(piped.err, HasSubstr(file)) << "it says which";
  const CliResult refused = Run("/load " + talk + "\nn\nWhat?\n", {}, /*typed=*/true);
  EXPECT_THAT(refused.err, HasSubstr(file));
  EXPECT_TRUE(server_.uploads().empty());
  ASSERT_FALSE(server_.specs().empty());
  EXPECT_EQ(server_.specs().back().documents_size(), 0);
  const CliResult allowed = Run("/load " + talk + "\ny\nWhat?\n", {}, /*typed=*/true);
  EXPECT_EQ(allowed.exit_code, 0) << allowed.err;
  EXPECT_EQ(server_.documents().size(), 1);
  EXPECT_EQ(server_.specs().back().documents_size(), 1);
}

TEST(Conversation, RefusesWhatIsNoConversation) {
  for (const char* text :
       {"", "[]", "{\"messages\": 1}", "{\"documents\": [1]}", "{\"documents\": {}}",
        "{\"messages\": [{\"role\": \"user\"}]}", "{\"messages\": [\"x\"]}", "{\"a\": \"\xFF\"}"}) {
    const auto parsed = ParseConversation("talk.json", text);
    EXPECT_THAT(parsed.status().message(), HasSubstr("talk.json is not a saved conversation"))
        << text;
  }
  std::string deep(100000, '[');
  EXPECT_FALSE(ParseConversation("talk.json", deep).ok());
  EXPECT_FALSE(ParseConversation("talk.json", deep + std::string(100000, ']')).ok());
  Conversation conversation{.documents = {"a"}, .messages = {v1::Message()}};
  conversation.messages[0].set_role("user");
  conversation.messages[0].set_content("\"é\n\"");
  const auto again = ParseConversation("x", ConversationJson(conversation));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->messages.at(0).content(), "\"é\n\"");
  EXPECT_THAT(again->documents, ElementsAre("a"));
}

// The program itself on a terminal: editing, Ctrl-C, and the terminal afterwards.
class ChatOnATerminal : public ChatTest {
 protected:
  std::vector<std::string> Command() {
    return {testing::BuildFolder() / "annulus", "chat", "--server", server_.address()};
  }
};

TEST_F(ChatOnATerminal, LinesAreEditedAndRecalled) {
  TerminalProcess chat(Command());
  chat.AwaitPrompt("> ");
  chat.Type("Whé?\x7f\x7fo?\r");  // two characters are taken back, one of two bytes
  chat.ReadUntil("a time\r\n");
  chat.AwaitPrompt("> ");
  chat.Type("\x1b[A\r");  // arrow up: the line before
  chat.ReadUntil("a time\r\n");
  chat.AwaitPrompt("> ");
  chat.Type("\x04");
  EXPECT_EQ(chat.Wait(), 0);
  EXPECT_THAT(Said(server_.specs().back()),
              ElementsAre("user: Who?", "assistant: Once upon a time", "user: Who?"));
}

TEST_F(ChatOnATerminal, InterruptStopsTheAnswerOnlyAndTwoAtThePromptLeave) {
  server_.SetReply(
      {.events = {testing::DeltaEvent("Once upon", {10, 11})}, .wait_for_cancel = true});
  // In a shell, which tells what state the terminal is left in.
  std::vector<std::string> command = {"/bin/sh", "-c",
                                      "trap : INT; \"$0\" \"$@\"; echo rc=$?; stty -a"};
  const std::vector<std::string> annulus = Command();
  command.insert(command.end(), annulus.begin(), annulus.end());
  TerminalProcess chat(command);
  chat.AwaitPrompt("> ");
  chat.Type("Tell!\r");
  chat.ReadUntil("Once");  // the last word of a line waits for its end
  chat.Type("\x03");
  EXPECT_THAT(chat.ReadUntil("annulus: interrupted"), HasSubstr(" upon\r\n"));
  EXPECT_TRUE(server_.WaitForCancel());
  chat.AwaitPrompt("> ");
  server_.SetReply(testing::StoryReply());
  chat.Type("More?\r");
  chat.ReadUntil("a time\r\n");
  EXPECT_THAT(Said(server_.specs().back()),
              ElementsAre("user: Tell!", "assistant: Once upon", "user: More?"));
  chat.AwaitPrompt("> ");
  chat.Type("half a quest");
  chat.ReadUntil("quest");
  chat.Type("\x03");
  chat.ReadUntil("^C\r\nCtrl-C again, or Ctrl-D, ends the chat.\r\n");
  chat.AwaitPrompt("> ");
  chat.Type("Whole?\r");  // what was typed before is forgotten, what was said is not
  chat.ReadUntil("a time\r\n");
  EXPECT_THAT(Said(server_.specs().back()),
              ElementsAre("user: Tell!", "assistant: Once upon", "user: More?",
                          "assistant: Once upon a time", "user: Whole?"));
  chat.AwaitPrompt("> ");
  chat.Type("\x03");
  chat.AwaitPrompt("> ");
  chat.Type("\x03");
  chat.ReadUntil("rc=130");
  EXPECT_THAT(chat.ReadUntil(" iexten"), HasSubstr(" icanon"));
  EXPECT_EQ(chat.Wait(), 0);
}

}  // namespace
}  // namespace annulus::client
