#include "client/read/read.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/read/encoding.h"
#include "client/read/kind.h"
#include "tests/client/read/make_zip.h"
#include "tests/support/test_data.h"

namespace annulus::client {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string FileBytes(const std::string& name) {
  std::ifstream file(testing::TestFile("client/read/fixtures/" + name), std::ios::binary);
  EXPECT_TRUE(file.is_open()) << name;
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

// Every text, or what is wrong with it.
std::string Read(const std::string& title, const std::string& bytes,
                 const ReadLimits& limits = {}) {
  std::string result;
  const auto texts = ReadBytes(title, bytes, {}, limits);
  for (const FileText& read : texts) {
    if (texts.size() > 1) absl::StrAppend(&result, read.title, ":\n");
    absl::StrAppend(&result,
                    read.text.ok() ? *read.text : std::string(read.text.status().message()));
  }
  return result;
}

// The first block of a tar archive, with what is needed to know it by.
std::string TarHeader() {
  std::string header(512, '\0');
  header.replace(0, 8, "name.txt");
  header.replace(148, 8, 8, ' ');
  header.replace(257, 5, "ustar");
  int sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  return header.replace(148, 8, absl::StrFormat("%06o", sum) + std::string("\0 ", 2));
}

std::string Remark(const std::string& title, const std::string& bytes) {
  return absl::StrJoin(ReadBytes(title, bytes).at(0).remarks, "\n");
}

TEST(Read, GivesTheTextOfEveryKindOfFile) {
  for (const char* name :
       {"lists.docx", "lists.odt", "report.docx", "report.odt", "report.epub", "minutes.docx",
        "pages.pdf", "page.html", "several.zip", "note.txt.gz", "latin.txt", "wide.txt"}) {
    EXPECT_EQ(Read(name, FileBytes(name)), FileBytes(absl::StrCat("expected/", name, ".txt")))
        << name;
    // By their content: a name that says another thing changes nothing.
    EXPECT_EQ(ReadBytes("a.jpg", FileBytes(name)).at(0).text.ok(), true) << name;
  }
}

TEST(Read, LeavesUtf8AsItIs) {
  for (const std::string text :
       {"plain\r\n  text\n", "a,b\n1,\"x\ny\"\n", "{\"a\": [1, 2]}\n",
        "int main() { return \"<html>\"[0]; }\n", "<p align=center>Markdown</p>\n\n# Title\n",
        "<htmlish>\n", "<?xml version=\"1.0\"?><data>1</data>\n", "it has\fa page\n"}) {
    const auto texts = ReadBytes("x.html", text);
    ASSERT_EQ(texts.size(), 1u);
    EXPECT_EQ(texts[0].text.value(), text);
    EXPECT_THAT(texts[0].remarks, ::testing::IsEmpty());
  }
}

TEST(Read, ConvertsOtherEncodingsAndSaysSo) {
  EXPECT_EQ(Remark("latin.txt", FileBytes("latin.txt")),
            "latin.txt was converted from WINDOWS-1252 to UTF-8, which is a guess; --encoding NAME "
            "overrides it");
  EXPECT_EQ(Remark("wide.txt", FileBytes("wide.txt")),
            "wide.txt was converted from UTF-16LE to UTF-8");
  EXPECT_EQ(Read("x", "\xEF\xBB\xBFmarked"), "marked");
  EXPECT_EQ(Read("x", std::string("\xFE\xFF\0A\0\xE9", 6)), "A\xC3\xA9");
  EXPECT_EQ(Read("x", std::string("\xFF\xFE\0\0A\0\0\0", 8)), "A");
  EXPECT_EQ(Read("x", "<html><meta charset=koi8-r><body>\xC4\xC1"), "да\n");
  EXPECT_EQ(Read("x", "<html><meta charset=no-such><body>plain"), "plain\n");
  EXPECT_EQ(Read("x", "<html><meta charset=koi8-r><body>\xD0\xB4"), "д\n") << "it is UTF-8";
}

// Found by tests/fuzz/read_fuzz.cc: the row looked at the character in front of the text.
TEST(Read, ATableMayComeFirst) {
  EXPECT_EQ(Read("x", "<!DOCTYPE html><table><tr><td>a<td>b</table>"), "| a | b |\n");
}

TEST(Read, SaysInOneSentenceWhatCannotBeRead) {
  const auto expect = [](const std::string& bytes, const std::string& sentence) {
    const auto texts = ReadBytes("f", bytes);
    ASSERT_EQ(texts.size(), 1u) << sentence;
    ASSERT_FALSE(texts[0].text.ok()) << sentence;
    const std::string message(texts[0].text.status().message());
    EXPECT_THAT(message, ::testing::StartsWith("f"));
    EXPECT_THAT(message, HasSubstr(sentence));
    EXPECT_THAT(message, Not(HasSubstr("\n")));
  };
  expect(FileBytes("encrypted.pdf"), "is encrypted; decrypt it first");
  expect(FileBytes("scanned.pdf"), "has 2 pages but no text: it is probably scanned");
  expect("%PDF-1.4\nnothing more", "is not a PDF that can be read");
  expect("", "is empty");
  expect(" \n\t ", "is empty");
  expect(std::string("a\0b", 3), "is not text");
  expect("\x89PNG\r\n\x1A\n", "is a picture");
  expect("PK\x03\x04 and no more", "cannot be unpacked");
  expect("\x1F\x8B\x08 and no more", "cannot be unpacked");
  expect("\xD0\xCF\x11\xE0", "an old Office file (doc, xls, ppt) or an encrypted one");
  expect(testing::MakeZip({{"[Content_Types].xml", "<x/>"}, {"xl/workbook.xml", "<x/>"}}),
         "another file of an office program");
  expect(testing::MakeZip({{"word/document.xml", "<w:document><w:body>"}}), "cut off or broken");
  expect(testing::MakeZip({{"mimetype", "application/vnd.oasis.opendocument.text"}}),
         "lacks its part content.xml");
  expect(testing::MakeZip({{"mimetype", "application/vnd.oasis.opendocument.text"},
                           {"META-INF/manifest.xml", "<m:encryption-data/>"}}),
         "is encrypted");
  expect(testing::MakeZip({{"mimetype", "application/epub+zip"}}), "container.xml");
  expect(testing::MakeZip({{".hidden", "x"}}), "is an archive without files");
  expect(testing::MakeGzip(TarHeader()), "is a tar archive");
  expect(TarHeader(), "is a tar archive");
}

TEST(Read, ATextMayMentionTar) {
  const std::string text = std::string(257, 'x') + "ustar" + std::string(500, 'y');
  const std::vector<FileText> texts = ReadBytes("a.txt.gz", testing::MakeGzip(text));
  ASSERT_EQ(texts.size(), 1u);
  ASSERT_TRUE(texts[0].text.ok()) << texts[0].text.status();
  EXPECT_EQ(*texts[0].text, text);
}

TEST(Read, ATextMayBeginLikeAPicture) {
  for (const char* text : {"MMLU is a benchmark", "MM", "II* Chapter", "RIFF raff", "BZh, he said",
                           "Rar! they cried", "GIF8 or GIF9"}) {
    EXPECT_EQ(DetectKind(text).kind, FileKind::kText) << text;
  }
  for (const std::string& bytes : {std::string("MM\0*\0\0", 6), std::string("II*\0\0\0", 6),
                                   std::string("RIFF\1\2\3\4WEBPVP8 "), std::string("BZh91AY&SY"),
                                   std::string("Rar!\x1A\x07"), std::string("GIF89a")}) {
    EXPECT_EQ(DetectKind(bytes).kind, FileKind::kOther) << bytes;
  }
}

// Windows-1258 writes accents as letters of their own, so the last letter waits for one.
TEST(Read, ConvertsTheLastLetterOfAnEncodingWithStates) {
  EXPECT_EQ(ToUtf8("f", "caf\xE9", {.declared = "WINDOWS-1258"})->text, "caf\xC3\xA9");
}

TEST(Read, NamesThePackageIfPdftotextIsAbsent) {
  EXPECT_EQ(
      Read("a.pdf", FileBytes("pages.pdf"), {.pdf_program = "annulus-no-such-program"}),
      "reading a.pdf needs pdftotext, which is not installed: 'apt-get install poppler-utils', "
      "or convert the file to text elsewhere");
}

TEST(Read, OneBadFileOfAnArchiveLeavesTheOthers) {
  const auto texts = ReadBytes("z", testing::MakeZip({{"a", "1"},
                                                      {"b",
                                                       "\x7F"
                                                       "ELF"},
                                                      {"c", "3"}}));
  ASSERT_EQ(texts.size(), 3u);
  EXPECT_EQ(texts[0].text.value(), "1");
  EXPECT_EQ(texts[1].title, "z/b");
  EXPECT_FALSE(texts[1].text.ok());
  EXPECT_EQ(texts[2].text.value(), "3");
}

TEST(Read, ReadsDocumentsInArchives) {
  EXPECT_THAT(Read("x", testing::MakeGzip(FileBytes("pages.pdf"))),
              HasSubstr("The harbour froze."));
  EXPECT_THAT(Read("x", testing::MakeZip({{"r.docx", FileBytes("report.docx")}})),
              HasSubstr("The lamp was lit"));
}

TEST(Read, LeavesOutWhatWasDeletedInWord) {
  EXPECT_EQ(Read("x", testing::MakeZip({{"word/document.xml",
                                         "<w:document><w:body><w:p><w:r><w:t>kept </w:t></w:r>"
                                         "<w:del><w:r><w:delText>gone</w:delText></w:r></w:del>"
                                         "<w:ins><w:r><w:t>new</w:t></w:r></w:ins></w:p>"
                                         "</w:body></w:document>"}})),
            "kept new\n");
}

TEST(Read, KeepsPagesOfABookInItsOrder) {
  const std::string package =
      "<package><manifest><item id='1' href='z%20z.xhtml'/><item id='2' href='a.xhtml'/>"
      "<item id='n' href='nav.xhtml' properties='nav'/></manifest>"
      "<spine><itemref idref='n'/><itemref idref='1'/><itemref idref='2'/></spine></package>";
  const auto book = [&](const std::string& encryption) {
    return testing::MakeZip(
        {{"mimetype", "application/epub+zip"},
         {"META-INF/container.xml",
          "<container><rootfiles><rootfile full-path='o/p.opf'/></rootfiles></container>"},
         {"META-INF/encryption.xml", encryption},
         {"o/p.opf", package},
         {"o/nav.xhtml", "<html><body>contents</body></html>"},
         {"o/a.xhtml", "<html><body>last</body></html>"},
         {"o/z z.xhtml", "<html><body>first</body></html>"}});
  };
  EXPECT_EQ(Read("x", book("<e>o/font.ttf</e>")), "first\n\nlast\n");
  EXPECT_EQ(Read("x", book("<e>o/a.xhtml</e>")), "first\n\n[page o/a.xhtml could not be read]\n");
  EXPECT_THAT(Read("x", book("<e>o/a.xhtml o/z z.xhtml</e>")),
              HasSubstr("protected against copying"));
}

}  // namespace
}  // namespace annulus::client
