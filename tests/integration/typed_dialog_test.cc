// What goes on for a while on a terminal: conversations, long documents, batches, a watched status.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/integration/typed.h"

namespace annulus::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TerminalProcess;
namespace fs = std::filesystem;

// The shell outlives what is interrupted in it, and says how that ended.
constexpr char kThenCode[] = "; echo code=$?";
constexpr char kTrap[] = "trap : INT; ";

class TypedDialogTest : public TypedTest {
 protected:
  static constexpr int kLines = 480;  // of 42 bytes

  TypedDialogTest() {
    Write("notes.txt", "The pilot at BRAE is called 2290-KNOT.\nNothing else.\n");
    Write("lines.txt", Lines(kLines));
  }

  // The i-th line of a document: no words occur twice, so that the model continues each line by the
  // next ones for as long as it may.
  static std::string Line(int i) {
    std::string line;
    std::mt19937 random(static_cast<uint32_t>(i));
    for (int word = 0; word < 6; ++word) {
      for (int letter = 0; letter < 6; ++letter) line += static_cast<char>('a' + random() % 26);
      line += word < 5 ? ' ' : '\n';
    }
    return line;
  }
  static std::string Lines(int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += Line(i);
    return text;
  }
  // The first three words of a line, as a question, and the last one.
  static std::string Begin(int i) { return Line(i).substr(0, 21); }
  static std::string Last(int i) { return Line(i).substr(35, 6); }

  TerminalProcess StartForInterrupt(const std::string& line) const {
    return Start(absl::StrCat(kTrap, line, kThenCode));
  }
};

TEST_F(TypedDialogTest, AConversationIsEditedSavedAndTakenUpAgain) {
  {
    TerminalProcess chat = Start("annulus chat notes.txt --stop '\\n' -n 20");
    chat.ReadUntil("1 document. /help lists commands");
    chat.AwaitPrompt("> ");
    chat.Type(
        "The pilot at BRAF\x7f"
        "E is called \r");
    chat.ReadUntil("2290-KNOT.\r\n");
    chat.AwaitPrompt("> ");
    chat.Type("\x1b[A\r");  // the line before
    chat.ReadUntil("2290-KNOT.\r\n");
    chat.AwaitPrompt("> ");
    chat.Type("/docs lines.txt\r");
    chat.ReadUntil("notes.txt");
    chat.ReadUntil("lines.txt");
    chat.AwaitPrompt("> ");
    chat.Type("/save talk.json\r");
    chat.AwaitPrompt("> ");
    chat.Type("/sav\r");
    chat.ReadUntil("did you mean /save?");
    chat.AwaitPrompt("> ");
    chat.Type("\x04");
    EXPECT_EQ(chat.Wait(), 0);
  }
  EXPECT_THAT(Read("talk.json"), AllOf(HasSubstr("The pilot at BRAE is called "),
                                       HasSubstr("2290-KNOT."), HasSubstr("sha256-")));
  TerminalProcess chat = Start("annulus chat --stop '\\n' -n 20");
  chat.ReadUntil("No documents");
  chat.AwaitPrompt("> ");
  chat.Type("/load talk.json\r");
  chat.AwaitPrompt("> ");
  chat.Type("/docs\r");
  chat.ReadUntil("lines.txt");
  chat.AwaitPrompt("> ");
  chat.Type("The pilot at BRAE is called \r");
  chat.ReadUntil("2290-KNOT.\r\n");
  chat.AwaitPrompt("> ");
  chat.Type("/quit\r");
  EXPECT_EQ(chat.Wait(), 0);
}

TEST_F(TypedDialogTest, InterruptionStopsAnAnswerAndNotTheConversation) {
  TerminalProcess chat =
      StartForInterrupt(absl::StrCat("annulus chat lines.txt --stop ", Last(450), " -n 12000"));
  chat.AwaitPrompt("> ");
  chat.Type(Begin(17) + "\r");
  chat.ReadUntil(Last(19));
  chat.Type("\x03");
  EXPECT_THAT(chat.ReadUntil("annulus: interrupted"), Not(HasSubstr(Last(449))));
  chat.AwaitPrompt("> ");
  chat.Type(Begin(447) + "\r");
  chat.ReadUntil(Last(449));
  chat.AwaitPrompt("> ");
  chat.Type("half a quest");
  chat.ReadUntil("quest");
  chat.Type("\x03");
  chat.ReadUntil("Ctrl-C again");
  chat.AwaitPrompt("> ");
  chat.Type("\x03");
  chat.ReadUntil("code=130");
  EXPECT_EQ(chat.Wait(), 0);
}

TEST_F(TypedDialogTest, InterruptionOfAQuestionKeepsWhatWasAnswered) {
  TerminalProcess ask =
      StartForInterrupt(absl::StrCat("annulus ask lines.txt '", Begin(17), "' -n 12000"));
  ask.ReadUntil(Last(19));
  ask.Type("\x03");
  ask.ReadUntil("annulus: interrupted");
  ask.ReadUntil("code=130");
  EXPECT_EQ(ask.Wait(), 0);
}

TEST_F(TypedDialogTest, DocumentsLongerThanTheContextAreReadInParts) {
  Write("long.txt", Lines(2400));
  Type({
      {"annulus ask long.txt Who? --whole", 2, {"long.txt has 100,800 tokens. "}},
      {"annulus ask long.txt '" + Begin(77) + "' -n 20",
       0,
       {"Reading in 4 parts", "/100,800 tokens", Last(77), "from long.txt, line 78"}},
      {"annulus summarize long.txt -n 8",
       0,
       {"Parts  ", "/100,800 tokens", "recall is a demonstration model"}},
      {"annulus extract long.txt --what '" + Begin(77) + "' -n 8",
       0,
       {"long.txt, part 1 of 4:", "long.txt, part 4 of 4:"}},
      {"annulus extract notes.txt", 2, {"--what is required"}},
      {"annulus summarize notes.txt -n 4 -o summary.txt --quiet; wc -c <summary.txt", 0, {"5\n"}},
      // Presets are seen, copied and edited.
      {"annulus summarize --list-presets", 0, {"brief    built in", "default  built in"}},
      {"mkdir -p .config/annulus/presets; export XDG_CONFIG_HOME=$HOME/.config; "
       "annulus summarize --show-preset | sed 's/^max_tokens: .*/max_tokens: 3/' "
       ">.config/annulus/presets/summarize-mine.yaml; annulus summarize --list-presets; "
       "annulus summarize notes.txt --preset mine -o mine.txt --quiet; wc -c <mine.txt",
       0,
       {"mine     ", "\n4\n"}},
      {"annulus summarize notes.txt --preset nobodys", 2, {"no preset nobodys of summarize"}},
      {"annulus documents ls", 0, {"notes.txt"}, {"part"}},
  });
}

TEST_F(TypedDialogTest, ABatchGoesOnWhereItWasInterrupted) {
  constexpr int kRequests = 12;
  std::string lines;
  for (int i = 0; i < kRequests; ++i) {
    absl::StrAppend(&lines, R"({"documents": ["lines.txt"], "max_tokens": 200, "question": ")",
                    Begin(17 + i), "\"}\n");
  }
  Write("in.jsonl", lines);
  {
    TerminalProcess batch = StartForInterrupt("annulus batch in.jsonl out.jsonl --concurrency 1");
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!absl::StrContains(Read("out.jsonl.part"), '\n') &&
           std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    batch.Type("\x03");
    batch.ReadUntil("repeat the command to resume");
    batch.ReadUntil("code=130");
    EXPECT_EQ(batch.Wait(), 0);
  }
  EXPECT_FALSE(fs::exists(Path("out.jsonl")));
  const std::string before = Read("out.jsonl.part");
  EXPECT_THAT(before, HasSubstr("\"text\":\"" + Line(17).substr(21, 20)));
  Type({{"annulus batch in.jsonl out.jsonl", 0, {" were answered before"}}});
  const std::string answers = Read("out.jsonl");
  EXPECT_TRUE(absl::StartsWith(answers, before)) << before << answers;
  EXPECT_EQ(std::vector<std::string>(absl::StrSplit(answers, '\n', absl::SkipEmpty())).size(),
            kRequests);
  EXPECT_FALSE(fs::exists(Path("out.jsonl.part")));

  Write("in.jsonl", lines + "{\"id\": \"greedy\", \"prompt\": \"x\", \"max_tokens\": 40000}\n");
  Type({
      {"annulus batch in.jsonl out.jsonl",
       3,
       {"1 of 13 failed: out.jsonl.failed says why; repeat the command to retry them"}},
      {"cat out.jsonl.failed", 0, {"{\"id\":\"greedy\",\"line\":13,\"code\":\"OUT_OF_RANGE\""}},
      {"echo '{\"questoin\": 1}' >wrong.jsonl; annulus batch wrong.jsonl o", 2, {"question"}},
  });
}

TEST_F(TypedDialogTest, AWatchedStatusFollowsWhatTheDaemonDoes) {
  TerminalProcess status = StartForInterrupt("annulus status --watch --interval 0.1");
  EXPECT_THAT(status.ReadUntil("requests  0 running"), HasSubstr("\x1b[H\x1b[2J"));
  TerminalProcess ask =
      StartForInterrupt(absl::StrCat("annulus ask lines.txt '", Begin(17), "' -n 12000 --quiet"));
  status.ReadUntil("requests  1 running");
  ask.Type("\x03");
  ask.ReadUntil("code=130");
  EXPECT_EQ(ask.Wait(), 0);
  EXPECT_THAT(status.ReadUntil("requests  0 running"), Not(HasSubstr("GFLOP")));
  status.Type("\x03");
  status.ReadUntil("code=130");
  EXPECT_EQ(status.Wait(), 0);
  Type({{"annulus status --verbose", 0, {"ring      attention of "}}});
}

}  // namespace
}  // namespace annulus::server
