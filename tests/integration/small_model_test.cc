// A real language model through the daemon and the command line: the small one of the quickstart, a
// GGUF file, on a ring of four ranks.
#include "tests/support/small_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/client/cli/child_process.h"
#include "tests/integration/daemon.h"
#include "tests/support/temp_directory.h"
#include "tests/support/test_data.h"

namespace annulus::server {
namespace {

using testing::ChildProcess;
using ::testing::HasSubstr;
using ::testing::Not;

std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string Report() { return testing::SourceFolder() / "deploy" / "ferry-report.txt"; }

struct Question {
  std::string words;  // that the answer must hold
  std::string text;
};

// The calls "ask_report 'WORDS' 'QUESTION'" of the quickstart.
std::vector<Question> QuickstartQuestions() {
  const std::string script = ReadAll(testing::SourceFolder() / "deploy" / "quickstart.sh");
  std::vector<Question> questions;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(script, '\n'))) {
    const std::vector<std::string> parts = absl::StrSplit(line, '\'');
    if (parts.size() == 5 && parts[0] == "  ask_report ") questions.push_back({parts[1], parts[3]});
  }
  return questions;
}

// One daemon for all tests: the later ones find the report read.
class SmallModelTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const auto model = testing::SmallModel();
    if (!model.has_value()) return;
    daemon_ = std::make_unique<Daemon>(std::vector<std::string>{
        "--model", model->string(), "--ranks", "4", "--kv-memory", "512MiB"});
    ASSERT_TRUE(daemon_->WaitUntilReady()) << daemon_->output();
  }
  static void TearDownTestSuite() { daemon_.reset(); }

  void SetUp() override {
    if (!testing::SmallModel().has_value()) {
      GTEST_SKIP() << "the small model cannot be had here: deploy/fetch_model.sh says why";
    }
  }

  // `annulus COMMAND ARGUMENT.. --server ADDRESS`
  static std::vector<std::string> Annulus(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), testing::BuildFolder() / "annulus");
    arguments.insert(arguments.end(), {"--server", daemon_->address()});
    return arguments;
  }

  static std::unique_ptr<Daemon> daemon_;
};

std::unique_ptr<Daemon> SmallModelTest::daemon_;

TEST_F(SmallModelTest, AnswersTheQuestionsOfTheQuickstart) {
  const std::vector<Question> questions = QuickstartQuestions();
  ASSERT_EQ(questions.size(), 3u);
  for (const Question& question : questions) {
    SCOPED_TRACE(question.text);
    ChildProcess ask(Annulus({"ask", Report(), question.text, "--temperature", "0", "--max-tokens",
                              "40", "--timings", "--progress=always"}));
    EXPECT_EQ(ask.Wait(), 0) << ask.err();
    EXPECT_THAT(ask.out(), HasSubstr(question.words));
    EXPECT_THAT(ask.err(), HasSubstr("first token "));
    EXPECT_THAT(ask.err(), HasSubstr("tok/s"));
    // What one question reads of the report the others share.
    const auto no_reuse = HasSubstr(" (0 reused; ");
    if (&question == &questions.front()) {
      EXPECT_THAT(ask.err(), no_reuse);
    } else {
      EXPECT_THAT(ask.err(), Not(no_reuse));
    }
  }
}

TEST_F(SmallModelTest, ReadsTheReportInItsFrameAndTheModelsTemplate) {
  ChildProcess ask(Annulus({"ask", Report(), "Who is the captain?", "--show-prompt"}));
  EXPECT_EQ(ask.Wait(), 0) << ask.err();
  EXPECT_EQ(ask.out(),
            absl::StrCat("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained "
                         "by Hugging Face<|im_end|>\n<|im_start|>user\n"
                         "# Document 1: ferry-report.txt\n\n",
                         ReadAll(Report()),
                         "\n\n# End of document 1\n\nQuestion: Who is the captain?<|im_end|>\n"
                         "<|im_start|>assistant\n",
                         "\n"));
}

TEST_F(SmallModelTest, KeepsAConversationAboutTheReport) {
  ChildProcess chat(Annulus({"chat", Report(), "--temperature", "0", "--max-tokens", "40"}));
  chat.Write("Who is the captain of the Marigold?\nIn which year was the company founded?\n");
  chat.CloseInput();
  EXPECT_EQ(chat.Wait(), 0) << chat.err();
  EXPECT_THAT(chat.out(), HasSubstr("Ingrid Halvorsen"));
  EXPECT_THAT(chat.out(), HasSubstr("1953"));
}

TEST_F(SmallModelTest, EndsItsAnswersByItself) {
  ChildProcess chat(Annulus({"chat", "--temperature", "0", "--max-tokens", "200", "--timings"}));
  chat.Write("What is the capital of France?\n");
  chat.CloseInput();
  EXPECT_EQ(chat.Wait(), 0) << chat.err();
  EXPECT_THAT(chat.out(), HasSubstr("Paris"));
  EXPECT_THAT(chat.out(), Not(HasSubstr("<|im_end|>")));
  EXPECT_THAT(chat.err(), Not(HasSubstr("answer 200")));
}

// The ids that a daemon with these flags continues a text with, greedily.
nlohmann::json Continued(const std::vector<std::string>& flags) {
  Daemon daemon(flags);
  EXPECT_TRUE(daemon.WaitUntilReady()) << daemon.output();
  ChildProcess complete({testing::BuildFolder() / "annulus", "complete",
                         "The ferry left the island at noon, and", "--temperature", "0",
                         "--max-tokens", "24", "--json", "--server", daemon.address()});
  EXPECT_EQ(complete.Wait(), 0) << complete.err();
  return nlohmann::json::parse(complete.out()).at("token_ids");
}

TEST_F(SmallModelTest, ConvertedItGivesTheSameTokens) {
  const testing::TempDirectory directory;
  const std::string file = testing::SmallModel()->string();
  const std::string out = directory.path() / "converted";
  Program convert({testing::BuildFolder() / "annulusd", "--convert", "--model", file,
                   "--weights-dtype", "int8", "--out", out});
  EXPECT_EQ(convert.WaitForExit(std::chrono::seconds(100)), 0) << convert.output();
  const nlohmann::json ids = Continued({"--model", out, "--kv-memory", "64MiB"});
  EXPECT_EQ(ids.size(), 24u);
  EXPECT_EQ(ids, Continued({"--model", file, "--weights-dtype", "int8", "--kv-memory", "64MiB"}));
}

}  // namespace
}  // namespace annulus::server
