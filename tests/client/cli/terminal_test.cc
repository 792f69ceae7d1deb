// What the program shows on a real terminal while something goes on.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tests/client/cli/terminal_process.h"
#include "tests/client/fake_server.h"
#include "tests/support/test_data.h"

namespace annulus::client {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::EndsWith;
using testing::FakeServer;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TerminalProcess;

constexpr char kClearLine[] = "\r\x1b[K";

class Terminal : public ::testing::Test {
 protected:
  Terminal() { server_.AddDocument("stored", "text"); }

  std::vector<std::string> Command(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), testing::BuildFolder() / "annulus");
    arguments.insert(arguments.end(), {"--server", server_.address()});
    return arguments;
  }
  std::vector<std::string> Ask() const { return Command({"ask", "stored", "Who?"}); }

  // Half of the prompt is read, and then nothing is heard until the test says so.
  void ReadHalf() {
    FakeServer::Reply reply = testing::StoryReply();
    v1::StreamGenerateResponse half = testing::ProgressEvent(500, 1000);
    half.mutable_prompt_progress()->set_elapsed(5);
    half.mutable_prompt_progress()->set_eta(600);
    reply.events = {half};
    reply.wait_for_cancel = true;
    server_.SetReply(reply);
  }

  FakeServer server_;
};

TEST_F(Terminal, AskShowsABarAndTakesItAway) {
  server_.SetReply(testing::StoryReply());
  TerminalProcess annulus(Ask());
  const std::string shown = annulus.ReadUntil("Once upon a time\r\n");
  // The bar is drawn over itself and is gone before the answer's first letter.
  EXPECT_THAT(shown, AllOf(HasSubstr("\r\x1b[KReading    ["), HasSubstr("tokens")));
  const size_t answer = shown.find("Once upon");
  EXPECT_EQ(shown.substr(answer - sizeof(kClearLine) + 1, sizeof(kClearLine) - 1), kClearLine);
  EXPECT_EQ(annulus.Wait(), 0);
}

TEST_F(Terminal, TheBarTicksWhileNothingIsHeard) {
  ReadHalf();
  TerminalProcess annulus(Ask());
  annulus.ReadUntil("ETA 10 min 0 s");
  // By its own clock: the server says nothing more.
  EXPECT_THAT(annulus.ReadUntil("ETA 9 min 5"), HasSubstr("\r\x1b[KReading     50%  500/1,000"));
  annulus.ReadUntil("ETA 9 min 5");
}

TEST_F(Terminal, TheBarFitsAWindowThatChanges) {
  ReadHalf();
  TerminalProcess annulus(Ask());
  annulus.ReadUntil("ETA 10 min 0 s");
  annulus.Resize(40);
  EXPECT_THAT(annulus.ReadUntil("Reading     50%  ETA 9 min 5"), Not(HasSubstr("\n")));
  annulus.Resize(120);
  EXPECT_THAT(annulus.ReadUntil("ETA 9 min 5"), HasSubstr("Reading    [####################"));
}

TEST_F(Terminal, InterruptTakesTheBarAwayAndCancels) {
  ReadHalf();
  TerminalProcess annulus(Ask());
  annulus.ReadUntil("ETA 10 min 0 s");
  annulus.Type("\x03");
  EXPECT_THAT(annulus.ReadUntil("annulus: interrupted\r\n"),
              EndsWith("\r\x1b[Kannulus: interrupted\r\n"));
  EXPECT_EQ(annulus.Wait(), 130);
  EXPECT_TRUE(server_.WaitForCancel());
}

TEST_F(Terminal, WatchedStatusIsAScreenThatFollowsTheServer) {
  v1::GetLoadResponse load;
  load.set_running(3);
  load.set_healthy(true);
  server_.SetLoad(load);
  TerminalProcess annulus(Command({"status", "--watch", "--interval", "0.1"}));
  EXPECT_THAT(annulus.ReadUntil("3 running"), HasSubstr("\x1b[H\x1b[2J"));
  load.set_running(7);
  server_.SetLoad(load);
  EXPECT_THAT(annulus.ReadUntil("7 running"), HasSubstr("\x1b[H\x1b[2J"));
  annulus.Type("\x03");
  EXPECT_EQ(annulus.Wait(), 130);
}

// At once, however long it is to the next look.
TEST_F(Terminal, WatchedStatusFillsAWindowThatChanges) {
  TerminalProcess annulus(Command({"status", "--watch", "--interval", "3600"}));
  annulus.ReadUntil("RANK  ");
  annulus.Resize(24);
  annulus.ReadUntil("\x1b[2J");
  const std::string shown = annulus.ReadUntil("KV ");
  for (const absl::string_view line : absl::StrSplit(shown, "\r\n"))
    EXPECT_LE(line.size(), 24) << line;
  annulus.Type("\x03");
  EXPECT_EQ(annulus.Wait(), 130);
}

// Nothing is coloured, whatever NO_COLOR says: no sequence selects one.
TEST_F(Terminal, NoColourIsSelected) {
  server_.SetReply(testing::StoryReply());
  v1::MapAttentionResponse map;
  map.set_block_tokens(64);
  map.set_blocks(1);
  map.set_side(1);
  map.add_heads()->set_map("\xff");
  server_.SetAttentionMap(map);
  for (const char* setting : {"NO_COLOR=", "NO_COLOR=1"}) {
    for (std::vector<std::string> command :
         {Ask(), Command({"status"}), Command({"attention", "show", "--seq", "64"}),
          Command({"ask", "--help"}), Command({"no-such-command"})}) {
      command.insert(command.begin(), {"/usr/bin/env", setting});
      TerminalProcess annulus(command);
      std::string shown;
      annulus.Wait(&shown);
      EXPECT_FALSE(shown.empty()) << command[3];
      EXPECT_THAT(shown, Not(ContainsRegex("\x1b\\[[0-9;]*m"))) << command[3];
    }
  }
}

}  // namespace
}  // namespace annulus::client
