#include "client/draw/answer_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace annulus::client {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

AnswerPage RainPage() {
  return {.question = "Did it rain?",
          .answer = "It rained. It stopped.",
          .notes = {{10, {1}}, {22, {2, 1}}},
          .passages = {{0, 3, 9, "weather.txt, page 3", "rained"},
                       {0, 6, 12, "weather.txt, page 3", "ned al"}},
          .documents = {{"weather.txt", "It rained all day."}}};
}

TEST(AnswerPageHtml, PutsNumbersIntoTheAnswerThatLeadToTheirPassages) {
  const std::string html = AnswerPageHtml(RainPage());
  EXPECT_THAT(html, HasSubstr("It rained.<a class=\"cite\" href=\"#p1\">1</a> It stopped."
                              "<a class=\"cite\" href=\"#p2\">2</a>"
                              "<a class=\"cite\" href=\"#p1\">1</a></div>"));
  EXPECT_THAT(html, HasSubstr("<li><a href=\"#p1\"><b>1</b><small>weather.txt, page 3</small>"));
}

// Passages that overlap are both marked where they do.
TEST(AnswerPageHtml, MarksPassagesInTheDocument) {
  EXPECT_THAT(AnswerPageHtml(RainPage()), HasSubstr("It <mark class=\"p1\" id=\"p1\">rai</mark>"
                                                    "<mark class=\"p1 p2\" id=\"p2\">ned</mark>"
                                                    "<mark class=\"p2\"> al</mark>l day.</div>"));
}

TEST(AnswerPageHtml, GivesEachPassageAPlaceOfItsOwn) {
  AnswerPage page = RainPage();
  page.passages[1].begin = 3;
  EXPECT_THAT(AnswerPageHtml(page), HasSubstr("It <a id=\"p2\"></a><mark class=\"p1 p2\" id=\"p1\">"
                                              "rained</mark><mark class=\"p2\"> al</mark>"));
}

TEST(AnswerPageHtml, ShowsPassagesAloneOfADocumentThatIsNotKnown) {
  AnswerPage page = RainPage();
  page.documents[0].text.clear();
  EXPECT_THAT(AnswerPageHtml(page),
              HasSubstr("<p class=\"note\">weather.txt, page 3</p><div class=\"piece\">"
                        "<mark class=\"p1\" id=\"p1\">rained</mark></div>"));
}

TEST(AnswerPageHtml, TakesTextsForTexts) {
  AnswerPage page = RainPage();
  page.question = page.answer = page.documents[0].title = page.documents[0].text =
      page.passages[0].where = page.passages[0].text = "<script>alert(1)</script>\"'&";
  const std::string html = AnswerPageHtml(page);
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  EXPECT_THAT(html, HasSubstr("default-src 'none'; style-src 'unsafe-inline'"));
}

// Places beyond the text, within a character and out of order are moved.
TEST(AnswerPageHtml, SurvivesPlacesThatDoNotFit) {
  AnswerPage page = RainPage();
  page.documents[0].text = "Größe";
  page.passages[0] = {0, 3, 4, "a", "b"};        // within "ö"
  page.passages[1] = {0, 1000, 900, "a", "b"};   // beyond the end
  page.passages.push_back({7, 0, 1, "a", "b"});  // of no document
  page.notes = {{900, {1}}, {2, {2}}};
  EXPECT_THAT(AnswerPageHtml(page), HasSubstr("Gr"));
}

TEST(AnswerPageHtml, CutsALongTextIntoPieces) {
  AnswerPage page = RainPage();
  page.documents[0].text.clear();
  for (int i = 0; i < 1000; ++i) absl::StrAppend(&page.documents[0].text, "A line of a text.\n");
  // One that lies in two pieces.
  page.passages[0].begin = 6100;
  page.passages[0].end = 6300;
  const std::string html = AnswerPageHtml(page);
  EXPECT_THAT(html, HasSubstr("</mark></div><div class=\"piece\"><mark class=\"p1\">"));
  EXPECT_THAT(AnswerPageHtml({.answer = "Yes."}), HasSubstr("No passage stands out"));
}

}  // namespace
}  // namespace annulus::client
