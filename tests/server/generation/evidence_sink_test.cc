// Where passages lie in the documents that clients uploaded.

#include "server/generation/evidence_sink.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/documents/upload.h"
#include "server/generation/bounded_sink.h"
#include "server/generation/messages.h"
#include "tests/server/fake_engine.h"
#include "tests/support/collecting_sink.h"

namespace annulus::server {
namespace {

using ::testing::EndsWith;
using ::testing::SizeIs;
using ::testing::StartsWith;

class EvidenceSinkTest : public ::testing::Test {
 protected:
  // A byte is a token of the fake engine.
  DocumentPtr Store(const std::string& name, const std::string& text, bool keep_text,
                    const std::vector<std::pair<int64_t, std::string>>& marks = {}) {
    Upload upload(store_, engine_, {});
    v1::UploadDocumentRequest part;
    part.mutable_header()->set_name(name);
    part.mutable_header()->set_keep_text(keep_text);
    for (const auto& [byte, label] : marks) {
      v1::DocumentMark& mark = *part.mutable_header()->add_marks();
      mark.set_byte(byte);
      mark.set_label(label);
    }
    EXPECT_TRUE(upload.Accept(part).ok());
    part.mutable_chunk()->set_data(text);
    const absl::Status status = upload.Accept(part);
    EXPECT_TRUE(status.ok()) << status;
    return upload.Finish()->document;
  }
  static Passage At(int32_t document, int32_t begin, int32_t end) {
    Passage passage;
    passage.document = document;
    passage.begin = begin;
    passage.end = end;
    passage.score = 0.5;
    return passage;
  }
  PassagePlace Place(const std::vector<DocumentPtr>& documents, Passage passage) const {
    EvidenceSource(documents, store_, "heads").Place(passage);
    return passage.place;
  }

  EvidenceSinkTest() { engine_.set_max_context(int64_t{1} << 30); }

  FakeEngine engine_;
  DocumentStore store_{DocumentLimits{size_t{8} << 20, size_t{64} << 20, 100}};
};

std::string Sentences(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "This is sentence number " + std::to_string(i) + ". ";
  return text;
}

TEST_F(EvidenceSinkTest, WithoutTextAPassageEndsAtEverySixtyFourthToken) {
  const DocumentPtr document = Store("a", std::string(1000, 'x'), false);
  const PassagePlace place = Place({document}, At(0, 100, 164));
  EXPECT_EQ(place.document, "a");
  EXPECT_EQ(place.byte_begin, 64);
  EXPECT_EQ(place.byte_end, 192);
  EXPECT_EQ(place.character_begin, 64);
  EXPECT_EQ(place.character_end, 192);
  EXPECT_EQ(place.text, "");
  EXPECT_EQ(place.label, "");
  // The last block is what is left.
  EXPECT_EQ(Place({document}, At(0, 960, 1000)).byte_end, 1000);
}

TEST_F(EvidenceSinkTest, WithTextItEndsWhereSentencesDo) {
  const std::string text = Sentences(100);
  const DocumentPtr document = Store("a", text, true);
  const PassagePlace place = Place({document}, At(0, 640, 704));
  EXPECT_THAT(place.text, StartsWith("This is sentence number "));
  EXPECT_THAT(place.text, EndsWith("."));
  EXPECT_LE(place.byte_begin, 640);
  EXPECT_GE(place.byte_end, 704);
  EXPECT_LT(place.byte_end - place.byte_begin, 64 + 2 * 30);
  EXPECT_EQ(text.substr(place.byte_begin, place.byte_end - place.byte_begin), place.text);
  // The first and the last sentence have no end beside them.
  EXPECT_EQ(Place({document}, At(0, 0, 64)).byte_begin, 0);
  const auto size = static_cast<int32_t>(text.size());
  EXPECT_EQ(Place({document}, At(0, size - 10, size)).byte_end, size - 1);  // without the blank
}

TEST_F(EvidenceSinkTest, CountsCharacters) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "Größe zählt. ";
  const DocumentPtr document = Store("a", text, true);
  EXPECT_EQ(document->characters, 1300);
  const PassagePlace place = Place({document}, At(0, 640, 704));
  EXPECT_EQ(CountCharacters(absl::string_view(text).substr(place.byte_begin,
                                                           place.byte_end - place.byte_begin)),
            CountCharacters(place.text));
  EXPECT_THAT(place.text, StartsWith("Größe zählt."));
  EXPECT_THAT(place.text, EndsWith("zählt."));
}

// No place to cut is near: the block's own edges stay.
TEST_F(EvidenceSinkTest, TakesASentenceOfAMegabyte) {
  const DocumentPtr words = Store(
      "words",
      [] {
        std::string text;
        while (text.size() < (1 << 20)) text += "words ";
        return text;
      }(),
      true);
  const PassagePlace near = Place({words}, At(0, 64'000, 64'064));
  EXPECT_THAT(near.text, StartsWith("words "));
  EXPECT_THAT(near.text, EndsWith("words"));
  EXPECT_LT(near.byte_end - near.byte_begin, 80);
  const DocumentPtr solid = Store("solid", std::string(1 << 20, 'x'), true);
  const PassagePlace place = Place({solid}, At(0, 64'000, 64'064));
  EXPECT_EQ(place.byte_begin, 64'000);
  EXPECT_EQ(place.byte_end, 64'064);
  const PassagePlace all = Place({solid}, At(0, 0, 1 << 20));
  EXPECT_EQ(all.byte_end, 1 << 20);
  EXPECT_THAT(all.text, SizeIs(EvidenceSource::kMostTextBytes));
}

TEST_F(EvidenceSinkTest, WidensToWholePieces) {
  const std::string text = absl::StrCat(std::string(100, 'a'), "\n\n", std::string(100, 'b'), "\n",
                                        std::string(20'000, 'c'));
  const DocumentPieces pieces = {{0, 100}, {101, 101}, {102, 202}, {203, 20'203}};
  const EvidenceSource source({Store("a", text, true)}, store_, "heads", {pieces});
  const auto place = [&](int32_t begin, int32_t end) {
    Passage passage = At(0, begin, end);
    source.Place(passage);
    EXPECT_EQ(passage.place.character_begin, passage.place.byte_begin);
    EXPECT_EQ(passage.place.character_end, passage.place.byte_end);
    return passage.place;
  };
  EXPECT_EQ(place(0, 64).text, std::string(100, 'a'));
  EXPECT_EQ(place(64, 128).text, text.substr(0, 202));
  EXPECT_EQ(place(128, 192).text, std::string(100, 'b'));
  // Of a piece that is too long for that it is a part.
  EXPECT_EQ(place(6400, 6464).text, std::string(64, 'c'));
  EXPECT_EQ(place(6400, 6464).byte_begin, 6400);
  EXPECT_EQ(place(256, 320).byte_begin, 203);  // as words do, within 512 bytes
  EXPECT_EQ(place(20'160, 20'203).byte_end, 20'203);
}

TEST_F(EvidenceSinkTest, FindsThePiecesOfARange) {
  const DocumentPieces pieces = {{0, 0}, {1, 5}, {6, 6}, {7, 9}, {10, 10}};
  const auto of = [&](int64_t begin, int64_t end) { return PiecesOf(pieces, begin, end); };
  using Found = std::pair<size_t, size_t>;
  EXPECT_EQ(of(1, 5), Found(1, 1));
  EXPECT_EQ(of(1, 7), Found(1, 1));
  EXPECT_EQ(of(2, 8), Found(1, 3));
  EXPECT_EQ(of(5, 7), Found(3, 3));  // the line feeds between two
  EXPECT_EQ(of(0, 1), Found(1, 1));
  EXPECT_EQ(of(8, 11), Found(3, 3));
  EXPECT_EQ(of(9, 10), Found(4, 4));
}

TEST_F(EvidenceSinkTest, NamesTheMarkThatMostOfItLiesUnder) {
  const DocumentPtr document =
      Store("a", std::string(1000, 'x'), false, {{0, "page 1"}, {150, "page 2"}, {900, "page 3"}});
  EXPECT_EQ(Place({document}, At(0, 0, 64)).label, "page 1");
  EXPECT_EQ(Place({document}, At(0, 128, 192)).label, "page 2");
  EXPECT_EQ(Place({document}, At(0, 896, 960)).label, "page 3");
}

TEST_F(EvidenceSinkTest, KeepsADeletedDocument) {
  auto source = std::make_shared<const EvidenceSource>(
      std::vector<DocumentPtr>{Store("first", std::string(100, 'x'), false),
                               Store("second", Sentences(10), true)},
      store_, "all heads");
  ASSERT_TRUE(store_.Delete({}, "second").ok());
  auto collected = std::make_shared<testing::CollectingSink>();
  EvidenceSink sink(source, collected);
  Delta delta;
  delta.evidence.push_back({0, 10, {At(1, 64, 128), At(0, 0, 64)}});
  const std::vector<SentenceEvidence> sentences = delta.evidence;
  sink.OnDelta(std::move(delta));
  ASSERT_THAT(collected->evidence(), SizeIs(1));
  EXPECT_EQ(collected->evidence()[0].passages[0].place.document, "second");
  EXPECT_THAT(collected->evidence()[0].passages[0].place.text, EndsWith("."));
  EXPECT_EQ(collected->evidence()[0].passages[1].place.document, "first");
  Completion completion;
  completion.evidence = sentences;
  sink.OnDone(std::move(completion));
  const Completion done = *collected->Wait();
  EXPECT_EQ(done.evidence_heads, "all heads");
  const v1::Completion message = ToMessage(done, "id", {});
  ASSERT_EQ(message.evidence().sentences_size(), 1);
  EXPECT_EQ(message.evidence().sentences(0).passages(0).document_index(), 1);
  EXPECT_EQ(message.evidence().sentences(0).passages(0).token_begin(), 64);
  EXPECT_GT(message.evidence().sentences(0).passages(0).byte_end(), 64);
  EXPECT_FALSE(ToMessage(Completion(), "id", {}).has_evidence());
}

TEST_F(EvidenceSinkTest, CountsTheMemoryOfWaitingEvidence) {
  Delta delta;
  const size_t empty = DeltaBytes(delta);
  delta.evidence.push_back({0, 10, {At(0, 0, 64)}});
  delta.evidence[0].passages[0].place.text = std::string(4000, 'x');
  EXPECT_GE(DeltaBytes(delta), empty + 4000);
}

}  // namespace
}  // namespace annulus::server
