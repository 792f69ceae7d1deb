#include "engine/text/utf8.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tests/engine/text/small_tokenizers.h"

namespace annulus {
namespace {

std::string Sanitize(absl::string_view bytes) {
  std::string text;
  Utf8Sanitizer sanitizer;
  sanitizer.Append(bytes, &text);
  sanitizer.Finish(&text);
  return text;
}

TEST(Utf8, EveryScalarValueIsValidAndDecodesToItself) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c == 0xD800) c = 0xE000;
    std::string text;
    AppendUtf8(c, &text);
    ASSERT_FALSE(FirstInvalidUtf8(text).has_value()) << static_cast<uint32_t>(c);
    size_t position = 0;
    ASSERT_EQ(NextCodePoint(text, &position), c);
    ASSERT_EQ(position, text.size());
    ASSERT_EQ(LastCodePoint("x" + text), c);
  }
}

TEST(Utf8, NamesTheFirstBadByte) {
  const struct {
    std::string text;
    size_t offset;
  } cases[] = {
      {"\x80", 0},
      {"abcdefgh\xFF", 8},
      {"abcdefghijk\xC3(", 11},
      {"\xC0\x80", 0},          // overlong
      {"\xE0\x9F\xBF", 0},      // overlong
      {"\xF0\x8F\xBF\xBF", 0},  // overlong
      {"\xED\xA0\x80", 0},      // surrogate
      {"\xF4\x90\x80\x80", 0},  // above U+10FFFF
      {"\xF5\x80\x80\x80", 0},
      {"ok \xE4\xB8", 3},  // cut short
  };
  for (const auto& c : cases) EXPECT_EQ(FirstInvalidUtf8(c.text), c.offset) << c.text;
  EXPECT_EQ(FirstInvalidUtf8(""), std::nullopt);
  EXPECT_EQ(FirstInvalidUtf8(std::string("a\0b", 3)), std::nullopt);
}

TEST(Utf8, TruncationKeepsCharactersWhole) {
  EXPECT_EQ(TruncateUtf8("abc", 5), "abc");
  EXPECT_EQ(TruncateUtf8("abc", 2), "ab");
  EXPECT_EQ(TruncateUtf8("a\u4e2db", 3), "a");
  EXPECT_EQ(TruncateUtf8("a\u4e2db", 4), "a\u4e2d");
  EXPECT_EQ(TruncateUtf8("\u4e2d", 0), "");
}

// The examples of the Unicode Standard, section 3.9, tables 3-8 to 3-11.
TEST(Utf8Sanitizer, ReplacesMaximalSubparts) {
  const std::string r = kReplacementCharacter;
  EXPECT_EQ(Sanitize("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(Sanitize("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(Sanitize("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"),
            r + r + r + r + r + "A" + r + r + "B");
  EXPECT_EQ(Sanitize("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), r + r + r + r + "A");
}

TEST(Utf8Sanitizer, HoldsOnlyWhatCanStillBecomeACharacter) {
  const std::string r = kReplacementCharacter;
  Utf8Sanitizer sanitizer;
  const auto push = [&](absl::string_view bytes) {
    std::string text;
    sanitizer.Append(bytes, &text);
    return text;
  };
  EXPECT_EQ(push("\xF0\x9F"), "");
  EXPECT_EQ(push("\x98"), "");
  EXPECT_EQ(push("\x80!"), "\U0001F600!");
  EXPECT_EQ(push("\xF0"), "");
  EXPECT_EQ(push("\x80"), r + r);  // F0 80 is overlong: both are lost at once
  EXPECT_EQ(push("\xE4"), "");
  EXPECT_EQ(push("a"), r + "a");
  EXPECT_EQ(push("\xFF"), r);
}

TEST(Utf8Sanitizer, DoesNotDependOnHowTheStreamIsCut) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = testing::RandomText(random() % 12, &random);
    for (char& byte : bytes) {
      if (random() % 6 == 0) byte = static_cast<char>(random());
    }
    std::string text;
    Utf8Sanitizer sanitizer;
    for (size_t at = 0; at < bytes.size();) {
      const size_t count = 1 + random() % 3;
      sanitizer.Append(absl::string_view(bytes).substr(at, count), &text);
      ASSERT_FALSE(FirstInvalidUtf8(text).has_value());
      at += count;
    }
    sanitizer.Finish(&text);
    ASSERT_EQ(text, Sanitize(bytes));
    if (!FirstInvalidUtf8(bytes).has_value()) {
      ASSERT_EQ(text, bytes);
    }
  }
}

}  // namespace
}  // namespace annulus
