// Many questions about one document, and what one would take, by the real programs.
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

namespace annulus::server {
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
    return program.output();
  }
  Json One(std::vector<std::string> arguments) {
    return Json::parse(Annulus(std::move(arguments)), nullptr, /*allow_exceptions=*/false);
  }
  bench::DemoDocument Write(const std::string& name, int64_t bytes, uint64_t seed) {
    bench::DemoDocument document = bench::MakeDemoDocument({.bytes = bytes, .seed = seed}).value();
    directory_.Write(name, document.text);
    return document;
  }
  std::string Path(const std::string& name) const { return directory_.path() / name; }

  const testing::TempDirectory directory_;
  Daemon daemon_;
};

TEST_F(QuestionsTest, OnePrefillServesAll) {
  ASSERT_TRUE(daemon_.WaitUntilReady()) << daemon_.output();
  const bench::DemoDocument document = Write("records.txt", 20'000, 3);
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

TEST_F(QuestionsTest, APlanTellsWhatTheRequestThenReports) {
  ASSERT_TRUE(daemon_.WaitUntilReady()) << daemon_.output();
  const bench::DemoDocument document = Write("one.txt", 20'000, 4);
  const bench::DemoDocument other = Write("other.txt", 20'000, 5);
  const std::string& cue = document.facts[0].cue;
  const Json unknown = One({"plan", Path("one.txt"), cue});
  EXPECT_EQ(unknown["cached_tokens"], 0) << unknown;
  EXPECT_EQ(unknown["fit"], "now");
  EXPECT_EQ(unknown["density"], 1);
  EXPECT_TRUE(unknown["time_to_first_token"].is_null());
  const Json read = One({"ask", Path("one.txt"), cue, "--stop", "\\n"});
  EXPECT_EQ(read["usage"]["prompt_tokens"], unknown["prompt_tokens"]);
  EXPECT_EQ(read["attention"]["ring_degree"], unknown["ring_degree"]);
  // A document that nobody read takes about as long as the first one. How busy the machine is may
  // change meanwhile; the virtual clock of StallBudget.TheTimeToTheFirstTokenIsForeseen is exact.
  const Json expected = One({"plan", Path("other.txt"), other.facts[0].cue});
  const Json took = One({"ask", Path("other.txt"), other.facts[0].cue, "--stop", "\\n"});
  const double ratio = expected["time_to_first_token"].get<double>() /
                       took["timings"]["time_to_first_token"].get<double>();
  EXPECT_GT(ratio, 0.25) << expected << took;
  EXPECT_LT(ratio, 4) << expected << took;
  // And one that was read is found.
  const Json again = One({"plan", Path("one.txt"), document.facts[1].cue});
  const Json answer = One({"ask", Path("one.txt"), document.facts[1].cue, "--stop", "\\n"});
  EXPECT_GT(again["cached_tokens"], 19'900);
  EXPECT_EQ(again["cached_tokens"], answer["usage"]["cached_tokens"]);
  EXPECT_LT(again["time_to_first_token"], expected["time_to_first_token"]);
  // A policy has its own keys and values, and says how much it leaves out.
  const Json window =
      One({"plan", Path("one.txt"), "?", "--attention", "window:window=2048,sinks=64"});
  EXPECT_LT(window["density"], 0.3);
  const Json never = One({"plan", Path("one.txt"), "?", "--max-tokens", "2000000"});
  EXPECT_EQ(never["fit"], "never") << never;
}

}  // namespace
}  // namespace annulus::server
