// Nothing that is read changes its meaning: numbers, columns, signs and what is hidden.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/client/read/make_zip.h"
#include "tests/client/read/read_one.h"

namespace annulus::client {
namespace {

using ::testing::HasSubstr;
using testing::MakeDocx;
using testing::MakeEpub;
using testing::MakeOdt;
using ::testing::Not;
using testing::ReadOne;
using testing::RemarksOn;

std::string Html(const std::string& body) { return absl::StrCat("<!DOCTYPE html><body>", body); }
std::string Page(const std::string& body) { return ReadOne("p.html", Html(body)); }

std::string Word(const std::string& properties, const std::string& text) {
  return absl::StrCat("<w:r><w:rPr>", properties, "</w:rPr><w:t>", text, "</w:t></w:r>");
}
std::string WordLine(const std::string& runs) {
  return ReadOne("d.docx", MakeDocx(absl::StrCat("<w:p>", runs, "</w:p>")));
}

constexpr char kXhtml[] = "<?xml version='1.0'?><html xmlns='http://www.w3.org/1999/xhtml'>";

TEST(Meaning, XhtmlIsReadAsXml) {
  const std::string body = "<body><a id='x'/><p>one</p><div/><p>two<br/>three</p></body></html>";
  for (const char* head :
       {"<head><title/></head>", "<head><script src='x.js'/></head>", "<head><style/></head>"}) {
    EXPECT_EQ(ReadOne("x", absl::StrCat(kXhtml, head, body)), "one\n\ntwo\nthree\n") << head;
  }
  EXPECT_EQ(ReadOne("x", absl::StrCat(kXhtml,
                                      "<body><p>a&nbsp;b &eacute; &lt;i&gt; "
                                      "<![CDATA[<x>]]></p><textarea/><p>c</p></body></html>")),
            "a\xC2\xA0"
            "b é <i> <x>\n\nc\n");
  EXPECT_EQ(ReadOne("x", absl::StrCat("<?xml version='1.0'?><h:html "
                                      "xmlns:h='http://www.w3.org/1999/xhtml'><h:body><h:p>n</h:p>"
                                      "</h:body></h:html>")),
            "n\n");
}

TEST(Meaning, StruckTextIsMarked) {
  EXPECT_EQ(Page("Was <s>100</s> <del>9<b>0</b></del>, now 80"), "Was ~~100~~ ~~90~~, now 80\n");
  EXPECT_EQ(WordLine(Word("<w:strike/>", "100") + Word("<w:dstrike/>", "0 EUR") +
                     Word("<w:strike w:val='0'/>", " 80")),
            "~~1000 EUR~~ 80\n");
  EXPECT_EQ(ReadOne("d.odt", MakeOdt("<style:style style:name='S'><style:text-properties "
                                     "style:text-line-through-style='solid'/></style:style>",
                                     "<text:p>a <text:span text:style-name='S'>b</text:span> c"
                                     "</text:p>")),
            "a ~~b~~ c\n");
  // Lines and scripts inside; nothing at all inside.
  EXPECT_EQ(Page("<del>m<sup>2</sup><br>x</del> y<s></s>z"), "~~m^2~~\n~~x~~ yz\n");
}

TEST(Meaning, FieldsOfWordThatShowTheirCode) {
  const auto field = [](const std::string& code) {
    return absl::StrCat("<w:r><w:fldChar w:fldCharType='begin'/></w:r><w:r><w:instrText>", code,
                        "</w:instrText></w:r><w:r><w:fldChar w:fldCharType='separate'/></w:r><w:r>"
                        "<w:fldChar w:fldCharType='end'/></w:r>");
  };
  EXPECT_EQ(WordLine(field(" SYMBOL 163 \\f \"Symbol\" \\s 11") + Word("", " 5 mg")), "≤ 5 mg\n");
  EXPECT_EQ(WordLine("<w:fldSimple w:instr='SYMBOL 0xFE \\f \"Wingdings\"'/>" + Word("", " paid")),
            "☑ paid\n");
  EXPECT_EQ(WordLine(field("EQ \\f(3,4)")), "3/4\n");
  EXPECT_EQ(WordLine(Word("", "x") + field("EQ \\s\\up8(n+1)") + field("EQ \\r(3,\\f(a,b+1))")),
            "x^(n+1)√[3](a/(b+1))\n");
  for (const char* broken : {"EQ \\f(", "EQ \\", "SYMBOL", "EQ \\f(1", "EQ )", "SYMBOL x"}) {
    WordLine(field(broken));
  }
  // A field with a result shows that.
  EXPECT_EQ(WordLine("<w:r><w:fldChar w:fldCharType='begin'/></w:r><w:r><w:instrText>SYMBOL 163"
                     "</w:instrText></w:r><w:r><w:fldChar w:fldCharType='separate'/></w:r><w:r>"
                     "<w:t>7</w:t></w:r><w:r><w:fldChar w:fldCharType='end'/></w:r>"),
            "7\n");
}

TEST(Meaning, RaisedByPositionRubyAndHiddenRowsOfWord) {
  EXPECT_EQ(WordLine(Word("", "x") + Word("<w:position w:val='12'/>", "2") + Word("", " a") +
                     Word("<w:position w:val='-1'/>", "b")),
            "x^2 ab\n");
  EXPECT_EQ(WordLine("<w:r><w:ruby><w:rt><w:r><w:t>kan</w:t></w:r></w:rt><w:rubyBase><w:r><w:t>漢"
                     "</w:t></w:r></w:rubyBase></w:ruby></w:r>"),
            "漢(kan)\n");
  const std::string table = MakeDocx(
      "<w:tbl><w:tr><w:trPr><w:hidden/></w:trPr><w:tc><w:p><w:r><w:t>h</w:t></w:r></w:p>"
      "</w:tc></w:tr><w:tr><w:tc><w:p><w:r><w:t>a</w:t></w:r></w:p></w:tc></w:tr></w:tbl>");
  EXPECT_EQ(ReadOne("d", table), "| a |\n");
  EXPECT_THAT(RemarksOn("d", table), HasSubstr("left out 1 hidden"));
}

TEST(Meaning, RulesForElementsInsideOthersHide) {
  const auto shown = [](const std::string& sheet, const std::string& body) {
    return Page(absl::StrCat("<style>", sheet, "</style>", body));
  };
  const std::string body = "<div id=m><p class=x>a</p><div><p>b</p></div></div><p data-k=v>c</p>";
  EXPECT_EQ(shown("#m .x{display:none}", body), "b\n\nc\n");
  EXPECT_EQ(shown("#m>p{display:none}", body), "b\n\nc\n");
  EXPECT_EQ(shown("div div p , [data-k=\"v\"]{display:none}", body), "a\n");
  EXPECT_EQ(shown("@media screen{.x{display:none}} p{opacity:1}", body), "b\n\nc\n");
  EXPECT_EQ(shown("@media all, print{.y{color:red}.x{display:none}}", body), "b\n\nc\n");
  // What holds only sometimes, or is not understood, hides nothing.
  for (const char* sheet :
       {"@media print{p{display:none}}", "@media (max-width:9px){p{display:none}}",
        "p:hover{display:none}", "div + p{display:none}", "span > p{display:none}",
        "#m > .y{display:none}", "> p{display:none}", "p >{display:none}"}) {
    EXPECT_EQ(shown(sheet, body), "a\n\nb\n\nc\n") << sheet;
  }
}

TEST(Meaning, LettersWithoutSizeAreHiddenUntilAnElementGivesThemOne) {
  const std::string page =
      Html("<div style='font-size:0'>planted <p style='font-size:14px'>column</p></div><p>b");
  EXPECT_EQ(ReadOne("p", page), "column\n\nb\n");
  EXPECT_THAT(RemarksOn("p", page), HasSubstr("left out 1 hidden passage, which is not"));
}

TEST(Meaning, ListsOfPagesKeepTheirNumbers) {
  EXPECT_EQ(Page("<ol type=a><li>x<li>y</ol>"), "a. x\nb. y\n");
  EXPECT_EQ(Page("<ol type=I start=4><li>x<li type=1>y</ol>"), "IV. x\n5. y\n");
  EXPECT_EQ(Page("<ol start=0><li>x<li>y</ol>"), "0. x\n1. y\n");
  EXPECT_EQ(Page("<ol start=-1><li>x<li>y</ol>"), "-1. x\n0. y\n");
  EXPECT_EQ(Page("<ol reversed><li>x<li>y<li value=9>z</ol>"), "3. x\n2. y\n9. z\n");
}

TEST(Meaning, TextOfDrawingsAndFormsOfPages) {
  EXPECT_EQ(Page("a <svg><title>icon</title><defs><text>no</text></defs><text>Oslo 42</text><g>"
                 "<text>Bergen <tspan>7</tspan></text></g></svg> b"),
            "a\nOslo 42\nBergen 7\nb\n");
  EXPECT_EQ(Page("<select><option>Red<option>Blue</select> <select multiple><option>no</select>"
                 "<input type=month value=2024-05><input type=hidden value=no>"),
            "Red 2024-05\n");
  EXPECT_EQ(Page("She said <q>no</q>."), "She said \"no\".\n");
}

TEST(Meaning, ListsOfWordThatBeginAtZeroCountOn) {
  const std::string item =
      "<w:p><w:pPr><w:numPr><w:ilvl w:val='0'/><w:numId w:val='1'/></w:numPr></w:pPr><w:r><w:t>x"
      "</w:t></w:r></w:p>";
  const std::string numbering =
      "<w:numbering><w:abstractNum w:abstractNumId='0'><w:lvl w:ilvl='0'><w:start w:val='0'/>"
      "<w:numFmt w:val='decimal'/><w:lvlText w:val='%1.'/></w:lvl></w:abstractNum><w:num "
      "w:numId='1'><w:abstractNumId w:val='0'/></w:num></w:numbering>";
  EXPECT_EQ(ReadOne("d", MakeDocx(item + item + item, {{"numbering.xml", numbering}})),
            "0. x\n1. x\n2. x\n");
}

TEST(Meaning, XhtmlThatIsNotWellFormedStillClosesItsElements) {
  EXPECT_EQ(ReadOne("x", absl::StrCat(kXhtml, "<head><title/><script src='a.js' /></head><body>",
                                      "<p>a & b<p>c</body>")),
            "a & b\n\nc\n");
}

TEST(Meaning, HtmlIsReadAsHtml) {
  // A stroke means nothing in HTML: the paragraph goes on.
  EXPECT_EQ(Page("<p/>a<p>b"), "a\n\nb\n");
  EXPECT_EQ(Page("x<script/>never"), "x\n");
}

TEST(Meaning, PowersAndIndicesOfPages) {
  EXPECT_EQ(Page("10<sup>6</sup> m<sup>2</sup>"), "10^6 m^2\n");
  EXPECT_EQ(Page("10<sup>-6</sup>, H<sub>2</sub>O, x<sub>i</sub>"), "10^-6, H_2O, x_i\n");
  EXPECT_EQ(Page("e<sup>x + 1</sup> x<sup>2n</sup>"), "e^(x + 1) x^(2n)\n");
  EXPECT_EQ(Page("10<sup>6</sup>5 x<sup>n</sup>y"), "10^(6)5 x^(n)y\n");
  EXPECT_EQ(Page("10<sup>1</sup><sup>2</sup>"), "10^12\n");
  EXPECT_EQ(Page("the 1<sup>st</sup> of Foo<sup>®</sup>"), "the 1st of Foo®\n");
  EXPECT_EQ(Page("5<sup>1</sup>/<sub>2</sub> and <sup>3</sup>⁄<sub>4</sub>"), "5 1/2 and 3/4\n");
  EXPECT_EQ(Page("word<sup>[3]</sup>"), "word[3]\n");
  EXPECT_EQ(Page("<table><tr><th>A<th>B<tr><td>10<sup>3</sup><td>2</table>"),
            "| A | B |\n| 10^3 | 2 |\n");
}

TEST(Meaning, FormulasOfPages) {
  const auto math = [](const std::string& inner) {
    return Page(absl::StrCat("5<math>", inner, "</math>6"));
  };
  EXPECT_EQ(math("<mfrac><mn>1</mn><mn>2</mn></mfrac>"), "5 1/2 6\n");
  EXPECT_EQ(math("<mfrac><mrow><mi>a</mi><mo>+</mo><mi>b</mi></mrow><mi>c</mi></mfrac>"),
            "5(a+b)/c 6\n");
  EXPECT_EQ(math("<msup><mi>x</mi><mn>2</mn></msup><msub><mi>y</mi><mi>i</mi></msub>"),
            "5 x^2 y_i 6\n");
  EXPECT_EQ(math("<mn>2</mn><mo>&#x2062;</mo><mn>3</mn><msqrt><mn>7</mn></msqrt>"), "5 2·3√(7)6\n");
  EXPECT_EQ(math("<semantics><mi>z</mi><annotation>\\zeta</annotation></semantics>"), "5 z 6\n");
  EXPECT_EQ(math("<munderover><mo>∑</mo><mrow><mi>i</mi><mo>=</mo><mn>1</mn></mrow><mi>n</mi>"
                 "</munderover><mi>i</mi>"),
            "5 ∑_(i=1)^n i 6\n");
}

TEST(Meaning, PowersAndFormulasOfWord) {
  EXPECT_EQ(WordLine(Word("", "Area 10") + Word("<w:vertAlign w:val='superscript'/>", "6") +
                     Word("", " m, x") + Word("<w:vertAlign w:val='subscript'/>", "1")),
            "Area 10^6 m, x_1\n");
  // Parts of one power.
  EXPECT_EQ(WordLine(Word("", "10") + Word("<w:vertAlign w:val='superscript'/>", "-") +
                     Word("<w:vertAlign w:val='superscript'/>", "3")),
            "10^-3\n");
  const std::string half =
      "<m:oMath><m:f><m:num><m:r><m:t>1</m:t></m:r></m:num><m:den><m:r><m:t>2</m:t></m:r></m:den>"
      "</m:f></m:oMath>";
  EXPECT_EQ(WordLine(Word("", "5") + half), "5 1/2\n");
  EXPECT_EQ(WordLine("<m:oMath><m:sSup><m:e><m:r><m:t>10</m:t></m:r></m:e><m:sup><m:r><m:t>6</m:t>"
                     "</m:r></m:sup></m:sSup></m:oMath>"),
            "10^6\n");
  EXPECT_EQ(WordLine("<m:oMath><m:rad><m:radPr><m:degHide m:val='1'/></m:radPr><m:deg/><m:e><m:r>"
                     "<m:t>x+1</m:t></m:r></m:e></m:rad></m:oMath>"),
            "√(x+1)\n");
}

TEST(Meaning, AStyleRaisesText) {
  const std::string styles =
      "<w:styles><w:style w:styleId='B'><w:rPr><w:vertAlign w:val='superscript'/></w:rPr></w:style>"
      "<w:style w:styleId='S'><w:basedOn w:val='B'/></w:style></w:styles>";
  EXPECT_EQ(ReadOne("d", MakeDocx("<w:p><w:r><w:t>10</w:t></w:r><w:r><w:rPr><w:rStyle w:val='S'/>"
                                  "</w:rPr><w:t>6</w:t></w:r></w:p>",
                                  {{"styles.xml", styles}})),
            "10^6\n");
}

TEST(Meaning, PowersAndFormulasOfOdt) {
  const std::string styles =
      "<style:style style:name='T1'><style:text-properties style:text-position='super 58%'/>"
      "</style:style><style:style style:name='T2'><style:text-properties "
      "style:text-position='-33% 58%'/></style:style>";
  EXPECT_EQ(ReadOne("o", MakeOdt(styles,
                                 "<text:p>10<text:span text:style-name='T1'>6</text:span> x"
                                 "<text:span text:style-name='T2'>1</text:span> "
                                 "<text:span>a</text:span> <text:span>b</text:span></text:p>")),
            "10^6 x_1 a b\n");
  EXPECT_EQ(ReadOne("o", MakeOdt("",
                                 "<text:p>5<draw:frame><draw:object xlink:href='./Object 1'/>"
                                 "</draw:frame></text:p>",
                                 {{"Object 1/content.xml",
                                   "<math><mfrac><mn>1</mn><mn>2</mn></mfrac></math>"}})),
            "5 1/2\n");
}

TEST(Meaning, SpannedCellsOfPagesKeepTheirColumns) {
  EXPECT_EQ(
      Page("<table><tr><th>Region<th>Product<th>Units<tr><td rowspan=2>EU<td>Cable<td>12"
           "<tr><td>Hub<td>7<tr><td colspan=2>All<td>19</table>"),
      "| Region | Product | Units |\n| EU | Cable | 12 |\n| EU | Hub | 7 |\n| All | | 19 |\n");
  // A header stands above all its columns.
  EXPECT_EQ(Page("<table><tr><th>City<th colspan=2>2024<tr><td>Rome<td>1<td>2</table>"),
            "| City | 2024 | 2024 |\n| Rome | 1 | 2 |\n");
  // A span ends with its group of rows; one at the right end too.
  EXPECT_EQ(Page("<table><thead><tr><th rowspan=0>A<th>B</thead><tbody><tr><td>1<td rowspan=2>2"
                 "<tr><td>3</tbody></table>"),
            "| A | B |\n| 1 | 2 |\n| 3 | 2 |\n");
}

TEST(Meaning, SpannedCellsOfWordKeepTheirColumns) {
  const auto cell = [](const std::string& properties, const std::string& text) {
    return absl::StrCat("<w:tc><w:tcPr>", properties, "</w:tcPr><w:p><w:r><w:t>", text,
                        "</w:t></w:r></w:p></w:tc>");
  };
  const std::string table = absl::StrCat(
      "<w:tbl><w:tr>", cell("", "Region"), cell("", "Product"), cell("", "Units"), "</w:tr><w:tr>",
      cell("<w:vMerge w:val='restart'/>", "EU"), cell("", "Cable"), cell("", "12"), "</w:tr><w:tr>",
      cell("<w:vMerge/>", ""), cell("", "Hub"), cell("", "7"), "</w:tr><w:tr>",
      cell("<w:gridSpan w:val='2'/>", "All"), cell("", "19"),
      "</w:tr><w:tr><w:trPr><w:gridBefore w:val='2'/></w:trPr>", cell("", "20"), "</w:tr></w:tbl>");
  EXPECT_EQ(ReadOne("d", MakeDocx(table)),
            "| Region | Product | Units |\n| EU | Cable | 12 |\n| EU | Hub | 7 |\n| All | | 19 |\n"
            "| | | 20 |\n");
}

TEST(Meaning, SpannedAndRepeatedCellsOfOdtKeepTheirColumns) {
  const std::string table =
      "<table:table><table:table-row><table:table-cell table:number-rows-spanned='2'><text:p>EU"
      "</text:p></table:table-cell><table:table-cell table:number-columns-repeated='2'><text:p>0"
      "</text:p></table:table-cell><table:table-cell><text:p>9</text:p></table:table-cell>"
      "</table:table-row><table:table-row><table:covered-table-cell/><table:table-cell "
      "table:number-columns-repeated='2'/><table:table-cell><text:p>7</text:p></table:table-cell>"
      "</table:table-row></table:table>";
  EXPECT_EQ(ReadOne("o", MakeOdt("", table)), "| EU | 0 | 0 | 9 |\n| EU | | | 7 |\n");
}

TEST(Meaning, CellsKeepTheirLines) {
  EXPECT_EQ(Page("<table><tr><th>Who<br>else<th>Where<tr><td>Ann<td>1 High St<br>Leeds"
                 "<tr><td>Code<td><pre>if x:\n    y()</pre><tr><td>List<td><ul><li>a<li>b</ul>"
                 "</table>"),
            "| Who else | Where |\n| Ann | 1 High St\nLeeds |\n| Code | if x:\n    y() |\n"
            "| List | - a\n- b |\n");
  EXPECT_EQ(ReadOne("d", MakeDocx("<w:tbl><w:tr><w:tc><w:p><w:r><w:t>Ann</w:t></w:r></w:p></w:tc>"
                                  "<w:tc><w:p><w:r><w:t>1 High St</w:t><w:br/><w:t>Leeds</w:t>"
                                  "</w:r></w:p><w:p><w:r><w:t>UK</w:t></w:r></w:p></w:tc></w:tr>"
                                  "</w:tbl>")),
            "| Ann | 1 High St\nLeeds\nUK |\n");
}

TEST(Meaning, SignsAndFormValuesAreText) {
  EXPECT_EQ(WordLine("<w:r><w:sym w:font='Wingdings' w:char='F0FE'/><w:t> paid </w:t><w:sym "
                     "w:font='Wingdings' w:char='F0A8'/><w:t> unpaid, dose </w:t><w:sym "
                     "w:font='Symbol' w:char='F0A3'/><w:t> 5 </w:t><w:sym w:font='Symbol' "
                     "w:char='006D'/><w:t>g</w:t></w:r>"),
            "☑ paid ☐ unpaid, dose ≤ 5 μg\n");
  EXPECT_EQ(WordLine(Word("<w:rFonts w:ascii='Symbol'/>", "\xEF\x82\xB3 3")), "≥ 3\n");
  const auto field = [](const std::string& data) {
    return absl::StrCat("<w:r><w:fldChar w:fldCharType='begin'><w:ffData>", data,
                        "</w:ffData></w:fldChar></w:r>");
  };
  EXPECT_EQ(WordLine(field("<w:checkBox><w:default w:val='0'/><w:checked/></w:checkBox>") +
                     Word("", " yes ") + field("<w:checkBox><w:default w:val='0'/></w:checkBox>") +
                     Word("", " no: ") +
                     field("<w:ddList><w:result w:val='1'/><w:listEntry w:val='red'/><w:listEntry "
                           "w:val='blue'/></w:ddList>")),
            "☑ yes ☐ no: blue\n");
  EXPECT_EQ(Page("<input type=checkbox checked> a <input type=checkbox> b <input value=v> "
                 "<input type=hidden value=h><select><option>x<option selected>y</select>"),
            "☑ a ☐ b v y\n");
  EXPECT_EQ(
      ReadOne("o", MakeOdt("",
                           "<office:forms><form:form><form:checkbox form:id='c' "
                           "form:current-state='checked' form:label='paid'/></form:form>"
                           "</office:forms><text:p><draw:control draw:control='c'/></text:p>")),
      "☑ paid\n");
}

TEST(Meaning, WhatIsHiddenIsLeftOutAndCounted) {
  const std::string page = Html(
      "<style>.gone{display:none} .back.shown{display:block} .back{display:none} "
      "@media print{p{display:none}}</style><p>seen</p><p style='display: none'>a</p><p "
      "hidden>b</p>"
      "<p class=gone>c</p><p class='back shown'>kept</p><p style='font-size:0px'>d</p>");
  EXPECT_EQ(ReadOne("p", page), "seen\n\nkept\n");
  EXPECT_EQ(RemarksOn("p", page),
            "p: left out 4 hidden passages, which are not visible in the document");
  const std::string word = MakeDocx("<w:p>" + Word("", "seen") + Word("<w:vanish/>", " obey me") +
                                    Word("<w:vanish w:val='0'/>", " too") + "</w:p>");
  EXPECT_EQ(ReadOne("d", word), "seen too\n");
  EXPECT_THAT(RemarksOn("d", word), HasSubstr("left out 1 hidden passage,"));
  const std::string open = MakeOdt(
      "<style:style style:name='H'><style:text-properties text:display='none'/></style:style>",
      "<text:p>seen<text:span text:style-name='H'>not</text:span></text:p><text:section "
      "text:display='none'><text:p>nor this</text:p></text:section>");
  EXPECT_EQ(ReadOne("o", open), "seen\n");
  EXPECT_THAT(RemarksOn("o", open), HasSubstr("left out 2 hidden passages"));
}

TEST(Meaning, NavigationGoes) {
  EXPECT_EQ(Page("<nav><a href=a>Home</a> <a href=b>Next</a></nav><div class=navheader><a href=c>Up"
                 "</a></div><p>text</p><nav>A section by a careless author, with <a href=d>one</a> "
                 "link.</nav>"),
            "text\n\nA section by a careless author, with one link.\n");
  // A page of nothing else is a table of contents.
  EXPECT_EQ(Page("<nav><a href=a>One</a><br><a href=b>Two</a></nav>"), "One\nTwo\n");
}

TEST(Meaning, NotesKeepTheirPlace) {
  EXPECT_EQ(Page("<p>Lit<sup><a href='#n1'>1</a></sup> early, 10<sup>6</sup>.</p><p id=n1><a "
                 "href='#r1'>1</a>. By the clock. <a href='#r1'>↩</a></p>"),
            "Lit[^1] early, 10^6.\n\n[^1]: By the clock.\n");
  // As Sphinx writes them, with a sign beside each heading.
  EXPECT_EQ(
      Page("<h1>Lamp<a class=headerlink href='#l'>¶</a></h1><p>Lit <a class='footnote-reference "
           "brackets' href='#n'>2</a></p><dl><dt id=n><span><a href='#r'>2</a></span></dt>"
           "<dd><p>By day.</p></dd></dl>"),
      "# Lamp\n\nLit [^2]\n\n[^2]: By day.\n");
  const std::string one =
      "<html><body><p>Text<a epub:type='noteref' href='notes.xhtml#n1'>1</a>"
      "</p></body></html>";
  const std::string notes =
      "<html><body><aside id='n1'><p>1. It was 1742.</p></aside></body></html>";
  EXPECT_EQ(ReadOne("b", MakeEpub({{"notes.xhtml", notes}, {"a.xhtml", one}})),
            "Text[^1]\n\n[^1]: It was 1742.\n");
}

}  // namespace
}  // namespace annulus::client
