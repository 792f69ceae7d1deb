// Files that were made to break their readers, and files that are damaged: every one ends soon, in
// bounded memory, with a text or a sentence.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/format/text.h"
#include "client/read/child.h"
#include "client/read/read.h"
#include "tests/client/read/make_zip.h"
#include "tests/support/test_data.h"

namespace annulus::client {
namespace {

using ::testing::HasSubstr;

std::string Repeated(const std::string& text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) result += text;
  return result;
}

// The first failure among the texts of a file; "" if there is none.
std::string Failure(const std::string& bytes, const ReadLimits& limits = {}) {
  for (const FileText& read : ReadBytes("f", bytes, {}, limits)) {
    if (!read.text.ok()) return std::string(read.text.status().message());
  }
  return "";
}

std::string Docx(const std::string& body) {
  return testing::MakeZip({{"word/document.xml", body}});
}

constexpr ReadLimits kSmall{.unpacked_bytes = 1 << 20};

TEST(Hostile, BombsEndAtTheLimit) {
  const std::string zeros(8 << 20, ' ');
  EXPECT_THAT(Failure(testing::MakeGzip(zeros), kSmall), HasSubstr("unpacks to more than 1 MiB"));
  EXPECT_THAT(Failure(testing::MakeZip({{"a", zeros}}), kSmall), HasSubstr("more than 1 MiB"));
  EXPECT_THAT(Failure(Docx(zeros), kSmall), HasSubstr("more than 1 MiB"));
  EXPECT_THAT(Failure(testing::MakeZip({{"mimetype", zeros}}), kSmall), HasSubstr("1 MiB"));
  // Each below the limit, all of them above it.
  std::vector<std::pair<std::string, std::string>> parts;
  for (int i = 0; i < 8; ++i) parts.emplace_back(absl::StrCat("p", i), std::string(300 << 10, 'x'));
  EXPECT_THAT(Failure(testing::MakeZip(parts), kSmall), HasSubstr("more than 1 MiB"));
  EXPECT_THAT(Failure(zeros, {.file_bytes = 1 << 20}), HasSubstr("is larger than 1 MiB"));
}

TEST(Hostile, EndlessChildrenEnd) {
  std::string bytes = "text";
  for (int i = 0; i < 5; ++i) bytes = testing::MakeZip({{"inner", bytes}});
  EXPECT_THAT(Failure(bytes), HasSubstr("is the 4th nested archive"));
  bytes = "text";
  for (int i = 0; i < 5; ++i) bytes = testing::MakeGzip(bytes);
  EXPECT_THAT(Failure(bytes), HasSubstr("is the 4th nested archive"));
  std::vector<std::pair<std::string, std::string>> many;
  for (int i = 0; i < 50; ++i) many.emplace_back(absl::StrCat(i), "x");
  EXPECT_THAT(Failure(testing::MakeZip(many), {.entries = 20}), HasSubstr("more than 20 files"));
}

TEST(Hostile, DeepXmlEnds) {
  for (const int depth : {300, 200000}) {
    const std::string deep = absl::StrCat(Repeated("<w:p>", depth), "x", Repeated("</w:p>", depth));
    EXPECT_THAT(Failure(Docx(deep)), HasSubstr("nested deeper than 256"));
  }
  EXPECT_THAT(Failure(Docx(Repeated("<a>", 100000))), HasSubstr("cut off or broken"));
  EXPECT_THAT(
      Failure(Docx(absl::StrCat("<a>", Repeated("<b/>", 2000), "</a>")), {.xml_tags = 1000}),
      HasSubstr("more than 1000 tags"));
}

TEST(Hostile, EntitiesAreNotExpanded) {
  std::string flood = "<!DOCTYPE d [<!ENTITY a0 \"aaaaaaaaaa\">";
  for (int i = 1; i < 10; ++i) {
    absl::StrAppend(&flood, "<!ENTITY a", i, " \"", Repeated(absl::StrCat("&a", i - 1, ";"), 10),
                    "\">");
  }
  absl::StrAppend(&flood, "<!ENTITY file SYSTEM \"file:///etc/passwd\">]>",
                  "<w:document><w:p><w:t>&a9; &file; end</w:t></w:p></w:document>");
  const auto texts = ReadBytes("f", Docx(flood));
  ASSERT_EQ(texts.size(), 1u);
  EXPECT_EQ(texts[0].text.value(), "&a9; &file; end\n");
}

TEST(Hostile, SpansAndRepeatsEnd) {
  const ReadLimits limits{.time = std::chrono::seconds(30)};
  std::string page = "<!DOCTYPE html><table>";
  for (int i = 0; i < 3000; ++i) {
    absl::StrAppend(&page, "<tr><td colspan=1000 rowspan=65534>x<td>y");
  }
  for (const FileText& read : ReadBytes("f", page, {}, limits)) {
    ASSERT_TRUE(read.text.ok()) << read.text.status();
    EXPECT_LT(read.text->size(), size_t{64} << 20);
  }
  const std::string row =
      "<t:table-row t:number-rows-repeated='1048576'><t:table-cell "
      "t:number-columns-repeated='16384'><t:p>x</t:p></t:table-cell></t:table-row>";
  const auto texts = ReadBytes(
      "f",
      testing::MakeZip(
          {{"mimetype", "application/vnd.oasis.opendocument.text"},
           {"content.xml", absl::StrCat("<o:d><o:body><o:text><t:table>", Repeated(row, 3),
                                        "</t:table></o:text>"
                                        "</o:body></o:d>")}}),
      {}, limits);
  EXPECT_LT(texts.at(0).text.value().size(), size_t{64} << 20);
}

TEST(Hostile, MailInMailEnds) {
  std::string mail = "text\r\n";
  for (int i = 0; i < 100; ++i) {
    mail = absl::StrCat(
        "From: a@b\r\nDate: x\r\nSubject: s\r\nContent-Type: multipart/mixed; boundary=b", i,
        "\r\n\r\n--b", i, "\r\nContent-Type: message/rfc822\r\n\r\n", mail, "\r\n--b", i, "--\r\n");
  }
  EXPECT_THAT(Failure(mail), HasSubstr("is the 4th nested archive"));
}

TEST(Hostile, DeepHtmlNeedsNoStack) {
  const auto texts = ReadBytes("f", absl::StrCat("<html>", Repeated("<i>", 3000), "deep"));
  EXPECT_EQ(texts.at(0).text.value(), "deep\n");
  // Above the limits of time or memory, or not: it ends.
  ReadLimits limits{.html_memory = 64 << 20, .time = std::chrono::seconds(1)};
  for (const char* tags : {"<div>", "<table><tr><td>", "<ul><li>", "<svg>", "<button>"}) {
    for (const FileText& read : ReadBytes("f", "<html>" + Repeated(tags, 100000), {}, limits)) {
      if (!read.text.ok()) {
        EXPECT_THAT(
            std::string(read.text.status().message()),
            ::testing::AnyOf(HasSubstr("takes more than 64 MiB to read as HTML"),
                             HasSubstr("takes longer than 1 seconds"), HasSubstr("is empty")));
      }
    }
  }
}

// Each paragraph makes anew what was left open before it.
TEST(Hostile, QuadraticHtmlEndsAtTheLimits) {
  std::string page = "<html>";
  for (int i = 0; i < 20000; ++i) absl::StrAppend(&page, "<p><b id=", i, ">x");
  EXPECT_THAT(Failure(page, {.html_memory = 32 << 20}), HasSubstr("32 MiB to read as HTML"));
  EXPECT_THAT(Failure(page, {.time = std::chrono::milliseconds(20)}),
              HasSubstr("takes longer than"));
  EXPECT_THAT(Failure("<html>" + std::string(2 << 20, 'x'), {.html_bytes = 1 << 20}),
              HasSubstr("is a page of more than 1 MiB"));
}

ChildLimits SmallChild(int milliseconds) {
  return {std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds), 1 << 16,
          int64_t{1} << 30};
}

TEST(Child, EndsAtItsLimits) {
  EXPECT_EQ(RunChild({"sleep", "60"}, "", SmallChild(50)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(RunChild({"yes"}, "", SmallChild(60000)).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(RunChild({"annulus-no-such-program"}, "", SmallChild(60000)).status().code(),
            absl::StatusCode::kNotFound);
  ChildLimits tight = SmallChild(60000);
  tight.memory = 64 << 20;
  const auto greedy =
      RunChild({"sh", "-c", "head -c 200000000 /dev/zero | tail -c 150000000"}, "", tight);
  ASSERT_TRUE(greedy.ok());
  EXPECT_NE(greedy->exit_code, 0);
}

TEST(Child, GetsItsInputAndGivesItsOutputs) {
  const auto result =
      RunChild({"sh", "-c", "cat /dev/fd/3; echo bad >&2; exit 7"}, "input", SmallChild(60000));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->out, "input");
  EXPECT_EQ(result->err, "bad\n");
  EXPECT_EQ(result->exit_code, 7);
  EXPECT_EQ(RunChild({"sh", "-c", "kill -9 $$"}, "", SmallChild(60000))->exit_code, 128 + 9);
}

// Whatever became of the bytes: texts are UTF-8, failures are one line.
void ExpectSound(const std::string& bytes, const std::string& how) {
  const ReadLimits limits{.unpacked_bytes = 4 << 20, .time = std::chrono::seconds(60)};
  const auto texts = ReadBytes("f", bytes, {}, limits);
  ASSERT_FALSE(texts.empty()) << how;
  for (const FileText& read : texts) {
    if (read.text.ok()) {
      ASSERT_FALSE(FindInvalidUtf8(*read.text).has_value()) << how;
    } else {
      ASSERT_FALSE(absl::StrContains(read.text.status().message(), "\n")) << how;
    }
  }
}

class Damaged : public ::testing::TestWithParam<const char*> {
 protected:
  static std::string Load() {
    std::ifstream file(testing::TestFile(absl::StrCat("client/read/fixtures/", GetParam())),
                       std::ios::binary);
    std::stringstream bytes;
    bytes << file.rdbuf();
    return bytes.str();
  }
  // Each PDF starts a program.
  static int Tries() { return absl::EndsWith(GetParam(), ".pdf") ? 15 : 200; }
};

TEST_P(Damaged, CutAnywhere) {
  const std::string whole = Load();
  ASSERT_FALSE(whole.empty());
  const size_t step = std::max<size_t>(1, whole.size() / static_cast<size_t>(Tries()));
  for (size_t size = 0; size < whole.size(); size += step) {
    ExpectSound(whole.substr(0, size), absl::StrCat("cut at ", size));
  }
}

TEST_P(Damaged, WithFlippedBits) {
  const std::string whole = Load();
  for (int seed = 0; seed < Tries(); ++seed) {
    std::mt19937 random(seed);
    std::string bytes = whole;
    for (int flips = 1 << (seed % 6); flips > 0; --flips) {
      bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
    }
    ExpectSound(bytes, absl::StrCat("seed ", seed));
  }
}

INSTANTIATE_TEST_SUITE_P(Files, Damaged,
                         ::testing::Values("report.docx", "report.odt", "report.epub",
                                           "minutes.docx", "pages.pdf", "page.html", "several.zip",
                                           "note.txt.gz", "latin.txt", "wide.txt"),
                         [](const auto& file) {
                           std::string name = file.param;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

// Checksums of archives catch most flips; these reach the readers of what is in them.
TEST(Hostile, DamagedPartsOfDocuments) {
  const std::string body =
      "<w:document><w:body><w:p><w:pPr><w:pStyle w:val='H'/><w:numPr><w:ilvl w:val='3'/></w:numPr>"
      "</w:pPr><w:r><w:t>one</w:t></w:r></w:p><w:tbl><w:tr><w:tc><w:p><w:r><w:t>a</w:t></w:r></w:p>"
      "</w:tc><w:tc/></w:tr></w:tbl><w:p><w:footnoteReference "
      "w:id='1'/></w:p></w:body></w:document>";
  const std::string odt =
      "<o:document><o:body><o:text><t:h "
      "t:outline-level='2'>x</t:h><t:list><t:list-item><t:p>y</t:p>"
      "</t:list-item></t:list><t:p>z<t:note><t:note-body><t:p>n</t:p></t:note-body></t:note></t:p>"
      "</o:text></o:body></o:document>";
  for (int seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    std::string word = body, open = odt;
    for (std::string* part : {&word, &open}) {
      for (int i = 0; i <= seed % 4; ++i) {
        const size_t at = random() % part->size();
        switch (random() % 3) {
          case 0:
            (*part)[at] ^= static_cast<char>(1 << random() % 7);
            break;
          case 1:
            part->erase(at, random() % 20);
            break;
          default:
            part->insert(at, part->substr(random() % part->size(), random() % 40));
        }
      }
    }
    ExpectSound(Docx(word), absl::StrCat("docx, seed ", seed));
    ExpectSound(testing::MakeZip({{"mimetype", "application/vnd.oasis.opendocument.text"},
                                  {"content.xml", open}}),
                absl::StrCat("odt, seed ", seed));
  }
}

}  // namespace
}  // namespace annulus::client
