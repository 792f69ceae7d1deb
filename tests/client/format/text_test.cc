#include "client/format/text.h"

#include <gtest/gtest.h>

#include <string>

namespace annulus::client {
namespace {

TEST(Unescape, KnowsNewlineTabAndBackslash) {
  EXPECT_EQ(*Unescape(R"(a\nb\tc\\d)"), "a\nb\tc\\d");
  EXPECT_EQ(*Unescape(""), "");
  EXPECT_EQ(*Unescape("\\\\n"), "\\n");
}

TEST(Unescape, RefusesOthers) {
  EXPECT_FALSE(Unescape("\\x").ok());
  EXPECT_FALSE(Unescape("end\\").ok());
  EXPECT_NE(Unescape("\\q").status().message().find("\\q"), absl::string_view::npos);
}

TEST(Utf8, AcceptsWellFormedText) {
  for (const char* text : {"", "ascii", "é", "漢字", "🙂", "\xF4\x8F\xBF\xBF", "\xED\x9F\xBF"}) {
    EXPECT_EQ(FindInvalidUtf8(text), std::nullopt) << text;
  }
  EXPECT_EQ(FindInvalidUtf8(absl::string_view("a\0b", 3)), std::nullopt);
}

TEST(Utf8, FindsTheFirstBadByte) {
  EXPECT_EQ(FindInvalidUtf8("ab\xFF"), 2u);
  EXPECT_EQ(FindInvalidUtf8("é\x80"), 2u);             // stray continuation
  EXPECT_EQ(FindInvalidUtf8("\xC0\x80"), 0u);          // overlong
  EXPECT_EQ(FindInvalidUtf8("\xE0\x80\x80"), 0u);      // overlong
  EXPECT_EQ(FindInvalidUtf8("\xF0\x8F\xBF\xBF"), 0u);  // overlong
  EXPECT_EQ(FindInvalidUtf8("\xED\xA0\x80"), 0u);      // surrogate
  EXPECT_EQ(FindInvalidUtf8("\xF4\x90\x80\x80"), 0u);  // above U+10FFFF
  EXPECT_EQ(FindInvalidUtf8("x\xE6\xBC"), 1u);         // cut off
  EXPECT_EQ(FindInvalidUtf8("\xE6"
                            "a\x80"),
            0u);
}

TEST(WithoutControls, KeepsTextNewlinesAndTabs) {
  EXPECT_EQ(WithoutControls("a\n\tb é 漢 🙂 \xC2\xA0"), "a\n\tb é 漢 🙂 \xC2\xA0");
}

TEST(WithoutControls, ReplacesWhatCouldSteerATerminal) {
  EXPECT_EQ(WithoutControls("a\x1b[2Jb\r\x7f"), "a\uFFFD[2Jb\uFFFD\uFFFD");
  EXPECT_EQ(WithoutControls("x\xC2\x9B"
                            "2J"),
            "x\uFFFD2J");  // one-character form of ESC [
}

TEST(OnOneLine, EscapesWhatIsNotOneLineOfPlainText) {
  EXPECT_EQ(OnOneLine(""), "");
  EXPECT_EQ(OnOneLine("é 漢 🙂.txt"), "é 漢 🙂.txt");
  EXPECT_EQ(OnOneLine("a\nb\\c\t\x1b\x7f"), "a\\nb\\\\c\\u0009\\u001b\\u007f");
  EXPECT_EQ(OnOneLine("\u009b\u2028\u202e\u2066\u200f\u061c"),
            "\\u009b\\u2028\\u202e\\u2066\\u200f\\u061c");
}

TEST(DisplayWidth, CountsCharacters) {
  EXPECT_EQ(DisplayWidth(""), 0u);
  EXPECT_EQ(DisplayWidth("aé漢🙂"), 4u);
}

TEST(Wrapped, BreaksBetweenWords) {
  EXPECT_EQ(Wrapped("", 10, 2), "");
  EXPECT_EQ(Wrapped("a\n\nb\n", 10, 2), "a\n\nb\n");
  EXPECT_EQ(Wrapped("0123456 89", 10, 2), "0123456 89");
  EXPECT_EQ(Wrapped("0123456 890", 10, 2), "0123456\n  890");
  EXPECT_EQ(Wrapped("key    one two three four\nnext", 14, 4),
            "key    one two\n    three four\nnext");
  EXPECT_EQ(Wrapped("äöü äöü äöü", 7, 0), "äöü äöü\näöü");
  EXPECT_EQ(Wrapped("  a-word-that-is-longer x", 10, 2), "  a-word-that-is-longer\n  x");
  EXPECT_EQ(Wrapped("one a-longer-word", 13, 2), "one\na-longer-word");
  EXPECT_EQ(Wrapped("one two", 3, 5), "one\ntwo") << "no margin that leaves nothing";
  EXPECT_EQ(Wrapped("one two", 0, 0), "one\ntwo");
}

TEST(MeantWord, FindsASlip) {
  const std::vector<std::string> known = {"--temperature", "--top-p",          "--token",
                                          "--stop",        "--stop-token-ids", "ask"};
  EXPECT_EQ(MeantWord("--temperatur", known), "--temperature");
  EXPECT_EQ(MeantWord("--tempreature", known), "--temperature");
  EXPECT_EQ(MeantWord("--tokn", known), "--token");
  EXPECT_EQ(MeantWord("--tocken", known), "--token");
  EXPECT_EQ(MeantWord("--top_p", known), "--top-p");
  EXPECT_EQ(MeantWord("--tempratur", known), "--temperature");
  EXPECT_EQ(MeantWord("aks", known), "ask");
  EXPECT_EQ(MeantWord("add", known), "");
  EXPECT_EQ(MeantWord(std::string(1 << 20, 'a'), known), "");
  EXPECT_EQ(MeantWord("asks", known), "ask");
  EXPECT_EQ(MeantWord("--verbose", known), "");
  EXPECT_EQ(MeantWord("", known), "");
  EXPECT_EQ(MeantWord("-t", known), "");
}

// In whatever pieces the text arrives.
TEST(WordWrap, BreaksLinesAtWords) {
  const std::string text = "One two three\n  four \u00e4\u00f6\u00fc five-six\n\nend ";
  for (size_t size = 1; size <= text.size(); ++size) {
    WordWrap wrap;
    std::string result;
    for (size_t at = 0; at < text.size(); at += size) {
      result += wrap.Add(text.substr(at, size), 9);
    }
    result += wrap.Finish();
    EXPECT_EQ(result, "One two\nthree\n  four\n\u00e4\u00f6\u00fc\nfive-six\n\nend") << size;
  }
}

TEST(WordWrap, HoldsNoLongWordBack) {
  WordWrap wrap;
  EXPECT_EQ(wrap.Add("to ", 40), "to");
  EXPECT_EQ(wrap.Add(std::string(40, 'x'), 40), " " + std::string(32, 'x'));
  EXPECT_EQ(wrap.Finish(), std::string(8, 'x'));
}

}  // namespace
}  // namespace annulus::client
