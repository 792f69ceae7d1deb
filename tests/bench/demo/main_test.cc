// The program annulus-demo, run as a user runs it.

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/support/temp_directory.h"
#include "tests/support/test_data.h"

namespace annulus::bench {
namespace {

struct Outcome {
  int exit_code = -1;
  std::string output;  // standard output and standard error
};

Outcome RunDemo(const std::string& arguments) {
  const std::string command =
      "'" + (testing::BuildFolder() / "annulus-demo").string() + "' " + arguments + " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  Outcome outcome;
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> buffer;
  while (const size_t read = fread(buffer.data(), 1, buffer.size(), pipe)) {
    outcome.output.append(buffer.data(), read);
  }
  outcome.exit_code = WEXITSTATUS(pclose(pipe));
  return outcome;
}

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

class DemoProgramTest : public ::testing::Test {
 protected:
  const testing::TempDirectory folder_;
  const std::filesystem::path out_ = folder_.path() / "out";
};

TEST_F(DemoProgramTest, WritesTheDocumentAndSaysWhatWasPlanted) {
  const Outcome outcome =
      RunDemo("--bytes 2000 --seed 9 --at 0.1,0.9 --out '" + out_.string() + "'");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  const std::string text = ReadFile(out_);
  EXPECT_EQ(text.size(), 2000u);
  std::istringstream lines(outcome.output);
  std::string line;
  int facts = 0;
  while (std::getline(lines, line)) {
    ++facts;
    std::array<char, 256> cue{}, answer{};
    double depth = 0;
    long offset = 0;
    ASSERT_EQ(std::sscanf(line.c_str(),
                          R"({"depth":%lf,"offset":%ld,"cue":"%255[^"]","answer":"%255[^"]"})",
                          &depth, &offset, cue.data(), answer.data()),
              4)
        << line;
    const std::string record = std::string(cue.data()) + answer.data() + "\n";
    EXPECT_EQ(text.substr(static_cast<size_t>(offset), record.size()), record);
  }
  EXPECT_EQ(facts, 2);
}

TEST_F(DemoProgramTest, MisuseIsExplained) {
  for (const std::string arguments :
       {"", "--out", "--bytes 1e6 --out x", "--at 0.5,x --out x", "--at 2 --out x",
        "--bytes 10 --out x", "--facts -1 --out x", "--colour red --out x"}) {
    const Outcome outcome = RunDemo(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments;
    EXPECT_EQ(outcome.output.rfind("annulus-demo: ", 0), 0u) << outcome.output;
  }
  const Outcome unwritable = RunDemo("--out /nowhere/at/all");
  EXPECT_EQ(unwritable.exit_code, 1);
  EXPECT_NE(unwritable.output.find("/nowhere/at/all"), std::string::npos);
  EXPECT_EQ(RunDemo("--help").exit_code, 0);
}

}  // namespace
}  // namespace annulus::bench
