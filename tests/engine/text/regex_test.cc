#include "engine/text/stages/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/text/stages/pcre_dialect.h"
#include "engine/text/stages/text_stage.h"
#include "engine/text/utf8.h"
#include "kernels/base/sanitizers.h"
#include "tests/support/processor_time.h"

namespace annulus {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Matches(absl::string_view pattern, absl::string_view text) {
  const auto regex = Regex::Compile(pattern);
  EXPECT_TRUE(regex.ok()) << regex.status();
  std::vector<std::string> matches;
  if (!regex.ok()) return matches;
  WorkMeter work("the text", EncodeSteps(text.size()), CancelFlag::Never());
  const absl::Status status =
      RegexScanner(&*regex, &work).Push(text, true, [&](absl::string_view range, bool is_match) {
        if (is_match) matches.emplace_back(range);
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok()) << status;
  return matches;
}

TEST(Regex, ReadsClassesAsTheFilesMeanThem) {
  EXPECT_THAT(Matches(R"(\s+)", "a\u180eb\u00a0\u3000c"), ElementsAre("\u00a0\u3000"));
  EXPECT_THAT(Matches(R"([^\s]+)", "a\u180e \u2028b"), ElementsAre("a\u180e", "b"));
  EXPECT_THAT(Matches(R"(\S+)", "a\u200b \u0085b"), ElementsAre("a\u200b", "b"));
  EXPECT_THAT(Matches(R"(\w+)", "a\u0301\u203f9 \u00bd-"), ElementsAre("a\u0301\u203f9"));
  EXPECT_THAT(Matches(R"([\w']+)", "it's, no"), ElementsAre("it's", "no"));
  EXPECT_THAT(Matches(R"(\W+)", "a\u00bd-b"), ElementsAre("\u00bd-"));
  EXPECT_THAT(Matches(R"(\d)", "1\u0663\u00bd"), ElementsAre("1", "\u0663"));
  EXPECT_THAT(Matches(R"([\u4e00-\u9fa5]+)", "a\u4e2d\u6587b"), ElementsAre("\u4e2d\u6587"));
  EXPECT_THAT(Matches(R"((?i:'s))", "'s'S'\u017f"), ElementsAre("'s", "'S", "'\u017f"));
  // A class inside a class adds to it (BLOOM).
  EXPECT_THAT(Matches(R"([^(\s|[.,!?])]+)", "ab(c.d e|[f]"),
              ElementsAre("ab", "c", "d", "e", "[f]"));
  EXPECT_THAT(Matches(R"([a[bc[d]]e]+)", "xabcdey[z"), ElementsAre("abcde"));
  EXPECT_THAT(Matches(R"(.$)", "ab\ncd\r\n"), ElementsAre("b", "\r"));
  EXPECT_THAT(Matches(R"(\p{N}{1,3})", "12345"), ElementsAre("123", "45"));
}

TEST(Regex, RefusesWhatTheDialectsReadDifferently) {
  for (const char* pattern :
       {R"(\h)",      R"(\v)",          R"(\R)",          R"(\X)",      R"(\b)",     R"(\1)",
        R"([a[^b]])", R"([a-z&&[^b]])", R"([[:alpha:]])", R"(a{1,2}+)", R"(a{,2})",  R"(a{x})",
        R"([a-[b]])", R"([a[b-]c])",    R"([a[b]-c])",    R"([a[b])",   R"((?m:a))", R"((?x)a)",
        R"((*FAIL))", R"([\W])",        R"([]a])",        "a\\",        "[a",        R"(\u12)",
        R"(\p{L)",    R"(\C)",          R"(\Qa\E)"}) {
    EXPECT_EQ(Regex::Compile(pattern).status().code(), absl::StatusCode::kInvalidArgument)
        << pattern;
  }
  EXPECT_THAT(std::string(ToPcreDialect(R"(ab\h)").status().message()), HasSubstr("\\h at byte 2"));
}

TEST(Regex, RefusesPatternsThatDoNotCompile) {
  for (const char* pattern :
       {"(a", "a)", "*a", R"(\p{Nonsense}+)", "(?<=a+)b", "[z-a]", "(((a{999}){999}){999}){999}"}) {
    const absl::Status status = Regex::Compile(pattern).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << pattern;
    EXPECT_THAT(std::string(status.message()), HasSubstr("does not compile")) << pattern;
  }
  EXPECT_FALSE(Regex::Compile(std::string(kMaxPatternBytes + 1, 'a')).ok());
  EXPECT_FALSE(Regex::Compile(std::string(1000, '(') + "a" + std::string(1000, ')')).ok());
}

TEST(Regex, RefusesPatternsThatMatchNothing) {
  for (const char* pattern : {"", "a*", "a?", "(?=a)", "^", "a|", "(?!a)"}) {
    EXPECT_THAT(std::string(Regex::Compile(pattern).status().message()), HasSubstr("empty string"))
        << pattern;
  }
}

TEST(Regex, AnExplodingPatternIsAnErrorAndNoHang) {
  const auto start = std::chrono::steady_clock::now();
  const std::string text(200, 'a');
  for (const char* pattern : {"(a+)+[bc]", "(a|aa)+[bc]", "(a|a)*[bc]", "(?:a*)*[bc]"}) {
    const auto regex = Regex::Compile(pattern);
    ASSERT_TRUE(regex.ok()) << regex.status();
    WorkMeter work("the text", EncodeSteps(text.size()), CancelFlag::Never());
    const absl::Status status =
        RegexScanner(&*regex, &work).Push(text, true, [](absl::string_view, bool) {
          return absl::OkStatus();
        });
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << pattern;
    EXPECT_THAT(std::string(status.message()), HasSubstr(pattern));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

// What took seconds although the library's limits were set: machine code counts anew at every
// place, and counts no characters that an item passes over.
TEST(Regex, SlowPatternsEndAtTheLimitOfSteps) {
  const std::string text(64 << 10, 'a');
  for (const char* pattern :
       {"a*+[bc]", "a+a+a+[bc]", "(?:a*+[bc]|a)[bc]", "[^b]*[^c]*[^d]*[bc]", "(?:(?=a*+)a)+[bc]",
        "(?:.*.*.*[bc])", "(?<!b)a+?a+?[bc]", "(?i:a+)a+[bc]", "(?:a{1,100}){1,100}[bc]"}) {
    const auto regex = Regex::Compile(pattern);
    ASSERT_TRUE(regex.ok()) << regex.status();
    WorkMeter work("the text", EncodeSteps(text.size()), CancelFlag::Never());
    const double start = testing::ThreadSeconds();
    const absl::Status status =
        RegexScanner(&*regex, &work).Push(text, true, [](absl::string_view, bool) {
          return absl::OkStatus();
        });
    EXPECT_LT(testing::ThreadSeconds() - start, kSanitized ? 60 : 3) << pattern;
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << pattern;
    EXPECT_THAT(std::string(status.message()), HasSubstr("steps")) << pattern;
  }
}

TEST(Regex, AnotherThreadEndsASearch) {
  const std::string text(1 << 20, 'a');
  const auto regex = Regex::Compile("a+a+a+[bc]");
  ASSERT_TRUE(regex.ok());
  CancelFlag cancel;
  WorkMeter work("the text", INT64_MAX, cancel);
  std::thread canceller([&] { cancel.Cancel(); });
  const absl::Status status =
      RegexScanner(&*regex, &work).Push(text, true, [](absl::string_view, bool) {
        return absl::OkStatus();
      });
  canceller.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
}

// Each repetition leaves a backtracking point: more than the stack of compiled code holds.
TEST(Regex, DeepBacktrackingMovesToTheHeap) {
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += i % 2 == 0 ? "ab" : "ac";
  EXPECT_THAT(Matches("(?:a(?:b|c))+", text), ElementsAre(text));
}

// Ranges of one text with "|" behind each match and a bar-less gap between.
std::string Marked(const Regex& regex, const std::string& text, std::mt19937* random) {
  WorkMeter work("the text", EncodeSteps(text.size()), CancelFlag::Never());
  RegexScanner scanner(&regex, &work);
  std::string marked;
  for (size_t at = 0; at <= text.size();) {
    size_t size = random == nullptr ? text.size() : (*random)() % 4;
    while (at + size < text.size() && IsUtf8Continuation(text[at + size])) ++size;
    const bool end = at + size >= text.size();
    const absl::Status status = scanner.Push(absl::string_view(text).substr(at, size), end,
                                             [&](absl::string_view range, bool is_match) {
                                               if (is_match) marked += "<";
                                               marked.append(range.data(), range.size());
                                               if (is_match) marked += ">";
                                               return absl::OkStatus();
                                             });
    EXPECT_TRUE(status.ok()) << status;
    if (end) break;
    at += size;
  }
  return marked;
}

TEST(Regex, MatchesDoNotDependOnWhereTheTextIsCut) {
  std::mt19937 random(11);
  for (const char* pattern :
       {R"(\s+(?!\S)|\s+)", R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|\s*[\r\n]+)", "^a", "a$",
        "(?<=b)a+", "(?<=(?<=ab)c)a", R"(\Aa)", R"(a\z)", R"(a\Z)", "(?<!a)b", "ab(?=c)",
        "aab|aa|b", "(?>a+)b", "(?:ab)+c"}) {
    const auto regex = Regex::Compile(pattern);
    ASSERT_TRUE(regex.ok()) << regex.status();
    for (int round = 0; round < 200; ++round) {
      std::string text;
      for (size_t i = random() % 30; i > 0; --i) text += "aaabbc \n\r1\t"[random() % 12];
      if (round % 4 == 0) text += "\u00e9\u3000\u4e2d";
      ASSERT_EQ(Marked(*regex, text, &random), Marked(*regex, text, nullptr))
          << pattern << ", round " << round;
    }
  }
}

TEST(Regex, StopsAtTheCallersError) {
  const auto regex = Regex::Compile("a");
  ASSERT_TRUE(regex.ok());
  int calls = 0;
  WorkMeter work("the text", 1000, CancelFlag::Never());
  EXPECT_EQ(RegexScanner(&*regex, &work)
                .Push("aaa", true,
                      [&](absl::string_view, bool) {
                        ++calls;
                        return absl::AbortedError("enough");
                      }),
            absl::AbortedError("enough"));
  EXPECT_EQ(calls, 1);
}

// As under systemd with MemoryDenyWriteExecute=yes.
TEST(Regex, SaysWhereItCannotCompileToMachineCode) {
  EXPECT_TRUE(CompilesToMachineCode());
  constexpr int kRefusal = 77;
  const auto deny_and_ask = [] {
    constexpr int kSetMdwe = 65;  // PR_SET_MDWE, of Linux 6.3
    constexpr unsigned long kRefuseExecGain = 1;
    if (prctl(kSetMdwe, kRefuseExecGain, 0UL, 0UL, 0UL) != 0) _exit(kRefusal);
    std::vector<Regex> kept;  // fill what was mapped before
    while (CompilesToMachineCode() && kept.size() < 10'000) {
      kept.push_back(*Regex::Compile("[a-z]+"));
    }
    const bool interprets = !CompilesToMachineCode() && Regex::Compile("[a-z]+").ok();
    _exit(interprets ? 0 : 1);
  };
  const pid_t child = fork();
  if (child == 0) deny_and_ask();
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kRefusal) GTEST_SKIP() << "this kernel cannot deny it";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace annulus
