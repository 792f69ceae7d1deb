// Many questions about one document, by the real programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "bench/demo/document.h"
#include "tests/integration/daemon.h"
#include "tests/support/temp_directory.h"

namespace annulus {
namespace {

using Json = nlohmann::ordered_json;

class QuestionsTest : public ::testing::Test {
 protected:
  QuestionsTest() : daemon_({"--ranks", "2", "--kv-memory", "128MiB"}) {}

  std::string Annulus(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), testing::BuildFolder() / "annulus");
    for (const char* more : {"--json", "--quiet", "--server"}) arguments.emplace_back(more);
    arguments.push_back(daemon_.address());
    Program program(arguments, {"HOME=/nonexistent"});
    EXPECT_EQ(program.WaitForExit(std::chrono::seconds(60)), 0) << program.output();
    program.WaitForOutput("never", std::chrono::seconds(10));  // to the end
    return program.output();
  }
  DemoDocument Write(const std::string& name, int64_t bytes, uint64_t seed) {
    DemoDocument document = MakeDemoDocument({.bytes = bytes, .seed = seed}).value();
    directory_.Write(name, document.text);
    return document;
  }
  std::string Path(const std::string& name) const { return directory_.path() / name; }

  const testing::TempDirectory directory_;
  Daemon daemon_;
};

TEST_F(QuestionsTest, OnePrefillServesAll) {
  ASSERT_TRUE(daemon_.WaitUntilReady()) << daemon_.output();
  const DemoDocument document = Write("records.txt", 20'000, 3);
  std::string questions;
  constexpr size_t kQuestions = 24;
  for (size_t i = 0; i < kQuestions; ++i) {
    questions += Json({{"question", document.facts[i % document.facts.size()].cue}}).dump() + "\n";
  }
  directory_.Write("questions.jsonl", questions);
  const std::string output = Annulus(
      {"ask", Path("records.txt"), "--questions", Path("questions.jsonl"), "--stop", "\\n"});
  const std::vector<std::string> lines = absl::StrSplit(output, '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), kQuestions) << output;
  const int64_t pages = std::ssize(document.text) / 64 * 64;
  int64_t computed = 0;
  for (size_t i = 0; i < kQuestions; ++i) {
    const Json answer = Json::parse(lines[i], nullptr, /*allow_exceptions=*/false);
    EXPECT_EQ(answer["index"], i);
    EXPECT_EQ(answer["text"], document.facts[i % document.facts.size()].answer);
    const Json& usage = answer["usage"];
    if (i > 0) {
      EXPECT_GE(usage["cached_tokens"], pages) << answer;
    }
    computed += usage["prompt_tokens"].get<int64_t>() - usage["cached_tokens"].get<int64_t>();
  }
  // The document once, and of each question its own words.
  EXPECT_LT(computed, std::ssize(document.text) + static_cast<int64_t>(kQuestions) * 300);
  // One line a question.
  for (const char* end : {"-0 ", "-23 "}) {
    EXPECT_TRUE(daemon_.WaitForOutput(end, std::chrono::seconds(10))) << daemon_.output();
  }
  EXPECT_THAT(daemon_.output(), ::testing::HasSubstr("request_done call=AskMany id=r-"));
}

}  // namespace
}  // namespace annulus
