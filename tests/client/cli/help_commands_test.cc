#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "tests/client/cli/child_process.h"
#include "tests/client/cli/run_cli.h"
#include "tests/client/fake_server.h"
#include "tests/support/temp_directory.h"
#include "tests/support/test_data.h"

namespace annulus {
namespace {

using testing::ChildProcess;
using testing::FakeServer;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::RunCliInProcess;

TEST(Help, PrintsTheHelpOfACommand) {
  EXPECT_EQ(RunCliInProcess({"help", "documents", "rm"}).out,
            RunCliInProcess({"documents", "delete", "--help"}).out);
  EXPECT_EQ(RunCliInProcess({"help"}).out, RunCliInProcess({"--help"}).out);
  EXPECT_EQ(RunCliInProcess({"help", "nothing"}).exit_code, 2);
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

// What bash offers for a line that ends at the cursor.
std::string Complete(const std::string& server, const std::vector<std::string>& words) {
  const testing::TempDirectory directory;
  const std::string script = directory.path() / "annulus.bash";
  std::ofstream(script) << RunCliInProcess({"completion", "bash"}).out;
  std::string line =
      absl::StrCat("PATH=", testing::BuildFolder().string(),
                   ":$PATH; export ANNULUS_SERVER=", server, "; source ", script, "; COMP_WORDS=(");
  for (const std::string& word : words) absl::StrAppend(&line, "'", word, "' ");
  absl::StrAppend(&line, "); COMP_CWORD=", words.size() - 1,
                  "; _annulus 2>/dev/null; echo \"${COMPREPLY[@]}\"");
  ChildProcess bash({"/bin/bash", "-c", line});
  EXPECT_EQ(bash.Wait(), 0) << bash.err();
  return bash.out();
}

TEST(Completion, BashCompletesCommandsFlagsAndNames) {
  FakeServer server;
  server.AddDocument("contract", "x");
  server.AddDocument("report", "x");
  const std::string address = server.address();
  EXPECT_EQ(Complete(address, {"annulus", "su"}), "summarize\n");
  EXPECT_THAT(Complete(address, {"annulus", "documents", ""}), HasSubstr("put"));
  EXPECT_EQ(Complete(address, {"annulus", "ask", "--temp"}), "--temperature\n");
  EXPECT_EQ(Complete(address, {"annulus", "documents", "show", "con"}), "contract\n");
  EXPECT_EQ(Complete(address, {"annulus", "ask", "rep"}), "report\n");
  EXPECT_EQ(Complete(address, {"annulus", "ask", "--progress", "al"}), "always\n");
  // A server that does not answer gives no names and no noise.
  EXPECT_EQ(Complete("127.0.0.1:1", {"annulus", "documents", "show", "con"}), "\n");
}

TEST(Completion, OtherShellsGetScripts) {
  EXPECT_THAT(RunCliInProcess({"completion", "zsh"}).out, HasSubstr("bashcompinit"));
  const std::string fish = RunCliInProcess({"completion", "fish"}).out;
  EXPECT_THAT(fish, HasSubstr("-l temperature -s t -x -d"));
  EXPECT_THAT(fish, HasSubstr("-a summarize"));
  EXPECT_EQ(RunCliInProcess({"completion", "tcsh"}).exit_code, 2);
}

}  // namespace
}  // namespace annulus
