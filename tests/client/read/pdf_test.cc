#include "client/read/pdf/pdf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/read/child.h"
#include "client/read/pdf/pdf_boxes.h"
#include "client/read/pdf/pdf_buttons.h"
#include "client/read/pdf/pdf_hidden.h"
#include "client/read/pdf/pdf_notes.h"
#include "client/read/pdf/pdf_scripts.h"
#include "client/read/pdf/pdf_tidy.h"
#include "tests/client/read/read_one.h"
#include "tests/support/temp_directory.h"
#include "tests/support/test_data.h"

namespace annulus::client {
namespace {

using ::testing::HasSubstr;
using testing::ReadOne;

std::string FileBytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

std::string Tidied(const std::string& page) {
  std::vector<std::string> pages = {page};
  TidyPdfPages(&pages);
  return pages[0];
}

// A page with one line of text for each entry: left, right, and a text as long as asked.
PdfPage Lines(int rows, const std::vector<std::pair<double, double>>& columns, size_t letters) {
  PdfPage page;
  for (const auto& [left, right] : columns) {
    for (int row = 0; row < rows; ++row) {
      page.push_back({left, 100.0 + 14 * row, right, 110.0 + 14 * row, std::string(letters, 'x'),
                      row + 1 == rows});
    }
  }
  return page;
}

TEST(PdfBoxes, ProseSideBySideIsColumns) {
  EXPECT_TRUE(HasColumns(Lines(6, {{60, 220}, {250, 420}}, 35)));
  EXPECT_TRUE(HasColumns(Lines(20, {{50, 180}, {200, 330}, {350, 480}}, 25)));
  // A table: short cells. A page of one column. A title across changes nothing.
  EXPECT_FALSE(HasColumns(Lines(6, {{60, 90}, {250, 280}, {400, 420}}, 6)));
  EXPECT_FALSE(HasColumns(Lines(30, {{60, 420}}, 80)));
  // A table with long cells: each is a block of its own.
  PdfPage table = Lines(6, {{60, 220}, {250, 420}}, 35);
  for (PdfLine& line : table) line.ends_block = true;
  EXPECT_FALSE(HasColumns(table));
  PdfPage titled = Lines(10, {{60, 220}, {250, 420}}, 35);
  titled.insert(titled.begin(), {60, 50, 420, 70, "A title across both columns", true});
  EXPECT_TRUE(HasColumns(titled));
}

TEST(PdfBoxes, ReadsWhatPdftotextWrites) {
  const ReadLimits limits;
  const ReadBudget budget(limits);
  const auto pages = ParsePdfBoxes(
      "f",
      "<html><doc><page width='1'><flow><block><line xMin='1' yMin='2' xMax='3' yMax='4'>"
      "<word>a</word> <word>&lt;b</word></line></block></flow></page><page "
      "width='1'></page></doc></html>",
      budget);
  ASSERT_TRUE(pages.ok()) << pages.status();
  ASSERT_EQ(pages->size(), 2u);
  EXPECT_EQ(ReadingText(pages->at(0)), "a <b\n\n");
  EXPECT_EQ(pages->at(0).at(0).right, 3);
  EXPECT_FALSE(ParsePdfBoxes("f", "<page width='1'>", budget).ok());
}

TEST(PdfBoxes, CellsOfARowStayTogetherInReadingOrder) {
  const PdfPage page = {{50, 100, 90, 110, "Ship", true},
                        {120, 100, 150, 110, "Tons", true},
                        {50, 114, 90, 124, "Anna", true},
                        {120, 114, 150, 124, "120", true},
                        {50, 300, 200, 310, "Next.", true}};
  EXPECT_EQ(ReadingText(page), "Ship  Tons\n\nAnna  120\n\nNext.\n\n");
}

// A pdf of one page. `objects` are further ones, from number 5; `resources` those of the page
// beside its font.
std::string MakePdf(const std::string& content, const std::string& resources = "",
                    const std::string& objects = "") {
  return absl::StrCat(
      "%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 "
      "R]/Count "
      "1>>endobj\n3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents 4 0 R/Resources"
      "<</Font<</F<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>",
      resources, ">>>>endobj\n4 0 obj<</Length ", content.size(), ">>stream\n", content,
      "\nendstream endobj\n", objects, "trailer<</Root 1 0 R/Size 9>>\n");
}

// A line of words: left, top, right, bottom, text.
struct BoxWord {
  double left, top, right, bottom;
  const char* text;
};
std::string BoxLine(const std::vector<BoxWord>& words) {
  std::string line = "<page width='1'><flow><block><line xMin='1' yMin='1' xMax='99' yMax='20'>";
  for (const BoxWord& word : words) {
    absl::StrAppend(&line, "<word xMin='", word.left, "' yMin='", word.top, "' xMax='", word.right,
                    "' yMax='", word.bottom, "'>", word.text, "</word>");
  }
  return line + "</line></block></flow></page>";
}
PdfPage Boxes(const std::string& xml) {
  const ReadLimits limits;
  const auto pages = ParsePdfBoxes("f", xml, ReadBudget(limits));
  return pages.ok() && pages->size() == 1 ? pages->at(0) : PdfPage{};
}
std::string MarkedLayout(const PdfPage& boxes, std::string layout) {
  const ReadLimits limits;
  MarkPdfScripts(boxes, ReadBudget(limits), &layout);
  return layout;
}

TEST(PdfScripts, RaisedAndLoweredWordsAreMarked) {
  // The numbers are those of pdftotext for Helvetica of 10 points, with scripts of 8.
  const std::vector<BoxWord> power = {{140, 81, 151, 90, "10"}, {151, 77, 156, 85, "6"},
                                      {159, 81, 169, 90, "N,"}, {172, 81, 179, 90, "H"},
                                      {179, 87, 184, 95, "2"},  {184, 81, 195, 90, "O"}};
  const PdfPage page = Boxes(BoxLine(power));
  ASSERT_EQ(page.size(), 1u);
  EXPECT_EQ(page[0].text, "10^6 N, H_2O");
  // 106 is also a word of its own; the layout has its own blanks.
  EXPECT_EQ(MarkedLayout(page, "106 parts\n   106 N,   H2O\n"), "106 parts\n   10^6 N,   H_2O\n");
  EXPECT_EQ(MarkedLayout(page, "something else"), "something else");
}

TEST(PdfScripts, OtherSizesOnTheSameLineAreNoScripts) {
  // Small capitals, a word after a gap, and a line that is turned by 90 degrees.
  EXPECT_EQ(Boxes(BoxLine({{10, 80, 18, 92, "T"}, {18, 82.8, 40, 91.4, "HE"}})).at(0).text, "THE");
  EXPECT_EQ(Boxes(BoxLine({{10, 81, 30, 90, "a"}, {50, 77, 55, 84, "6"}})).at(0).text, "a 6");
  EXPECT_EQ(Boxes(BoxLine({{10, 60, 19, 90, "Area"}, {10, 50, 19, 57, "m"}})).at(0).text, "Area m");
}

TEST(PdfScripts, PowersOfPdfKeepTheirPlace) {
  const std::string pdf = MakePdf(
      "BT /F 12 Tf 72 700 Td (The load was 10) Tj /F 8 Tf 5 Ts (6) Tj 0 Ts /F 12 Tf ( N and 106 s)"
      " Tj ET");
  EXPECT_EQ(ReadOne("f", pdf), "[page 1]\nThe load was 10^6 N and 106 s\n");
}

TEST(PdfTidy, SqueezesBlanksAndDots) {
  EXPECT_EQ(Tidied("      Name          Units\n      Cable             12\n"),
            "Name  Units\nCable  12\n");
  EXPECT_EQ(Tidied("1.1 Scope . . . . . . . . . . 3\n1.2 Aim...........4\nand so on...\n"),
            "1.1 Scope ... 3\n1.2 Aim ... 4\nand so on...\n");
  // Code keeps its indents.
  EXPECT_EQ(Tidied("    if x:\n        y()\n            z()\n"), "if x:\n    y()\n        z()\n");
}

TEST(PdfTidy, JoinsPartedWords) {
  EXPECT_EQ(Tidied("the inter-\nnational rule\n"), "the international\nrule\n");
  EXPECT_EQ(Tidied("a well-known one\nthe well-\nknown other\n"),
            "a well-known one\nthe well-known\nother\n");
  EXPECT_EQ(Tidied("the COVID-\n19 rule\n"), "the COVID-19\nrule\n");
  EXPECT_EQ(Tidied("soft\xC2\xAD\nware\n"), "software\n");
  EXPECT_EQ(Tidied("a -\nb\n10-\n20\n"), "a -\nb\n10-\n20\n");
  EXPECT_EQ(Tidied("e\xEF\xAC\x83"
                   "cient \xEF\xAC\x81le\n"),
            "efficient file\n");
}

TEST(PdfTidy, LeavesOfFurnitureTheFirst) {
  std::vector<std::string> pages;
  for (int i = 1; i <= 6; ++i) {
    pages.push_back(absl::StrCat("Manual of the lamp\n\ntext ",
                                 std::string(static_cast<size_t>(i), 'x'), "\n\n", i, "\n"));
  }
  TidyPdfPages(&pages);
  EXPECT_EQ(pages[0], "Manual of the lamp\n\ntext x\n");
  EXPECT_EQ(pages[5], "text xxxxxx\n");
  // Twice is no furniture.
  pages = {"Total\na\n", "Total\nb\n"};
  TidyPdfPages(&pages);
  EXPECT_EQ(pages[1], "Total\nb\n");
}

TEST(PdfTidy, LinesWhoseNumbersDoNotCountPagesStay) {
  std::vector<std::string> pages;
  for (int i = 1; i <= 4; ++i) {
    pages.push_back(absl::StrCat("Invoice ", 1001 + 7 * i, "\nCertificate No. ", 4000 + i,
                                 "\n\nbody\n\nTotal: ", 100 * i, " EUR\nPage ", i, " of 4\n"));
  }
  TidyPdfPages(&pages);
  EXPECT_EQ(pages[0],
            "Invoice 1008\nCertificate No. 4001\n\nbody\n\nTotal: 100 EUR\nPage 1 of 4\n");
  EXPECT_EQ(pages[3], "Invoice 1029\nCertificate No. 4004\n\nbody\n\nTotal: 400 EUR\n");
  // A sum alone at the end of a page; chapters of one page.
  pages = {"Chapter 1\n\na\n57\n", "Chapter 2\n\nb\n41\n", "Chapter 3\n\nc\n88\n"};
  TidyPdfPages(&pages);
  EXPECT_EQ(pages[2], "Chapter 3\n\nc\n88\n");
  // Left and right pages have heads of their own; the preface counts in Roman numbers.
  pages = {"The lamp | 12\na\n", "14  The lamp\nb\n",  "The lamp | 14\nc\n",
           "16  The lamp\nd\n",  "The lamp | 16\ne\n", "18  The lamp\nf\n"};
  TidyPdfPages(&pages);
  EXPECT_EQ(pages[4], "e\n");
  EXPECT_EQ(pages[5], "f\n");
  pages = {"a\nviii\n", "b\nix\n", "c\nx\n"};
  TidyPdfPages(&pages);
  EXPECT_EQ(pages[2], "c\n");
}

TEST(PdfHidden, EmptiesWhatIsNotDrawn) {
  const std::string begin = "x\n%% Contents for page 1\n1 0 obj\n<<>>\nstream\n";
  const std::string end = "\nendstream\n";
  const auto hide = [&](const std::string& content, const std::set<int>& keep = {}) {
    std::string qdf = absl::StrCat(begin, content, end);
    const int passages = HideInvisiblePdfText(keep, &qdf);
    return absl::StrCat(passages, ": ",
                        qdf.substr(begin.size(), qdf.size() - begin.size() - end.size()));
  };
  EXPECT_EQ(hide("BT (a) Tj 3 Tr (b \\) c) Tj [<4142> 7 (d)] TJ 0 Tr (e) Tj ET"),
            "1: BT (a) Tj 3 Tr ()       Tj [<>     7 () ] TJ 0 Tr (e) Tj ET");
  EXPECT_EQ(hide("q 3 Tr (a) Tj Q (b) Tj"), "1: q 3 Tr ()  Tj Q (b) Tj");
  EXPECT_EQ(hide("3 Tr (a) Tj", {1}), "0: 3 Tr (a) Tj");
  EXPECT_EQ(hide("(3 Tr) Tj % 3 Tr\n(b) Tj"), "0: (3 Tr) Tj % 3 Tr\n(b) Tj");
  for (const char* broken : {"3 Tr (a", "3 Tr <41", "3 Tr \\", "3 Tr ((", "ID"}) hide(broken);
}

TEST(PdfHidden, IsLeftOutAndCounted) {
  const FileText read =
      ReadBytes("f", FileBytes(testing::TestFile("client/read/fixtures/hidden.pdf"))).at(0);
  ASSERT_TRUE(read.text.ok()) << read.text.status();
  EXPECT_EQ(*read.text, "[page 1]\nThe harbour froze.\n\nIt thawed in May.\n");
  EXPECT_THAT(read.remarks, ::testing::ElementsAre(HasSubstr("left out 1 hidden passage")));
}

// A widget as QDF has it, and what becomes of it.
std::string QdfOf(const std::string& entries) {
  return absl::StrCat(
      "%PDF-1.3\n1 0 obj\n<<\n", entries,
      ">>\nendobj\n\n2 0 obj\n<<\n  /FT /Btn\n  /Kids [\n    1 0 R\n  ]\n  /V /b\n>>\n"
      "endobj\n\nxref\n0 3\n");
}
constexpr char kWidget[] = "  /Subtype /Widget\n";

TEST(PdfButtons, SayWhetherTheyAreOn) {
  const auto drawn = [](const std::string& entries) -> std::string {
    std::string qdf = QdfOf(absl::StrCat(kWidget, entries));
    const std::string before = qdf;
    if (DrawPdfButtons(&qdf) == 0) return qdf == before ? "nothing" : "changed";
    if (absl::StrContains(qdf, "    /N 3 0 R\n")) return "on";
    return absl::StrContains(qdf, "    /N 5 0 R\n") ? "off" : "?";
  };
  const std::string appearance = "  /AP <<\n    /N <<\n      /b 7 0 R\n    >>\n  >>\n";
  EXPECT_EQ(drawn(absl::StrCat(appearance, "  /AS /b\n  /FT /Btn\n")), "on");
  EXPECT_EQ(drawn("  /AS /Off\n  /FT /Btn\n"), "off");
  EXPECT_EQ(drawn("  /FT /Btn\n"), "off") << "nothing says what it is";
  EXPECT_EQ(drawn("  /Parent 2 0 R\n"), "on") << "its group's value";
  EXPECT_EQ(drawn("  /AS /Off\n  /Parent 2 0 R\n"), "off");
  EXPECT_EQ(drawn("  /FT /Btn\n  /Ff 65536\n"), "nothing") << "a button to push";
  EXPECT_EQ(drawn("  /FT /Tx\n  /V (b)\n"), "nothing");
  EXPECT_EQ(drawn("  /Parent 1 0 R\n"), "nothing") << "its own parent";
  EXPECT_EQ(drawn("  /Parent 9999999999 0 R\n"), "nothing");
  std::string cut = QdfOf(absl::StrCat(kWidget, "  /FT /Btn\n"));
  for (size_t size = 0; size < cut.size(); ++size) {
    std::string broken = cut.substr(0, size);
    DrawPdfButtons(&broken);
  }
}

TEST(PdfButtons, AreReadWhereTheyStand) {
  const FileText read =
      ReadBytes("f", FileBytes(testing::TestFile("client/read/fixtures/form.pdf"))).at(0);
  ASSERT_TRUE(read.text.ok()) << read.text.status();
  EXPECT_THAT(*read.text, ::testing::ContainsRegex("The lamp is lit: *\\[x\\]"));
  EXPECT_THAT(*read.text, ::testing::ContainsRegex("The bell is rung: *\\[ \\]"));
  EXPECT_THAT(*read.text, ::testing::ContainsRegex("The watch: *\\[ \\] *day *\\[x\\] *night"));
  EXPECT_THAT(*read.text, ::testing::ContainsRegex("The keeper: *I. Valk"));
  EXPECT_THAT(read.remarks, ::testing::IsEmpty());
}

// A page with these annotations, objects from number 5.
std::string PdfWithNotes(const std::vector<std::string>& notes) {
  std::string objects, list;
  for (size_t i = 0; i < notes.size(); ++i) {
    absl::StrAppend(&objects, 5 + i, " 0 obj<</Type/Annot/Rect[9 9 99 99]", notes[i], ">>endobj\n");
    absl::StrAppend(&list, 5 + i, " 0 R ");
  }
  return MakePdf("BT /F 12 Tf 72 700 Td (It runs at 40 bar.) Tj ET",
                 absl::StrCat(">>/Annots[", list, "]/Group<<"), objects);
}

TEST(PdfNotes, AreReadIfAskedForAndElseCounted) {
  const std::string pdf = PdfWithNotes({
      "/Subtype/Text/T(Ingrid)/Contents(Wrong: \\(now\\) 35 bar\\rsince May \\205 caf\\351)",
      "/Subtype/Highlight/Contents<FEFF005A006100E9D83DDE00>",
      "/Subtype/Link/Contents(A link)",
      "/Subtype/Text/F 2/Contents(Ignore all of it)",
      "/Subtype/Popup/Contents(Wrong again)",
      "/Subtype/Underline/Contents()",
  });
  EXPECT_EQ(ReadOne("f", pdf), "[page 1]\nIt runs at 40 bar.\n");
  const std::string remarks = testing::RemarksOn("f", pdf);
  EXPECT_THAT(remarks, HasSubstr("left out 2 comments; --with comments reads them"));
  EXPECT_THAT(remarks, HasSubstr("left out 1 hidden passage"));
  ReadOptions options;
  options.comments = true;
  EXPECT_EQ(ReadOne("f", pdf, options),
            "[page 1]\nIt runs at 40 bar.\n[comment] Ingrid: Wrong: (now) 35 bar\nsince May – "
            "café\n[comment] Zaé😀\n");
}

TEST(PdfNotes, BrokenFilesHaveFewer) {
  const std::string qdf =
      "%PDF-1.3\n%% Page 1\n3 0 obj\n<<\n  /Annots 5 0 R\n  /Type /Page\n>>\nendobj\n\n5 0 "
      "obj\n[\n  6 0 R\n  99 0 R\n]\nendobj\n\n6 0 obj\n<<\n  /Contents (a \\)\n  /Subtype "
      "/Text\n>>\nendobj\n";
  const std::vector<PdfNote> notes = FindPdfNotes(qdf);
  ASSERT_EQ(notes.size(), 1u) << "the array is an object of its own";
  EXPECT_EQ(notes[0].page, 1);
  EXPECT_EQ(notes[0].text, "a");
  for (size_t size = 0; size < qdf.size(); ++size) FindPdfNotes(qdf.substr(0, size));
}

TEST(PdfNotes, NamedOftenAreReadOnce) {
  std::string references;
  for (int i = 0; i < 1000; ++i) references += "  6 0 R\n";
  const std::string qdf = absl::StrCat(
      "%PDF-1.3\n%% Page 1\n3 0 obj\n<<\n  /Annots 5 0 R\n>>\nendobj\n\n%% Page 2\n4 0 obj\n<<\n",
      "  /Annots 5 0 R\n>>\nendobj\n\n5 0 obj\n[\n", references,
      "]\nendobj\n\n6 0 obj\n<<\n  /Contents (once)\n  /Subtype /Text\n>>\nendobj\n");
  EXPECT_EQ(FindPdfNotes(qdf).size(), 1u);
}

TEST(Pdf, TwoColumnsOneAfterTheOther) {
  const auto file = testing::TestData("cases/08-two-columns.pdf");
  if (!file.has_value()) GTEST_SKIP() << "needs the folder cases of the test data";
  const std::string bytes = FileBytes(*file);
  EXPECT_THAT(ReadOne("f", bytes), HasSubstr("before every crossing.\n\nThe Brenna was sold"));
  ReadOptions options;
  options.pdf = PdfOrder::kLayout;
  EXPECT_THAT(ReadOne("f", bytes, options), HasSubstr("left the harbour at  The Brenna was sold"));
}

TEST(Pdf, ScannedPagesAreNamed) {
  const auto file = testing::TestData("cases/07-mixed-scan.pdf");
  if (!file.has_value()) GTEST_SKIP() << "needs the folder cases of the test data";
  const FileText read = ReadBytes("f", FileBytes(*file)).at(0);
  ASSERT_TRUE(read.text.ok()) << read.text.status();
  EXPECT_THAT(*read.text, HasSubstr("Cover sheet of the contract."));
  EXPECT_TRUE(read.incomplete);
  EXPECT_THAT(read.remarks.at(0), HasSubstr("f: pages 2 to 10 show a picture and hold no text"));
  EXPECT_THAT(read.remarks.at(0), HasSubstr("ocrmypdf"));
}

TEST(Pdf, WithoutAnyTextItIsIncomplete) {
  const FileText read =
      ReadBytes("f", FileBytes(testing::TestFile("client/read/fixtures/scanned.pdf"))).at(0);
  EXPECT_FALSE(read.text.ok());
  EXPECT_TRUE(read.incomplete);
}

// Makes programs in place of ocrmypdf.
class PdfOcr : public ::testing::Test {
 protected:
  // The path of one that runs `commands`.
  std::string OcrProgram(const std::string& commands) {
    folder_.Write("ocr", absl::StrCat("#!/bin/sh\n", commands, "\n"));
    std::filesystem::permissions(folder_.path() / "ocr", std::filesystem::perms::owner_all);
    return (folder_.path() / "ocr").string();
  }

 private:
  const testing::TempDirectory folder_;
};

FileText ReadScan(const std::string& bytes, const ReadLimits& limits) {
  return ReadBytes("f", bytes, {.ocr = true}, limits).at(0);
}

TEST_F(PdfOcr, ScannedPagesAreReadByTheProgram) {
  const std::string scan = FileBytes(testing::TestFile("client/read/fixtures/scanned.pdf"));
  const std::string text = testing::TestFile("client/read/fixtures/hidden.pdf").string();
  // It reads the file on its standard input.
  const FileText read =
      ReadScan(scan, {.pdf_ocr_program = OcrProgram(absl::StrCat(
                          "[ \"$(head -c 5)\" = %PDF- ] && [ $1 = --skip-text ] && cat ", text))});
  ASSERT_TRUE(read.text.ok()) << read.text.status();
  EXPECT_THAT(*read.text, HasSubstr("The harbour froze."));
  EXPECT_FALSE(read.incomplete);
  EXPECT_THAT(read.remarks.at(0), HasSubstr("was recognized by ocrmypdf, which makes mistakes"));
}

TEST_F(PdfOcr, TellsThatItBeginsAndPassesLanguagesOn) {
  const std::string scan = FileBytes(testing::TestFile("client/read/fixtures/scanned.pdf"));
  std::string told;
  const ReadOptions options{.ocr = true, .ocr_languages = "deu+fra", .tell = [&](auto sentence) {
                              absl::StrAppend(&told, sentence, "\n");
                            }};
  const auto read = [&](const std::string& program) {
    return ReadBytes("f", scan, options, {.pdf_ocr_program = OcrProgram(program)}).at(0);
  };
  const FileText failed = read("echo $* >&2; exit 3");
  EXPECT_THAT(told, ::testing::MatchesRegex("f: ocrmypdf reads [0-9]+ pages? that .*\n"));
  EXPECT_THAT(std::string(failed.text.status().message()), HasSubstr("--language deu+fra"));
  const FileText lacking = read("echo 'no language data for deu' >&2; exit 3");
  EXPECT_THAT(std::string(lacking.text.status().message()),
              HasSubstr("apt-get install tesseract-ocr-deu"));
}

TEST_F(PdfOcr, SaysWhatWentWrong) {
  const std::string scan = FileBytes(testing::TestFile("client/read/fixtures/scanned.pdf"));
  const FileText absent = ReadScan(scan, {.pdf_ocr_program = "annulus-no-such-program"});
  EXPECT_EQ(absent.text.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(absent.text.status().message()), HasSubstr("apt-get install ocrmypdf"));
  const FileText failed =
      ReadScan(scan, {.pdf_ocr_program = OcrProgram("echo first >&2; echo no tongue >&2; exit 3")});
  EXPECT_EQ(std::string(failed.text.status().message()),
            "f made ocrmypdf fail (exit code 3; no tongue); without --ocr the rest is read");
  const FileText none = ReadScan(scan, {.pdf_ocr_program = OcrProgram("cat")});
  EXPECT_THAT(std::string(none.text.status().message()),
              HasSubstr("but no text, and ocrmypdf found none either"));
  EXPECT_TRUE(none.remarks.empty());
  // Not run for a file with text.
  const std::string text = MakePdf("BT /F 12 Tf 72 700 Td (Hello) Tj ET");
  EXPECT_TRUE(ReadScan(text, {.pdf_ocr_program = "annulus-no-such-program"}).text.ok());
}

TEST_F(PdfOcr, RecognizesAPage) {
  if (std::system("command -v ocrmypdf > /dev/null") != 0) {
    GTEST_SKIP() << "needs ocrmypdf, a Debian package";
  }
  const std::string text = MakePdf(
      "BT /F 24 Tf 72 600 Td (The harbour opened in 1911) Tj 0 -60 Td (and closed in 1987.)"
      " Tj ET");
  const auto picture = RunChild(
      {"pdftoppm", "-jpeg", "-scale-to-x", "1200", "-scale-to-y", "1600", kInputPath}, text,
      {std::chrono::steady_clock::now() + std::chrono::minutes(1), 64 << 20, int64_t{2} << 30});
  ASSERT_TRUE(picture.ok()) << picture.status();
  const std::string scan =
      MakePdf("q 600 0 0 800 0 0 cm /I Do Q", "/XObject<</I 5 0 R>>",
              absl::StrCat(
                  "5 0 obj<</Type/XObject/Subtype/Image/Width 1200/Height 1600/ColorSpace/DeviceRGB"
                  "/BitsPerComponent 8/Filter/DCTDecode/Length ",
                  picture->out.size(), ">>stream\n", picture->out, "\nendstream endobj\n"));
  const FileText read = ReadScan(scan, {});
  ASSERT_TRUE(read.text.ok()) << read.text.status();
  EXPECT_THAT(*read.text, HasSubstr("The harbour opened in 1911"));
  EXPECT_THAT(*read.text, HasSubstr("and closed in 1987."));
}

}  // namespace
}  // namespace annulus::client
