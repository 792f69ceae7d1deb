#include "client/read/encoding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iconv.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/client/read/read_one.h"

namespace annulus::client {
namespace {

using ::testing::HasSubstr;
using testing::ReadOne;
using testing::RemarksOn;

std::string In(const std::string& encoding, std::string text) {
  const iconv_t converter = iconv_open(encoding.c_str(), "UTF-8");
  std::string bytes(8 * text.size() + 64, '\0');
  char *from = text.data(), *to = bytes.data();
  size_t from_left = text.size(), to_left = bytes.size();
  EXPECT_NE(iconv(converter, &from, &from_left, &to, &to_left), static_cast<size_t>(-1))
      << encoding;
  iconv(converter, nullptr, nullptr, &to, &to_left);
  iconv_close(converter);
  bytes.resize(bytes.size() - to_left);
  return bytes;
}

TEST(Encoding, WindowsCodePages) {
  const std::pair<const char*, const char*> kTexts[] = {
      {"WINDOWS-1250", "Příliš žluťoučký kůň úpěl ďábelské ódy, řekl šťastně.\n"},
      {"WINDOWS-1251", "Съешь же ещё этих мягких французских булок — да выпей «чаю».\n"},
      {"WINDOWS-1252", "“Déjà vu” – l’été à Noël, où s’arrête le garçon…\n"},
      {"WINDOWS-1253", "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία – είπε ο άνθρωπος…\n"},
      {"ISO-8859-2", "Zażółć gęślą jaźń, powiedział stary człowiek.\n"}};
  for (const auto& [encoding, text] : kTexts) {
    EXPECT_EQ(ReadOne("t", In(encoding, text)), text) << encoding;
    EXPECT_THAT(RemarksOn("t", In(encoding, text)), HasSubstr("which is a guess")) << encoding;
  }
}

TEST(Encoding, TheFirstTellingByteMayStandFarIn) {
  const std::string plain(3 << 20, 'x');
  const std::string text = absl::StrCat(plain, "\nPříliš žluťoučký kůň úpěl ďábelské ódy\n");
  EXPECT_EQ(ReadOne("t", In("WINDOWS-1250", text)), text);
}

TEST(Encoding, SignsInsideWordsAreLettersOfAnotherEncoding) {
  const std::string polish = "Zażółć gęślą jaźń. Cena: 5 zł.\n";
  EXPECT_EQ(ReadOne("t", In("ISO-8859-2", polish)), polish);
  const std::string areas = "Fläche 100 m³ und 5 m², ½ Liter für ¿Él?\n";
  EXPECT_EQ(ReadOne("t", In("WINDOWS-1252", areas)), areas);
}

TEST(Encoding, TheUserMayNameIt) {
  EXPECT_EQ(ReadOne("t", In("CP852", "š a ž"), {.encoding = "CP852"}), "š a ž");
  EXPECT_EQ(RemarksOn("t", In("CP852", "š a ž"), {.encoding = "CP852"}),
            "t was converted from CP852 to UTF-8");
  EXPECT_TRUE(IsEncoding("cp852"));
  EXPECT_FALSE(IsEncoding("no-such"));
  EXPECT_THAT(
      ReadOne("t", std::string("\xFF\xFE", 2) + std::string(50, '\xFF'), {.encoding = "SHIFT_JIS"}),
      HasSubstr("is not SHIFT_JIS text"));
}

TEST(Encoding, Iso2022IsNotUtf8) {
  const std::string text = "港は1911年に開いた。\n";
  EXPECT_EQ(ReadOne("t", In("ISO-2022-JP", text)), text);
  EXPECT_EQ(ReadOne("t", In("ISO-2022-KR", "항구 1911\n")), "항구 1911\n");
  // The colours of a terminal are no such escapes.
  EXPECT_EQ(ReadOne("t", "\x1B[31mred\x1B[0m\n"), "\x1B[31mred\x1B[0m\n");
}

TEST(Encoding, ChineseWrittenInAscii) {
  const std::string coded = "Port: ~{<:Ky~} opened ~{!4~} ~~ 1911\n";
  EXPECT_EQ(ReadOne("t", coded), "Port: 己所 opened 〈 ~ 1911\n");
  EXPECT_THAT(RemarksOn("t", coded), HasSubstr("from HZ to UTF-8, which is a guess"));
  // What only looks so.
  for (const char* text :
       {"x~{y", "a ~{b~}", "\\ref~{one two~}", "class A { ~A() {} };\n", "~{~}"}) {
    EXPECT_EQ(ReadOne("t", text), text);
  }
}

TEST(Encoding, LettersOfDosAndOfOldMacs) {
  const std::string german = "Grüße aus Köln, schöne Bücher für das Mädchen\n";
  const std::string french = "L'été à Noël, où s'arrête le garçon\n";
  EXPECT_EQ(ReadOne("t", In("IBM437", german)), german);
  EXPECT_EQ(ReadOne("t", In("MACINTOSH", german)), german);
  EXPECT_EQ(ReadOne("t", In("MACINTOSH", french)), french);
  EXPECT_THAT(RemarksOn("t", In("IBM437", german)), HasSubstr("which is a guess"));
  EXPECT_EQ(ReadOne("t", In("WINDOWS-1252", german)), german);
  EXPECT_EQ(ReadOne("t", In("WINDOWS-1252", french)), french);
}

TEST(Encoding, Utf16WithoutAMark) {
  for (const char* text : {"Plain text.\nMore of it.\n", "Съешь же ещё этих мягких булок\nда\n"}) {
    for (const char* encoding : {"UTF-16LE", "UTF-16BE"}) {
      EXPECT_EQ(ReadOne("t", In(encoding, text)), text) << encoding;
    }
  }
  // Text whose only zero bytes are those of line ends.
  const std::string japanese = "これは日本語のテキストです。価格は五百円です。東京から大阪まで。\n";
  EXPECT_EQ(ReadOne("t", In("UTF-16LE", japanese + japanese)), japanese + japanese);
  // A page in UTF-16 is a page.
  EXPECT_EQ(ReadOne("t", In("UTF-16LE", "<!DOCTYPE html><p>10<sup>6</sup>")), "10^6\n");
  EXPECT_THAT(ReadOne("t", std::string("\1\0\2\0\3\0\4\0\5\0", 10)), HasSubstr("is not text"));
}

TEST(Encoding, OneBadByteIsReplacedAndTold) {
  const std::string text = "Žluťoučký kůň, příliš \xFF dlouhý\n";
  EXPECT_EQ(ReadOne("t", text), "Žluťoučký kůň, příliš \xEF\xBF\xBD dlouhý\n");
  EXPECT_EQ(RemarksOn("t", text), "t: replaced 1 byte (at 31) that is not UTF-8 by U+FFFD");
  std::string wide = In("UTF-16LE", "wide") + "x";
  EXPECT_EQ(ReadOne("t", absl::StrCat("\xFF\xFE", wide)), "wide\xEF\xBF\xBD");
  EXPECT_THAT(RemarksOn("t", absl::StrCat("\xFF\xFE", wide)), HasSubstr("replaced 1 byte (at 10)"));
}

TEST(Encoding, ControlCharactersAreAnAlarm) {
  EXPECT_THAT(RemarksOn("t", "a\x01\x02 b\n"), HasSubstr("t has 2 control characters"));
  EXPECT_THAT(RemarksOn("t", "a\xC2\x9A b\n"), HasSubstr("t has 1 control character,"));
  EXPECT_EQ(RemarksOn("t", "a\tb\r\n\f"), "");
}

}  // namespace
}  // namespace annulus::client
