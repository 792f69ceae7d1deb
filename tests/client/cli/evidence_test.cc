// Answers that name their passages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "client/cli/ask/evidence_text.h"
#include "client/documents.h"
#include "tests/client/cli/generate_test.h"

namespace annulus::client {
namespace {

using testing::CliResult;
using testing::CompletionEvent;
using testing::DeltaEvent;
using ::testing::ElementsAre;
using testing::FakeServer;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::Passage MakePassage(int32_t document, int64_t token, const std::string& label,
                        const std::string& text) {
  v1::Passage passage;
  passage.set_document("sha256-x");
  passage.set_document_index(document);
  passage.set_token_begin(token);
  passage.set_token_end(token + 64);
  passage.set_byte_begin(10 * token);
  passage.set_byte_end(10 * token + 300);
  passage.set_label(label);
  passage.set_score(0.5);
  passage.set_text(text);
  return passage;
}

v1::SentenceEvidence Sentence(int64_t begin, int64_t end, const std::vector<v1::Passage>& all) {
  v1::SentenceEvidence sentence;
  sentence.set_begin(begin);
  sentence.set_end(end);
  for (const v1::Passage& passage : all) *sentence.add_passages() = passage;
  return sentence;
}

const v1::Passage kRain = MakePassage(0, 64, "page 3", "It rained\nall day.");
const v1::Passage kSun = MakePassage(1, 128, "", "");

TEST(EvidenceNotes, StandBehindTheLastLetterOfTheirSentence) {
  EvidenceNotes notes;
  v1::Delta delta;
  delta.set_text("It rain");
  EXPECT_EQ(notes.Mark(delta), "It rain");
  delta.set_text("ed. Then");
  *delta.add_evidence() = Sentence(0, 11, {kRain});
  EXPECT_EQ(notes.Mark(delta), "ed.[1] Then");
  delta.Clear();
  delta.set_text(" it was dry. It was warm. ");
  *delta.add_evidence() = Sentence(11, 28, {kSun, kRain});
  *delta.add_evidence() = Sentence(28, 41, {kSun});
  EXPECT_EQ(notes.Mark(delta), " it was dry.[2][1] It was warm.[2] ");
  EXPECT_EQ(notes.Lines({"weather.pdf"}),
            "[1] weather.pdf, page 3: It rained all day.\n"
            "[2] sha256-x, bytes 1280 to 1580\n");
}

// The end of a sentence may have been printed before its evidence comes.
TEST(EvidenceNotes, OfAnEarlierDeltaStandInFrontOfThis) {
  EvidenceNotes notes;
  v1::Delta delta;
  delta.set_text("It rained.");
  notes.Mark(delta);
  delta.set_text("");
  *delta.add_evidence() = Sentence(0, 10, {kRain});
  EXPECT_EQ(notes.Mark(delta), "[1]");
}

TEST(EvidenceNotes, ShowTheBeginningOfALongPassage) {
  EvidenceNotes notes;
  v1::Evidence evidence;
  *evidence.add_sentences() = Sentence(0, 4, {MakePassage(0, 0, "a\nb", std::string(400, 'x'))});
  EXPECT_EQ(MarkAll("Yes.", evidence, notes), "Yes.[1]");
  EXPECT_EQ(notes.Lines({"a"}), "[1] a, a b: " + std::string(300, 'x') + " ...\n");
}

TEST(MarksOf, AreThePagesAndSlidesOfAText) {
  const auto marks =
      MarksOf("[page 1]\nOne [page 2] here\n[page 2]\n[page x]\n[slide 12]\n[page 3");
  ASSERT_EQ(marks.size(), 3);
  EXPECT_EQ(marks[0].byte(), 0);
  EXPECT_EQ(marks[0].label(), "page 1");
  EXPECT_EQ(marks[1].byte(), 27);
  EXPECT_EQ(marks[1].label(), "page 2");
  EXPECT_EQ(marks[2].label(), "slide 12");
  EXPECT_THAT(MarksOf(""), IsEmpty());
  EXPECT_THAT(MarksOf("[page 99999999999999]\n"), IsEmpty());
}

class AskEvidence : public testing::GenerateTest {
 protected:
  // "It rained. It stopped." with evidence of the first sentence, if any.
  void Reply(const std::vector<v1::Passage>& passages) {
    FakeServer::Reply reply;
    reply.events.push_back(DeltaEvent("It rained. It", {1, 2}));
    v1::StreamGenerateResponse end = CompletionEvent(v1::FINISH_REASON_STOP, 4);
    end.mutable_completion()->mutable_evidence()->set_heads("8 heads");
    if (!passages.empty()) {
      *reply.events[0].mutable_delta()->add_evidence() = Sentence(0, 11, passages);
      *end.mutable_completion()->mutable_evidence()->add_sentences() = Sentence(0, 11, passages);
    }
    reply.events.push_back(DeltaEvent(" stopped.", {3, 4}));
    reply.events.push_back(end);
    server_.SetReply(reply);
  }
};

TEST_F(AskEvidence, PrintsNumbersAndPassages) {
  Reply({kRain});
  const std::string path = Write("weather.txt", "[page 3]\nIt rained\nall day.");
  const CliResult result = Run({"ask", path, "Did it rain?", "--evidence"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out,
            "It rained.[1] It stopped.\n\n[1] weather.txt, page 3: It rained all day.\n");
  EXPECT_TRUE(server_.specs().back().evidence());
  ASSERT_FALSE(server_.uploads().empty());
  EXPECT_TRUE(server_.uploads()[0].header().keep_text());
}

TEST_F(AskEvidence, UploadsTheMarksOfATextThatIsRead) {
  Reply({kRain});
  const CliResult result =
      Run({"ask", "-", "Did it rain?", "--evidence"}, {.in = "[page 3]\nIt rained."});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  ASSERT_FALSE(server_.uploads().empty());
  const v1::DocumentHeader header = server_.uploads()[0].header();
  ASSERT_EQ(header.marks_size(), 1);
  EXPECT_EQ(header.marks(0).label(), "page 3");
}

// A document that is there without its text is uploaded again; without --evidence it is not.
TEST_F(AskEvidence, AddsTheTextToADocumentThatIsThere) {
  const std::string path = Write("weather.txt", "It rained.");
  ASSERT_EQ(Run({"ask", path, "Did it rain?"}).exit_code, 0);
  const size_t before = server_.uploads().size();
  ASSERT_EQ(Run({"ask", path, "Did it rain?"}).exit_code, 0);
  EXPECT_EQ(server_.uploads().size(), before);
  EXPECT_FALSE(server_.uploads()[0].header().keep_text());
  EXPECT_FALSE(server_.specs().back().evidence());
  Reply({kRain});
  ASSERT_EQ(Run({"ask", path, "Did it rain?", "--evidence"}).exit_code, 0);
  ASSERT_GT(server_.uploads().size(), before);
  EXPECT_TRUE(server_.uploads()[before].header().keep_text());
}

TEST_F(AskEvidence, SaysWhenNothingStandsOut) {
  Reply({});
  const CliResult result = Run({"ask", Write("a.txt", "abc"), "Did it rain?", "--evidence"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "It rained. It stopped.\n");
  EXPECT_THAT(result.err, HasSubstr("no passage of the documents stands out"));
}

TEST_F(AskEvidence, SaysThatAnOldServerHasNone) {
  const CliResult result = Run({"ask", Write("a.txt", "abc"), "Who?", "--evidence"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("too old to name passages"));
}

TEST_F(AskEvidence, IsPartOfTheJson) {
  Reply({kSun});
  const std::string path = Write("a.txt", "abc");
  const CliResult json = Run({"ask", path, "Did it rain?", "--evidence", "--json"});
  EXPECT_THAT(json.out,
              HasSubstr(R"("evidence":{"sentences":[{"begin":0,"end":11,"passages":[{"document":)"
                        R"("sha256-x","document_index":1,"token_begin":128,"token_end":192,)"
                        R"("byte_begin":1280,"byte_end":1580,)"));
  EXPECT_THAT(json.out, HasSubstr(R"("heads":"8 heads"})"));
  EXPECT_THAT(json.out, HasSubstr(R"({"text":"It rained. It stopped.")"));
  const CliResult lines = Run({"ask", path, "Did it rain?", "--evidence", "--json-lines"});
  EXPECT_THAT(lines.out, HasSubstr(R"("evidence":[{"begin":0,"end":11,)"));
  EXPECT_THAT(lines.out,
              HasSubstr("{\"event\":\"delta\",\"text\":\" stopped.\",\"token_ids\":[3,4]}"));
}

TEST_F(AskEvidence, GoesIntoAPageBesideTheDocument) {
  v1::Passage passage = kRain;
  passage.set_byte_begin(9);
  passage.set_byte_end(18);
  Reply({passage});
  const std::string path = Write("weather.txt", "[page 3]\nIt rained\nall day.");
  const std::string file = folder_ / "answer.html";
  ASSERT_EQ(Run({"ask", path, "Did it <i>rain</i>?", "--evidence", "-o", file}).exit_code, 0);
  // The text was read twice: for the page, and for the upload.
  ASSERT_EQ(server_.documents().size(), 1u);
  EXPECT_EQ(server_.documents().begin()->second, "[page 3]\nIt rained\nall day.");
  std::ifstream page(file);
  const std::string html(std::istreambuf_iterator<char>(page), {});
  EXPECT_THAT(html, HasSubstr("<h1>Did it &lt;i&gt;rain&lt;/i&gt;?</h1>"));
  EXPECT_THAT(html, HasSubstr("It rained.<a class=\"cite\" href=\"#p1\">1</a> It stopped."));
  EXPECT_THAT(html, HasSubstr("[page 3]\n<mark class=\"p1\" id=\"p1\">It rained</mark>\nall day."));
  EXPECT_THAT(html, HasSubstr("<small>weather.txt, page 3</small>"));
}

TEST_F(AskEvidence, GoesIntoAFileAndBelowEachOfManyQuestions) {
  Reply({kRain});
  const std::string path = Write("weather.txt", "It rained.");
  const std::string file = folder_ / "answer.txt";
  ASSERT_EQ(Run({"ask", path, "Did it rain?", "--evidence", "-o", file}).exit_code, 0);
  std::ifstream written(file);
  const std::string text((std::istreambuf_iterator<char>(written)), {});
  EXPECT_EQ(text, "It rained.[1] It stopped.\n\n[1] weather.txt, page 3: It rained all day.\n");
  const CliResult many =
      Run({"ask", path, "--questions", "-", "--evidence"}, {.in = "Did it rain?\nDid it stop?\n"});
  EXPECT_EQ(many.out,
            "# Did it rain?\nIt rained.[1] It stopped.\n"
            "[1] weather.txt, page 3: It rained all day.\n\n"
            "# Did it stop?\nIt rained.[1] It stopped.\n"
            "[1] weather.txt, page 3: It rained all day.\n");
}

}  // namespace
}  // namespace annulus::client
