// Documents are read by what they say of themselves, not by the usual names of their parts.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/read/office/number_format.h"
#include "tests/client/read/make_zip.h"
#include "tests/client/read/read_one.h"
#include "tests/support/test_data.h"

namespace annulus::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::MakeDocx;
using testing::MakeEpub;
using testing::MakeOdt;
using testing::MakeZip;
using ::testing::Not;
using testing::ReadOne;
using testing::RemarksOn;

TEST(Structure, WordFollowsItsRelationships) {
  const std::string styles =
      "<w:styles><w:style w:styleId='Z'><w:name w:val='heading 2'/></w:style></w:styles>";
  const std::string notes =
      "<w:footnotes><w:footnote w:id='7'><w:p><w:r><w:t>noted</w:t></w:r></w:p></w:footnote>"
      "</w:footnotes>";
  EXPECT_EQ(ReadOne("d", MakeDocx("<w:p><w:pPr><w:pStyle w:val='Z'/></w:pPr><w:r><w:t>Head</w:t>"
                                  "</w:r></w:p><w:p><w:r><w:t>text</w:t></w:r><w:r>"
                                  "<w:footnoteReference w:id='7'/></w:r></w:p>",
                                  {{"sub/styles.xml", styles}, {"sub/footnotes.xml", notes}})),
            "## Head\n\ntext[^1]\n\n[^1]: noted\n");
}

TEST(Structure, OfWordTheFlagsTakeWhatIsLeftOut) {
  const std::string comments =
      "<w:comments><w:comment w:id='0' w:author='Ann'><w:p><w:r><w:t>why?</w:t></w:r></w:p>"
      "</w:comment></w:comments>";
  const std::string header = "<w:hdr><w:p><w:r><w:t>Draft 3</w:t></w:r></w:p></w:hdr>";
  const std::string file = MakeDocx(
      "<w:p><w:r><w:t>text</w:t></w:r><w:r><w:commentReference w:id='0'/></w:r><w:r><w:drawing>"
      "<wp:inline><wp:docPr descr='a map'/></wp:inline></w:drawing></w:r></w:p>",
      {{"comments.xml", comments}, {"header1.xml", header}});
  EXPECT_EQ(ReadOne("d", file), "text\n");
  EXPECT_EQ(RemarksOn("d", file),
            "d: left out 1 page header and 1 comment and 1 picture description; --with "
            "headers,comments,alt reads them");
  const ReadOptions all{.headers = true, .comments = true, .alt = true};
  EXPECT_EQ(ReadOne("d", file, all),
            "[page header] Draft 3\n\ntext [comment 1][picture: a map]\n\n[comment 1] Ann: why?\n");
  EXPECT_EQ(RemarksOn("d", file, all), "");
}

TEST(Structure, OfOdtTheFlagsTakeWhatIsLeftOut) {
  const std::string file =
      MakeOdt("",
              "<text:p>text<office:annotation><dc:creator>Ann</dc:creator><text:p>why?</text:p>"
              "</office:annotation><draw:frame><svg:desc>a map</svg:desc></draw:frame></text:p>",
              {{"styles.xml",
                "<office:document-styles><office:master-styles><style:master-page><style:header>"
                "<text:p>Draft 3</text:p></style:header></style:master-page></office:master-styles>"
                "</office:document-styles>"}});
  EXPECT_EQ(ReadOne("o", file), "text\n");
  EXPECT_THAT(RemarksOn("o", file), HasSubstr("--with headers,comments,alt"));
  EXPECT_EQ(ReadOne("o", file, {.headers = true, .comments = true, .alt = true}),
            "[page header] Draft 3\n\ntext [comment 1][picture: a map]\n\n[comment 1] Ann: why?\n");
}

TEST(Structure, ABookIsOneWithoutItsMediaType) {
  EXPECT_EQ(ReadOne("b", MakeEpub({{"z.xhtml", "<html><body>first</body></html>"},
                                   {"a.xhtml", "<html><body>second</body></html>"}})),
            "first\n\nsecond\n");
}

TEST(Structure, PagesBesideTheReadingOrderComeIfTheyAreCited) {
  const std::string book = MakeEpub({{"notes1.xhtml", "<html><body>cited</body></html>"},
                                     {"notes2.xhtml", "<html><body>never</body></html>"},
                                     {"a.xhtml",
                                      "<html><body><a href='notes1.xhtml#x'>see</a>"
                                      "</body></html>"}});
  EXPECT_EQ(ReadOne("b", book), "see\n\ncited\n");
  EXPECT_EQ(RemarksOn("b", book),
            "b: left out 1 page outside the reading order that no page links to");
}

TEST(Structure, OneBadPageDoesNotEndABook) {
  const std::string book = MakeEpub({{"a.xhtml", "<html><body>one</body></html>"},
                                     {"b.xhtml", std::string("\0\1\2\0\3", 5)},
                                     {"c.xhtml", "<html><body>three</body></html>"}});
  EXPECT_EQ(ReadOne("b", book), "one\n\n[page o/b.xhtml could not be read]\n\nthree\n");
  EXPECT_THAT(RemarksOn("b", book), HasSubstr("b: its page o/b.xhtml could not be read: "));
  EXPECT_TRUE(ReadBytes("b", book).at(0).incomplete);
}

TEST(Structure, SlidesInTheirOrderWithNotes) {
  const auto slide = [](const std::string& title, const std::string& rest) {
    return absl::StrCat(
        "<p:sld><p:cSld><p:spTree><p:sp><p:nvSpPr><p:nvPr><p:ph type='title'/></p:nvPr></p:nvSpPr>"
        "<p:txBody><a:p><a:r><a:t>",
        title, "</a:t></a:r></a:p></p:txBody></p:sp>", rest, "</p:spTree></p:cSld></p:sld>");
  };
  const std::string body =
      "<p:sp><p:nvSpPr><p:nvPr><p:ph/></p:nvPr></p:nvSpPr><p:txBody><a:p><a:r><a:t>10</a:t></a:r>"
      "<a:r><a:rPr baseline='30000'/><a:t>6</a:t></a:r></a:p><a:p><a:pPr lvl='1'/><a:r><a:t>deep"
      "</a:t></a:r></a:p></p:txBody></p:sp><p:sp><p:nvSpPr><p:nvPr><p:ph type='sldNum'/></p:nvPr>"
      "</p:nvSpPr><p:txBody><a:p><a:fld><a:t>1</a:t></a:fld></a:p></p:txBody></p:sp>";
  const std::string notes =
      "<p:notes><p:cSld><p:spTree><p:sp><p:nvSpPr><p:nvPr><p:ph type='body'/></p:nvPr></p:nvSpPr>"
      "<p:txBody><a:p><a:r><a:t>say hello</a:t></a:r></a:p></p:txBody></p:sp></p:spTree></p:cSld>"
      "</p:notes>";
  const auto relation = [](const char* id, const char* type, const char* target) {
    return absl::StrCat("<Relationship Id='", id, "' Type='x/", type, "' Target='", target, "'/>");
  };
  const auto relations = [](const std::string& list) {
    return absl::StrCat("<Relationships>", list, "</Relationships>");
  };
  const std::string file = MakeZip(
      {{"_rels/.rels", relations(relation("r", "officeDocument", "p/show.xml"))},
       {"p/show.xml",
        "<p:presentation><p:sldIdLst><p:sldId id='256' r:id='r9'/><p:sldId id='257' r:id='r2'/>"
        "</p:sldIdLst></p:presentation>"},
       {"p/_rels/show.xml.rels", relations(relation("r2", "slide", "slides/slide1.xml") +
                                           relation("r9", "slide", "slides/slide7.xml"))},
       {"p/slides/slide1.xml", slide("Second", "")},
       {"p/slides/slide7.xml", slide("First", body)},
       {"p/slides/_rels/slide7.xml.rels", relations(relation("n", "notesSlide", "../n.xml"))},
       {"p/n.xml", notes}});
  EXPECT_EQ(ReadOne("s.pptx", file),
            "[slide 1]\n# First\n\n- 10^6\n  - deep\n\n[notes] say hello\n\n[slide 2]\n# Second\n");
}

constexpr char kChart[] =
    "<chartSpace><chart><title><tx><rich><p><r><t>By port</t></r></p></rich></tx></title><plotArea>"
    "<barChart><ser><tx><strRef><strCache><pt "
    "idx='0'><v>2023</v></pt></strCache></strRef></tx><cat>"
    "<strCache><pt idx='0'><v>Oslo</v></pt><pt idx='1'><v>Bergen</v></pt></strCache></cat><val>"
    "<numCache><formatCode>0.0</formatCode><pt idx='0'><v>41.25</v></pt><pt idx='1'><v>7</v></pt>"
    "</numCache></val></ser><ser><tx><strCache><pt idx='0'><v>2024</v></pt></strCache></tx><cat>"
    "<strCache><pt idx='0'><v>Oslo</v></pt><pt idx='1'><v>Bergen</v></pt></strCache></cat><val>"
    "<numCache><pt idx='1'><v>9</v></pt></numCache></val></ser></barChart></plotArea></chart>"
    "</chartSpace>";
constexpr char kDiagram[] =
    "<dataModel><ptLst><pt><t><p><r><t>Plan</t></r></p></t></pt><pt><t><p><r><t>Build</t></r><r><t>"
    " it</t></r></p></t></pt></ptLst></dataModel>";

TEST(Structure, ChartsDiagramsAndChunksOfWordAreRead) {
  const std::string body =
      "<w:p><w:r><w:t>Before</w:t></w:r></w:p><w:p><w:r><w:drawing><c:chart r:id='chart1.xml'/>"
      "</w:drawing></w:r></w:p><w:p><w:r><w:drawing><dgm:relIds r:dm='diagramData2.xml'/>"
      "</w:drawing></w:r></w:p><w:altChunk r:id='aFChunk.htm'/><w:p><w:r><w:t>After</w:t></w:r>"
      "</w:p>";
  EXPECT_EQ(ReadOne("d", MakeDocx(body, {{"chart1.xml", kChart},
                                         {"diagramData2.xml", kDiagram},
                                         {"aFChunk.htm", "<html><body><p>10<sup>6</sup></body>"}})),
            "Before\n\nBy port\n\n| | 2023 | 2024 |\n| Oslo | 41.3 |\n| Bergen | 7.0 | 9 |\n\n"
            "Plan\nBuild it\n\n10^6\n\nAfter\n");
}

TEST(Structure, AnotherDocumentInsideADocumentIsNamed) {
  const std::string file =
      MakeDocx("<w:p><w:r><w:t>a</w:t></w:r></w:p><w:altChunk r:id='aFChunk.x'/>",
               {{"aFChunk.x", MakeZip({{"x", "y"}})}});
  EXPECT_EQ(ReadOne("d", file), "a\n");
  EXPECT_THAT(RemarksOn("d", file), HasSubstr("the document inside it, w/aFChunk.x, is not read"));
}

TEST(Structure, ChartsOfSlidesAreRead) {
  const std::string file = MakeZip(
      {{"_rels/.rels",
        "<Relationships><Relationship Id='r' Type='x/officeDocument' Target='p/show.xml'/>"
        "</Relationships>"},
       {"p/show.xml",
        "<p:presentation><p:sldIdLst><p:sldId id='256' r:id='r'/></p:sldIdLst></p:presentation>"},
       {"p/_rels/show.xml.rels",
        "<Relationships><Relationship Id='r' Type='x/slide' Target='s.xml'/></Relationships>"},
       {"p/s.xml", "<p:sld><p:cSld/></p:sld>"},
       {"p/_rels/s.xml.rels",
        "<Relationships><Relationship Id='c' Type='x/chart' Target='c.xml'/></Relationships>"},
       {"p/c.xml", kChart}});
  EXPECT_EQ(ReadOne("s", file),
            "[slide 1]\nBy port\n\n| | 2023 | 2024 |\n| Oslo | 41.3 |\n| Bergen | 7.0 | 9 |\n");
}

// A workbook with one sheet of these rows.
std::string Workbook(const std::string& rows, const std::string& more = "") {
  return MakeZip(
      {{"_rels/.rels",
        "<Relationships><Relationship Id='r' Type='x/officeDocument' Target='xl/w.xml'/>"
        "</Relationships>"},
       {"xl/w.xml",
        "<workbook><sheets><sheet name='Sales' sheetId='1' r:id='s'/></sheets></workbook>"},
       {"xl/_rels/w.xml.rels",
        "<Relationships><Relationship Id='s' Type='x/worksheet' Target='a.xml'/><Relationship "
        "Id='t' Type='x/sharedStrings' Target='t.xml'/><Relationship Id='u' Type='x/styles' "
        "Target='u.xml'/></Relationships>"},
       {"xl/t.xml", "<sst><si><t>Day</t></si><si><r><t>To</t></r><r><t>tal</t></r></si></sst>"},
       {"xl/u.xml",
        "<styleSheet><numFmts><numFmt numFmtId='170' formatCode='#,##0.00\\ &quot;EUR&quot;'/>"
        "</numFmts><cellXfs><xf numFmtId='0'/><xf numFmtId='14'/><xf numFmtId='10'/><xf "
        "numFmtId='170'/></cellXfs></styleSheet>"},
       {"xl/a.xml",
        absl::StrCat("<worksheet>", more, "<sheetData>", rows, "</sheetData></worksheet>")}});
}

TEST(Structure, CellsShowTheirValues) {
  EXPECT_EQ(
      ReadOne("w.xlsx",
              Workbook("<row r='1'><c r='B1' t='s'><v>0</v></c><c r='D1' t='s'><v>1</v></c></row>"
                       "<row r='2'><c r='B2' s='1'><v>45443</v></c><c r='C2' s='2'><v>0.125</v>"
                       "</c><c r='D2' s='3'><v>1234.5</v></c><c r='E2'><v>0.1</v></c></row>"
                       "<row r='3' hidden='1'><c r='B3'><v>9</v></c></row>"
                       "<row r='4'><c r='B4' t='b'><v>1</v></c></row>")),
      "## Sales\n\n| Day | | Total |\n| 2024-05-31 | 12.50% | 1,234.50 EUR | 0.1 |\n"
      "| TRUE |\n");
}

TEST(NumberFormat, NumbersAreShownAsASpreadsheetShowsThem) {
  const auto show = [](double value, const char* code) { return FormatNumber(value, code, false); };
  // Halves go up, as in the 15 digits that a spreadsheet keeps.
  EXPECT_EQ(show(0.125, "0.00"), "0.13");
  EXPECT_EQ(show(0.285, "0.00"), "0.29");
  EXPECT_EQ(show(2.5, "0"), "3");
  EXPECT_EQ(show(-0.5, "0"), "-1");
  EXPECT_EQ(show(999.996, "#,##0.00"), "1,000.00");
  EXPECT_EQ(show(0.004, "0.00"), "0.00");
  EXPECT_EQ(show(1.005, "0.00%"), "100.50%");
  // Text between digits.
  EXPECT_EQ(show(5551234567, "(000) 000-0000"), "(555) 123-4567");
  EXPECT_EQ(show(123456789, "000-00-0000"), "123-45-6789");
  EXPECT_EQ(show(1234, "00000"), "01234");
  EXPECT_EQ(show(1234567, "#,##0,"), "1,235");
  EXPECT_EQ(show(1234567.891, "#,##0.0\\ \"EUR\""), "1,234,567.9 EUR");
  EXPECT_EQ(show(7, "General\" kg\""), "7 kg");
  // Accounting: a dash for nothing.
  const char accounting[] =
      "_(* #,##0_);_(* \\(#,##0\\);_(* \"-\"?"
      "?_);_(@_)";
  EXPECT_EQ(show(1200, accounting), "1,200");
  EXPECT_EQ(show(-12, accounting), "(12)");
  EXPECT_EQ(show(0, accounting), "-");
  // Conditions, and codes that hide.
  EXPECT_EQ(show(5, "[<1]0.00;0"), "5");
  EXPECT_EQ(show(0.5, "[<1]0.00;0"), "0.50");
  EXPECT_EQ(show(-3, "[Red][<0]\"minus \"0;0"), "minus 3");
  EXPECT_EQ(show(0, "0;-0;;@"), "");
  EXPECT_EQ(show(-4, "0;-0;;@"), "-4");
  EXPECT_EQ(show(-1234.5, "$#,##0.00;[Red]($#,##0.00)"), "($1,234.50)");
  // Fractions.
  EXPECT_EQ(show(0.5, "# ?/?"), "1/2");
  EXPECT_EQ(show(2.75,
                 "# ?"
                 "?/?"
                 "?"),
            "2 3/4");
  EXPECT_EQ(show(2.75, "?/?"), "11/4");
  EXPECT_EQ(show(-1.375, "# ?/8"), "-1 3/8");
  EXPECT_EQ(show(3, "# ?/?"), "3");
  EXPECT_EQ(show(12345678, "0.00E+00"), "1.23E+07");
  EXPECT_EQ(show(2.5, "0.##"), "2.5");
}

TEST(Structure, WhatFormatsOfCellsHideIsCounted) {
  const std::string file = MakeZip(
      {{"xl/workbook.xml",
        "<workbook><sheets><sheet name='S' sheetId='1' r:id='s'/></sheets>"
        "</workbook>"},
       {"xl/_rels/workbook.xml.rels",
        "<Relationships><Relationship Id='s' Type='x/worksheet' Target='a.xml'/><Relationship "
        "Id='u' Type='x/styles' Target='u.xml'/></Relationships>"},
       {"xl/u.xml",
        "<styleSheet><numFmts><numFmt numFmtId='170' formatCode=';;;'/></numFmts>"
        "<cellXfs><xf numFmtId='0'/><xf numFmtId='170'/></cellXfs></styleSheet>"},
       {"xl/a.xml",
        "<worksheet><sheetData><row r='1'><c r='A1'><v>1</v></c><c r='B1' s='1'><v>42</v></c><c "
        "r='C1' s='1' t='str'><v>planted</v></c><c r='D1' t='inlineStr'><is><r><t>m</t></r><r><rPr>"
        "<vertAlign val='superscript'/></rPr><t>n+1</t></r></is></c></row></sheetData>"
        "</worksheet>"}});
  EXPECT_EQ(ReadOne("w", file), "## S\n\n| 1 | | | m^(n+1) |\n");
  EXPECT_THAT(RemarksOn("w", file), HasSubstr("left out 2 hidden passages"));
}

TEST(Structure, HiddenColumnsAndMergedCells) {
  const std::string file = Workbook(
      "<row r='1'><c r='A1'><v>1</v></c><c r='B1'><v>2</v></c><c r='C1'><v>3</v></c></row>"
      "<row r='2'><c r='A2'/><c r='B2'><v>5</v></c><c r='C2'><v>6</v></c></row>",
      "<cols><col min='2' max='2' hidden='1'/></cols><mergeCells><mergeCell ref='A1:A2'/>"
      "</mergeCells>");
  EXPECT_EQ(ReadOne("w", file), "## Sales\n\n| 1 | 3 |\n| 1 | 6 |\n");
  EXPECT_THAT(RemarksOn("w", file), HasSubstr("left out 1 hidden passage"));
}

TEST(Structure, AMailHasHeadersTextAndAttachments) {
  const std::string mail =
      "From: =?utf-8?q?J=C3=BCrgen?= <j@example.org>\r\nTo: ann@example.org\r\nDate: Fri, 31 May "
      "2024 "
      "10:00:00 +0200\r\nSubject: =?iso-8859-1?Q?Gr=FC=DFe?=\r\nMIME-Version: 1.0\r\nContent-Type: "
      "multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: multipart/alternative; "
      "boundary=c\r\n"
      "\r\n--c\r\nContent-Type: text/plain; charset=iso-8859-1\r\nContent-Transfer-Encoding: "
      "quoted-printable\r\n\r\ncaf=E9 at 10=\r\n:30\r\n--c\r\nContent-Type: "
      "text/html\r\n\r\n<p>other\r\n"
      "--c--\r\n--b\r\nContent-Type: text/csv; name=a.csv\r\nContent-Disposition: attachment; "
      "filename=a.csv\r\nContent-Transfer-Encoding: "
      "base64\r\n\r\neCx5CjEsMgo=\r\n--b\r\nContent-Type: "
      "image/png; name=p.png\r\nContent-Transfer-Encoding: base64\r\n\r\niVBORw0KGgo=\r\n--b--\r\n";
  const std::vector<FileText> texts = ReadBytes("m.eml", mail);
  ASSERT_EQ(texts.size(), 2u);
  EXPECT_EQ(
      absl::StrReplaceAll(*texts[0].text, {{"\r", ""}}),
      "From: Jürgen <j@example.org>\nTo: ann@example.org\nDate: Fri, 31 May 2024 10:00:00 +0200\n"
      "Subject: Grüße\n\ncafé at 10:30");
  EXPECT_THAT(texts[0].remarks.at(0),
              HasSubstr("left out its attachment p.png, which is a picture"));
  EXPECT_EQ(texts[1].title, "m.eml/a.csv");
  EXPECT_EQ(*texts[1].text, "x,y\n1,2\n");
}

TEST(Structure, ASavedPageIsReadWithoutItsStyleSheets) {
  EXPECT_EQ(
      absl::StrReplaceAll(
          ReadOne("p.mhtml",
                  "From: <Saved by Blink>\nSubject: Page\nDate: Fri, 31 May 2024 10:00:00 +0200\n"
                  "MIME-Version: 1.0\nContent-Type: multipart/related; boundary=b\n\n--b\n"
                  "Content-Type: text/html; charset=utf-8\n\n<p>10<sup>6</sup>\n--b\nContent-Type: "
                  "text/css\n\n.x { color: red }\n--b--\n"),
          {{"\r", ""}}),
      "Date: Fri, 31 May 2024 10:00:00 +0200\nSubject: Page\n\n10^6\n");
}

TEST(Structure, AMailboxIsOneDocumentWithItsAttachments) {
  const auto mail = [](const std::string& subject, const std::string& rest) {
    return absl::StrCat(
        "From j@example.org Fri May 31 10:00:00 2024\nFrom: j@example.org\nDate: "
        "Fri, 31 May 2024 10:00:00 +0200\nSubject: ",
        subject, "\n", rest);
  };
  const std::string mailbox = absl::StrCat(
      mail("One", "\nThe first.\n>From here on\n\nFrom the harbour it went.\n\n"),
      mail("Two",
           "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\nThe "
           "second.\n--b\nContent-Type: text/csv\nContent-Disposition: attachment; "
           "filename=a.csv\n\nx,y\n--b--\n\n"));
  const std::vector<FileText> texts = ReadBytes("m.mbox", mailbox);
  ASSERT_EQ(texts.size(), 2u);
  EXPECT_THAT(*texts[0].text,
              AllOf(HasSubstr("[mail 1]\nFrom: j@example.org\n"),
                    HasSubstr("The first.\nFrom here on\n\nFrom the harbour it went.\n"),
                    HasSubstr("\n[mail 2]\nFrom: j@example.org\n"), HasSubstr("Subject: Two\n"),
                    HasSubstr("The second.")));
  EXPECT_EQ(texts[1].title, "m.mbox/mail-2-a.csv");
  EXPECT_THAT(*texts[1].text, HasSubstr("x,y"));
  const std::string text = "From here it is far.\n\nA poem.\n";
  EXPECT_EQ(ReadOne("t", text), text);
}

TEST(Structure, TextBoxesOfSheetsAreRead) {
  const std::string file = MakeZip(
      {{"_rels/.rels",
        "<Relationships><Relationship Id='r' Type='x/officeDocument' Target='xl/w.xml'/>"
        "</Relationships>"},
       {"xl/w.xml", "<workbook><sheets><sheet name='S' sheetId='1' r:id='s'/></sheets></workbook>"},
       {"xl/_rels/w.xml.rels",
        "<Relationships><Relationship Id='s' Type='x/worksheet' Target='a.xml'/></Relationships>"},
       {"xl/a.xml",
        "<worksheet><sheetData><row r='1'><c r='A1'><v>7</v></c></row></sheetData></worksheet>"},
       {"xl/_rels/a.xml.rels",
        "<Relationships><Relationship Id='d' Type='x/drawing' Target='d.xml'/></Relationships>"},
       {"xl/d.xml",
        "<xdr:wsDr><xdr:twoCellAnchor><xdr:sp><xdr:nvSpPr><xdr:cNvPr id='2' name='T'/>"
        "</xdr:nvSpPr><xdr:txBody><a:p><a:r><a:t>Without </a:t></a:r><a:r><a:t>tax</a:t></a:r>"
        "</a:p><a:p><a:r><a:t>in EUR</a:t></a:r></a:p></xdr:txBody></xdr:sp></xdr:twoCellAnchor>"
        "<xdr:sp><xdr:nvSpPr><xdr:cNvPr id='3' hidden='1'/></xdr:nvSpPr><xdr:txBody><a:p><a:r>"
        "<a:t>planted</a:t></a:r></a:p></xdr:txBody></xdr:sp></xdr:wsDr>"}});
  EXPECT_EQ(ReadOne("w.xlsx", file), "## S\n\n| 7 |\n\nWithout tax\nin EUR\n");
  EXPECT_THAT(RemarksOn("w.xlsx", file), HasSubstr("left out 1 hidden passage"));
}

TEST(Structure, ChartsOfOdtAreRead) {
  const auto cells = [](const std::string& texts) {
    std::string row = "<table:table-row>";
    for (const absl::string_view text : absl::StrSplit(texts, ' ')) {
      absl::StrAppend(&row, "<table:table-cell><text:p>", text, "</text:p></table:table-cell>");
    }
    return row + "</table:table-row>";
  };
  const std::string chart = absl::StrCat(
      "<office:document-content><office:body><office:chart><chart:chart><chart:title><text:p>By "
      "port</text:p></chart:title><chart:plot-area><chart:series/></chart:plot-area><table:table "
      "table:name='local-table'><table:table-header-rows>",
      cells("- 2023 2024"), "</table:table-header-rows><table:table-rows>", cells("Oslo 41.3 40"),
      // It names itself.
      "<table:table-row><table:table-cell><text:p><draw:object xlink:href='./Object 1'/>Bergen"
      "</text:p></table:table-cell></table:table-row></table:table-rows></table:table>"
      "</chart:chart></office:chart></office:body></office:document-content>");
  EXPECT_EQ(ReadOne("o", MakeOdt("",
                                 "<text:p>Before.</text:p><text:p><draw:frame><draw:object "
                                 "xlink:href='./Object 1'/></draw:frame></text:p><text:p>After."
                                 "</text:p>",
                                 {{"Object 1/content.xml", chart}})),
            "Before.\n\nBy port\n\n| - | 2023 | 2024 |\n| Oslo | 41.3 | 40 |\n| Bergen "
            "|\n\nAfter.\n");
}

TEST(Structure, NotEveryTextWithColonsIsAMail) {
  const std::string text = "From: here\nTo: there\n\nA poem.\n";
  EXPECT_EQ(ReadOne("t", text), text);
}

// Files that were read wrongly once, each for a kind.
TEST(Structure, CasesOfReaders) {
  const auto folder = testing::TestData("cases");
  if (!folder.has_value()) GTEST_SKIP() << "needs the folder cases of the test data";
  const auto read = [&](const std::string& name) {
    std::ifstream file(*folder / name, std::ios::binary);
    std::stringstream bytes;
    bytes << file.rdbuf();
    return ReadOne(name, bytes.str());
  };
  EXPECT_EQ(read("01-selfclosing.epub"),
            "Chapter one speaks of the lamp.\n\n# B\n\nChapter two speaks of the rope.\n");
  EXPECT_EQ(read("02-document2.docx"), "The harbour opened in 1911.\n");
  EXPECT_EQ(read("03-super-fraction.docx"), "Area 10^6 m2, half is 1/2\n");
  EXPECT_THAT(read("04-rowspan.html"), HasSubstr("| EU | Hub | 7 |"));
  EXPECT_EQ(read("05-sym.docx"), "☑ paid ☐ unpaid\n\n≤ 5 mg\n");
  EXPECT_THAT(read("09-notes-nonlinear.epub"), HasSubstr("[^1]: The note says 1742."));
  EXPECT_EQ(read("10-no-mimetype.epub"),
            "# Z\n\nFirst chapter in the spine.\n\n# A\n\nSecond chapter.\n");
  EXPECT_EQ(read("12-cp1250.txt"), "Příliš žluťoučký kůň úpěl.\n");
}

}  // namespace
}  // namespace annulus::client
