#include "engine/text/unicode.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <random>
#include <string>

#include "engine/text/utf8.h"
#include "tests/engine/text/small_tokenizers.h"

namespace annulus {
namespace {

std::string Nfc(std::string text) {
  Normalize(NormalForm::kNfc, &text);
  return text;
}

std::string LibraryNfc(const std::string& text) {
  utf8proc_uint8_t* result = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &result,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  EXPECT_GE(size, 0);
  std::string normal(reinterpret_cast<const char*>(result), static_cast<size_t>(size));
  std::free(result);
  return normal;
}

TEST(Nfc, ComposesAndReorders) {
  EXPECT_EQ(Nfc(""), "");
  EXPECT_EQ(Nfc("plain ascii, caf\u00e9"), "plain ascii, caf\u00e9");
  EXPECT_EQ(Nfc("cafe\u0301!"), "caf\u00e9!");
  EXPECT_EQ(Nfc("\u212b"), "\u00c5");                          // angstrom sign
  EXPECT_EQ(Nfc("s\u0307\u0323"), "\u1e69");                   // reordered, composed twice
  EXPECT_EQ(Nfc("\u1100\u1161\u11a8\u11a8"), "\uac01\u11a8");  // Hangul
  EXPECT_EQ(Nfc("\uac00\u11a7x"), "\uac00\u11a7x");            // no trailing consonant
  EXPECT_EQ(Nfc("\u0958"), "\u0915\u093c");                    // composition exclusion
  EXPECT_EQ(Nfc("\u0301a"), "\u0301a");
  EXPECT_EQ(Nfc("a\u0345\u0301"), "\u00e1\u0345");
  EXPECT_EQ(Nfc("\u09c7\u09be"), "\u09cb");  // second part has class 0
}

TEST(Nfc, AgreesWithTheLibraryOnEveryCharacter) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c == 0xD800) c = 0xE000;
    std::string text = "e";
    AppendUtf8(c, &text);
    text += "\u0301";
    if (c == 0x11A7) continue;  // utf8proc 2.8 drops it behind a syllable, see unicode.cc
    ASSERT_EQ(Nfc(text), LibraryNfc(text)) << static_cast<uint32_t>(c);
  }
}

TEST(Nfc, AgreesWithTheLibraryOnRandomText) {
  std::mt19937 random(2);
  constexpr char32_t kInteresting[] =
      U"aes\u0301\u0300\u0323\u0327\u0345\u1100\u1161\u11a8\uac00"
      U"\u0915\u093c\u09c7\u09be\u212b\u1e69\u0344 ";
  for (int round = 0; round < 3000; ++round) {
    std::string text = testing::RandomText(random() % 8, &random);
    for (size_t i = random() % 20; i > 0; --i) {
      AppendUtf8(kInteresting[random() % (std::size(kInteresting) - 1)], &text);
    }
    if (text.find("\u11a7") != std::string::npos) continue;
    const std::string normal = Nfc(text);
    ASSERT_EQ(normal, LibraryNfc(text));
    ASSERT_EQ(Nfc(normal), normal);
  }
}

TEST(UnicodeProperties, WhiteSpaceIsTheUnicodeProperty) {
  int count = 0;
  for (char32_t c = 0; c <= 0x10FFFF; ++c) count += IsWhitespace(c) ? 1 : 0;
  EXPECT_EQ(count, 25);
  EXPECT_TRUE(IsWhitespace(0x3000));
  EXPECT_FALSE(IsWhitespace(0x180E));
  EXPECT_FALSE(IsWhitespace(0x200B));
  EXPECT_FALSE(IsWhitespace(0x1F));
}

TEST(UnicodeProperties, WordCharacters) {
  for (const char32_t c : std::u32string(U"aZ_9\u00e9\u4e2d\u0301\u2163\u24b6\u200d\u203f")) {
    EXPECT_TRUE(IsWordCharacter(c)) << static_cast<uint32_t>(c);
  }
  for (const char32_t c : std::u32string(U" -.\u00bd\u2460\u3000\U0001F600")) {
    EXPECT_FALSE(IsWordCharacter(c)) << static_cast<uint32_t>(c);
  }
}

}  // namespace
}  // namespace annulus
