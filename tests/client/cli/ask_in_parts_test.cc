#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cli/ask/part_journal.h"
#include "client/cli/ask/passages.h"
#include "client/format/units.h"
#include "tests/client/cli/generate_test.h"

namespace annulus::client {
namespace {

using ::testing::AllOf;
using testing::CliInput;
using testing::CliResult;
using ::testing::ElementsAre;
using testing::FakeServer;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Passages, WordsAreRunsOfLettersAndDigits) {
  EXPECT_THAT(WordsOf("Don't \u201cSay\u201d 10^6, \u00e9t\u00e9!"),
              ElementsAre("don", "t", "say", "10", "6", "\u00e9t\u00e9"));
  EXPECT_THAT(WordsOf("\u6771\u4eac A"), ElementsAre("\u6771", "\u4eac", "a"));
  EXPECT_TRUE(WordsOf(" ,\n").empty());
}

TEST(Passages, TheRareWordsOfQuestionAndAnswerDecide) {
  std::string text;
  for (int page = 1; page <= 40; ++page) {
    absl::StrAppend(&text, page > 1 ? "\n" : "", "[page ", page, "]\n");
    for (int line = 0; line < 20; ++line) {
      absl::StrAppend(&text, "The code of the pump house is asked for on line ", line, ".\n");
    }
    if (page == 23) absl::StrAppend(&text, "The code of the Marwick lighthouse is 48213.\n");
  }
  const std::string question = "What is the code of the Marwick lighthouse?";
  const std::string wrong = "The code is asked for on line 7.";
  const PassageFinder finder({text}, {question, "48213", wrong});
  for (const std::string& answer : {std::string("48213"), wrong, std::string()}) {
    const Passage passage = finder.Find(text, question, answer);
    EXPECT_THAT(text.substr(passage.offset, passage.size), HasSubstr("is 48213."));
    EXPECT_LE(passage.size, 800u);
    EXPECT_EQ(PlaceAt(text, passage.at), "page 23");
  }
  EXPECT_GT(finder.Find(text, question, "48213").score, 0.9);
  EXPECT_LT(finder.Find(text.substr(0, 9000), question, "48213").score, 0.4);
  EXPECT_EQ(finder.Find("", question, "48213").size, 0u);
}

TEST(Passages, PlacesArePagesSlidesOrLines) {
  EXPECT_EQ(PlaceAt("[page 1]\na\n[page 2]\nb", 9), "page 1");
  EXPECT_EQ(PlaceAt("[page 1]\na\n[page 2]\nb", 20), "page 2");
  EXPECT_EQ(PlaceAt("[slide 12]\na", 11), "slide 12");
  EXPECT_EQ(PlaceAt("a\nsee [page 9]\nb", 15), "line 3");
  EXPECT_EQ(PlaceAt("", 0), "line 1");
}

TEST(PartJournal, KeepsAnswersAndBearsDamage) {
  const testing::TempDirectory directory;
  const std::string path = directory.path() / "annulus" / "parts.jsonl";
  EXPECT_EQ(PartJournal(path).Find("a"), nullptr);
  EXPECT_TRUE(PartJournal(path).Add("a", "one\n\"1\""));
  std::ofstream(path, std::ios::app) << "{\"key\": 7}\n[]\n\xFF\n{\"key\": \"b\", \"ans";
  const PartJournal journal(path);
  ASSERT_NE(journal.Find("a"), nullptr);
  EXPECT_EQ(*journal.Find("a"), "one\n\"1\"");
  EXPECT_EQ(journal.Find("b"), nullptr);
  struct stat file;
  ASSERT_EQ(stat(path.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0600u);
  EXPECT_TRUE(PartJournal("").Add("a", "x"));
  EXPECT_FALSE(PartJournal("/proc/none/parts.jsonl").Add("a", "x"));
}

class AskInPartsTest : public testing::GenerateTest {
 protected:
  AskInPartsTest() {
    v1::Model model;
    model.set_name("small");
    model.set_max_context(4096);  // the fake tokenizer takes a byte for a token
    server_.SetModels({model});
    server_.SetReply(Say("The code is 48213."));
    for (int page = 1; page <= 40; ++page) {
      absl::StrAppend(&text_, "[page ", page, "]\n");
      for (int line = 0; line < 10; ++line) {
        absl::StrAppend(&text_, "Line ", line, " of the manual tells of pumps.\n");
      }
      if (page == 23) absl::StrAppend(&text_, "The code of the Marwick lighthouse is 48213.\n");
    }
    file_ = Write("manual.txt", text_);
  }

  static FakeServer::Reply Say(const std::string& text) {
    return {.events = {testing::ProgressEvent(10, 10), testing::DeltaEvent(text, {1, 2}),
                       testing::CompletionEvent(v1::FINISH_REASON_STOP, 2)}};
  }
  CliResult Ask(std::vector<std::string> arguments, CliInput input = {}) {
    arguments.insert(arguments.begin(), {"ask", file_});
    input.environment["XDG_CACHE_HOME"] = folder_;
    return Run(arguments, input);
  }

  std::string Has() const {
    return absl::StrCat("manual.txt has ", FormatCount(static_cast<int64_t>(text_.size())));
  }

  std::string text_;
  std::string file_;
};

constexpr char kQuestion[] = "What is the code of the Marwick lighthouse?";

TEST_F(AskInPartsTest, ReadsPartsAndAnswersFromWhatItFound) {
  const CliResult result = Ask({kQuestion});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "The code is 48213.\n");
  EXPECT_THAT(result.err, HasSubstr(absl::StrCat(Has(), " tokens. The model")));
  EXPECT_THAT(result.err, HasSubstr("The model small reads 4,096 at a time, question and answer "
                                    "included. Reading in "));
  EXPECT_THAT(result.err, HasSubstr("--whole refuses such documents"));
  EXPECT_THAT(result.err, HasSubstr("from manual.txt, page 23\n"));
  const auto specs = server_.specs();
  ASSERT_GE(specs.size(), 5u);
  for (const v1::GenerationSpec& spec : specs) {
    EXPECT_THAT(spec.messages().messages(0).content(), ::testing::EndsWith(kQuestion));
    EXPECT_EQ(spec.documents_size(), 1);
  }
  EXPECT_TRUE(server_.documents().empty()) << "the parts are deleted";
  size_t uploaded = 0;
  for (const v1::UploadDocumentRequest& part : server_.uploads()) uploaded += part.has_header();
  EXPECT_EQ(server_.withdrawn().size(), uploaded) << "but not while others use them";
}

// A name on the server may stand for another text by now.
TEST_F(AskInPartsTest, ADocumentOnTheServerThatChangedIsReadAgain) {
  server_.AddDocument("terms", "The code is 1.");
  ASSERT_EQ(Ask({"terms", kQuestion}).exit_code, 0);
  const size_t asked = server_.specs().size();
  ASSERT_EQ(Ask({"terms", kQuestion}).exit_code, 0);
  EXPECT_EQ(server_.specs().size(), asked + 1) << "everything was read before";
  server_.AddDocument("terms", "The code is 2.");
  ASSERT_EQ(Ask({"terms", kQuestion}).exit_code, 0);
  EXPECT_EQ(server_.specs().size(), asked + 3) << "its part, and the last question";
  EXPECT_TRUE(server_.documents().contains("terms"));
}

TEST_F(AskInPartsTest, ARepeatReadsNothingAgain) {
  ASSERT_EQ(Ask({kQuestion}).exit_code, 0);
  const size_t asked = server_.specs().size();
  const CliResult again = Ask({kQuestion, "--json"});
  EXPECT_EQ(server_.specs().size(), asked + 1);
  EXPECT_THAT(again.err, HasSubstr("of them were read before)"));
  const auto json = nlohmann::json::parse(again.out);
  EXPECT_EQ(json.at("text"), "The code is 48213.");
  EXPECT_EQ(json.at("parts"), asked - 1);
  EXPECT_EQ(json.at("places").at(0).at("document"), "manual.txt");
  EXPECT_EQ(json.at("places").at(0).at("place"), "page 23");
  ASSERT_EQ(Ask({"Another question?"}).exit_code, 0);
  EXPECT_EQ(server_.specs().size(), 2 * asked + 1);
}

TEST_F(AskInPartsTest, AnInterruptionPrintsWhatWasFound) {
  Cancellation cancellation;
  int replies = 0;
  server_.SetReplies([&](const v1::GenerationSpec&) {
    FakeServer::Reply reply = Say("The code is 48213.");
    if (++replies == 3) cancellation.Cancel();
    if (replies >= 3) reply.wait_for_cancel = true;
    return reply;
  });
  CliInput input;
  input.cancellation = &cancellation;
  const CliResult result = Ask({kQuestion}, input);
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_THAT(result.err, HasSubstr("interrupted after "));
  EXPECT_THAT(result.err, HasSubstr("The same command goes on from there"));
  EXPECT_THAT(result.out, HasSubstr(": The code is 48213.\n"));
  EXPECT_TRUE(server_.documents().empty());
}

TEST_F(AskInPartsTest, WholeRefusesWithTheNumbersBeforeAnyUpload) {
  const std::string small = Write("small.txt", "abc");
  CliResult result = Ask({small, kQuestion, "--whole"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr(Has()), HasSubstr("small.txt has 3. The model small reads 4,096"),
                    HasSubstr("Nothing was uploaded. Leave out --whole to read in "
                              "parts")));
  EXPECT_TRUE(server_.uploads().empty());
  for (const std::vector<std::string>& line :
       {std::vector<std::string>{"plan", file_, "Why?"},
        {"chat", file_},
        {"complete", "--document", file_, "Why?"},
        {"attention", "explain", "--document", file_, "--prompt", "Why?"}}) {
    result = Run(line);
    EXPECT_EQ(result.exit_code, 2) << line[0];
    EXPECT_THAT(result.err, HasSubstr("'annulus ask' and 'annulus summarize' read longer documents "
                                      "in parts"));
  }
  EXPECT_TRUE(server_.uploads().empty());
}

TEST_F(AskInPartsTest, QuestionsOfAFileShareTheReading) {
  const std::string questions = Write("q.txt", absl::StrCat(kQuestion, "\nWhat else?\n"));
  const CliResult result = Ask({"--questions", questions});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, absl::StrCat("# ", kQuestion,
                                     "\nThe code is 48213.\n\n# What else?\nThe code "
                                     "is 48213.\n"));
  // Both questions about one part follow each other, so the second finds it read.
  const auto specs = server_.specs();
  EXPECT_EQ(specs[0].documents(0), specs[1].documents(0));
  EXPECT_TRUE(server_.documents().empty());
}

}  // namespace
}  // namespace annulus::client
