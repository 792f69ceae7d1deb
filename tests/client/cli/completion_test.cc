// What shells offer, asked of the shells themselves. Those that are not installed are skipped.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/client/cli/child_process.h"
#include "tests/client/cli/run_cli.h"
#include "tests/client/cli/terminal_process.h"
#include "tests/client/fake_server.h"
#include "tests/support/temp_directory.h"
#include "tests/support/test_data.h"

namespace annulus::client {
namespace {

using testing::ChildProcess;
using testing::FakeServer;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::RunCliInProcess;
using testing::TerminalProcess;

constexpr char kNobody[] = "127.0.0.1:1";

class Completion : public ::testing::Test {
 protected:
  Completion() {
    server_.AddDocument("contract", "x");
    server_.AddDocument("report", "x");
    v1::Model model;
    model.set_name("tiny-model");
    server_.SetModels({model});
  }

  // The script of a shell as a file, which is written once.
  std::string Script(const std::string& shell, const std::string& name) {
    const std::filesystem::path file = directory_.path() / name;
    if (!std::filesystem::exists(file)) {
      std::ofstream(file) << RunCliInProcess({"completion", shell}).out;
    }
    return file;
  }

  // Has a shell find the program and, at `address`, its server; nothing of the user's is read.
  std::vector<std::string> Environment(const std::string& address) const {
    return {"/usr/bin/env",
            absl::StrCat("PATH=", testing::BuildFolder().string(), ":", std::getenv("PATH")),
            absl::StrCat("ANNULUS_SERVER=", address),
            absl::StrCat("HOME=", directory_.path().string()),
            absl::StrCat("XDG_CONFIG_HOME=", directory_.path().string())};
  }

  std::string Run(const std::string& address, const std::vector<std::string>& shell) {
    std::vector<std::string> command = Environment(address);
    command.insert(command.end(), shell.begin(), shell.end());
    ChildProcess child(command);
    EXPECT_EQ(child.Wait(), 0) << child.err();
    return child.out();
  }

  // What bash offers for a line that ends at the cursor.
  std::string Bash(const std::string& address, const std::vector<std::string>& words) {
    std::string line = absl::StrCat("source ", Script("bash", "annulus.bash"), "; COMP_WORDS=(");
    for (const std::string& word : words) absl::StrAppend(&line, "'", word, "' ");
    absl::StrAppend(&line, "); COMP_CWORD=", words.size() - 1,
                    "; _annulus 2>/dev/null; echo \"${COMPREPLY[@]}\"");
    return Run(address, {"/bin/bash", "-c", line});
  }

  // The same of fish: a word on each line, with its description behind a tab.
  std::string Fish(const std::string& address, const std::string& line) {
    return Run(address, {"fish", "--no-config", "-c",
                         absl::StrCat("source ", Script("fish", "annulus.fish"), "; complete -C '",
                                      line, "'")});
  }

  FakeServer server_;
  const testing::TempDirectory directory_;
};

bool IsInstalled(const std::string& shell) {
  return ChildProcess({"/bin/sh", "-c", absl::StrCat("command -v ", shell, " >/dev/null")})
             .Wait() == 0;
}

TEST_F(Completion, BashCompletesCommandsFlagsAndNames) {
  const std::string address = server_.address();
  EXPECT_EQ(Bash(address, {"annulus", "su"}), "summarize\n");
  EXPECT_THAT(Bash(address, {"annulus", "documents", ""}), HasSubstr("put"));
  EXPECT_EQ(Bash(address, {"annulus", "ask", "--temp"}), "--temperature\n");
  EXPECT_EQ(Bash(address, {"annulus", "documents", "show", "con"}), "contract\n");
  EXPECT_EQ(Bash(address, {"annulus", "ask", "rep"}), "report\n");
  EXPECT_EQ(Bash(address, {"annulus", "ask", "-m", "ti"}), "tiny-model\n");
  EXPECT_EQ(Bash(address, {"annulus", "ask", "--progress", "al"}), "always\n");
  // A server that does not answer gives no names and no noise.
  EXPECT_EQ(Bash(kNobody, {"annulus", "documents", "show", "con"}), "\n");
}

TEST_F(Completion, FishCompletesCommandsFlagsAndNames) {
  if (!IsInstalled("fish")) GTEST_SKIP() << "fish is not installed";
  const std::string address = server_.address();
  EXPECT_THAT(Fish(address, "annulus su"), HasSubstr("summarize\t"));
  EXPECT_THAT(Fish(address, "annulus documents "), HasSubstr("put\t"));
  EXPECT_THAT(Fish(address, "annulus ask --temp"), HasSubstr("--temperature\t"));
  EXPECT_THAT(Fish(address, "annulus documents show con"), HasSubstr("contract"));
  EXPECT_THAT(Fish(address, "annulus ask rep"), HasSubstr("report"));
  EXPECT_THAT(Fish(address, "annulus ask -m ti"), HasSubstr("tiny-model"));
  EXPECT_THAT(Fish(address, "annulus ask --progress al"), HasSubstr("always"));
  EXPECT_THAT(Fish(kNobody, "annulus documents show con"), Not(HasSubstr("contract")));
}

// As the package installs it: a file in a folder of $fpath, which the first use loads. Keys are
// typed on a terminal; Ctrl-X prints the line as the shell completed it.
TEST_F(Completion, ZshCompletesCommandsFlagsAndNames) {
  if (!IsInstalled("zsh")) GTEST_SKIP() << "zsh is not installed";
  Script("zsh", "_annulus");
  std::ofstream(directory_.path() / "report.txt") << "x";
  std::vector<std::string> command = Environment(server_.address());
  command.insert(command.end(), {"zsh", "-f", "-i"});
  TerminalProcess zsh(command);
  zsh.Type(
      absl::StrCat("cd ~; fpath=(~ $fpath); autoload -U compinit; compinit -u -D; "
                   "show() { print -r -- \"<$BUFFER>\" }; zle -N show; bindkey '^X' show; "
                   "print loa''ded\r"));
  zsh.ReadUntil("loaded");
  const auto completed = [&](const std::string& line, const std::string& expected) {
    zsh.Type(absl::StrCat("\x15", line, "\t\x18"));
    zsh.ReadUntil(absl::StrCat("<", expected, ">"));
  };
  completed("annulus su", "annulus summarize ");
  completed("annulus ask --temp", "annulus ask --temperature ");
  completed("annulus documents show con", "annulus documents show contract ");
  completed("annulus ask -m ti", "annulus ask -m tiny-model ");
  completed("annulus ask --model=ti", "annulus ask --model=tiny-model ");
  completed("annulus ask --progress al", "annulus ask --progress always ");
  completed("annulus ask ./rep", "annulus ask ./report.txt ");
  zsh.Type("\x15 exit\r");
  EXPECT_EQ(zsh.Wait(), 0);
}

TEST_F(Completion, ShellsThatAreNotKnownAreRefused) {
  EXPECT_EQ(RunCliInProcess({"completion", "tcsh"}).exit_code, 2);
}

}  // namespace
}  // namespace annulus::client
