#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/client/cli/run_cli.h"
#include "tests/client/fake_server.h"

namespace annulus::client {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::RunCliInProcess;

TEST(Help, PrintsTheHelpOfACommand) {
  EXPECT_EQ(RunCliInProcess({"help", "documents", "rm"}).out,
            RunCliInProcess({"documents", "delete", "--help"}).out);
  EXPECT_EQ(RunCliInProcess({"help"}).out, RunCliInProcess({"--help"}).out);
  EXPECT_EQ(RunCliInProcess({"help", "nothing"}).exit_code, 2);
}

TEST(Help, ShortWordsAtTheTopMeanWhatTheyDoElsewhere) {
  const auto version = RunCliInProcess({"version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_EQ(version.out, RunCliInProcess({"--version"}).out);
  testing::FakeServer server;
  server.AddDocument("book.txt", "text", "A book");
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--server", server.address()});
    return RunCliInProcess(arguments).out;
  };
  EXPECT_THAT(run({"ls"}), HasSubstr("A book"));
  EXPECT_EQ(run({"ls"}), run({"documents", "list"}));
  EXPECT_THAT(run({"ls", "*book"}), HasSubstr("A book"));  // by its title
  EXPECT_THAT(run({"ls", "none*"}), Not(HasSubstr("A book")));
  EXPECT_EQ(run({"rm", "book.txt"}), "deleted book.txt\n");
  EXPECT_TRUE(server.documents().empty());
}

TEST(Help, TheManualHasEveryCommandAndOptionOnce) {
  const std::string page = RunCliInProcess({"help", "--man"}).out;
  EXPECT_THAT(page, HasSubstr(".TH ANNULUS 1"));
  for (const char* command : {"ask", "chat", "batch", "summarize", "documents put", "status"}) {
    EXPECT_THAT(page, HasSubstr(absl::StrCat(".SS annulus ", command)));
  }
  const size_t first = page.find("\\-\\-top\\-k N");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(page.find("\\-\\-top\\-k N", first + 1), std::string::npos);
  EXPECT_THAT(page, Not(HasSubstr("\n'")));
}

}  // namespace
}  // namespace annulus::client
