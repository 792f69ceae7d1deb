#include "server/http/anthropic/message_citations.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/base/check.h"
#include "server/http/json/json_text.h"

namespace annulus::server {
namespace {

constexpr size_t kCitationBytes = 512;  // of a citation beside its texts

std::string OrNull(absl::string_view text) { return text.empty() ? "null" : JsonString(text); }

// A mark of the document (a page, a chapter) has no field of its own, so it follows the title.
std::string TitleWithLabel(const std::string& title, const std::string& label) {
  return absl::StrCat(title, title.empty() || label.empty() ? "" : ", ", label);
}

// The texts of the pieces one after the other, if the passage is whole pieces; else its text, which
// is a part of a long one.
std::string JoinPieces(const PassagePlace& place, const DocumentPieces& pieces, size_t first,
                       size_t last) {
  const bool whole = place.byte_begin == pieces[first].begin &&
                     place.byte_end == pieces[last].end &&
                     static_cast<int64_t>(place.text.size()) == place.byte_end - place.byte_begin;
  if (!whole) return place.text;
  std::string joined;
  for (size_t i = first; i <= last; ++i) {
    joined.append(place.text, static_cast<size_t>(pieces[i].begin - place.byte_begin),
                  static_cast<size_t>(pieces[i].end - pieces[i].begin));
  }
  return joined;
}

}  // namespace

void MessageCitations::SetDocuments(std::vector<PromptedDocument> documents) {
  if (!enabled()) return;
  prompted_ = std::make_shared<const std::vector<PromptedDocument>>(std::move(documents));
}

std::string MessageCitations::PassageJson(const Passage& passage) const {
  const PromptedDocument& prompted = prompted_->at(static_cast<size_t>(passage.document));
  ANNULUS_CHECK(prompted.attached >= 0) << "a document that is no block of the request";
  const CitedDocument& cited = cited_->at(static_cast<size_t>(prompted.attached));
  const PassagePlace& place = passage.place;
  std::string text = place.text;
  std::string where;
  if (cited.pieces.empty()) {
    // The text of a long passage is cut off, and so is the range.
    where = absl::StrCat("\"char_location\",\"start_char_index\":", place.character_begin,
                         ",\"end_char_index\":", place.character_begin + CountCharacters(text));
  } else {
    const auto [first, last] = PiecesOf(cited.pieces, place.byte_begin, place.byte_end);
    text = JoinPieces(place, cited.pieces, first, last);
    where = absl::StrCat("\"content_block_location\",\"start_block_index\":", first,
                         ",\"end_block_index\":", last + 1);
  }
  return absl::StrCat("{\"type\":", where, ",\"cited_text\":", JsonString(text),
                      ",\"document_index\":", prompted.attached,
                      ",\"document_title\":", OrNull(TitleWithLabel(prompted.title, place.label)),
                      ",\"file_id\":", OrNull(cited.file_id), "}");
}

std::vector<std::string> MessageCitations::ToJson(const SentenceEvidence& sentence) const {
  std::vector<std::string> citations;
  for (const Passage& passage : sentence.passages) {
    if (!passage.place.text.empty()) citations.push_back(PassageJson(passage));
  }
  return citations;
}

size_t MessageCitations::kept_bytes() const {
  constexpr size_t kPieceCopies = 3;  // here, in FoundDocuments and in EvidenceSource
  size_t bytes = 0;
  if (!enabled()) return bytes;
  for (const CitedDocument& document : *cited_) {
    bytes += sizeof(document) + document.file_id.capacity() +
             kPieceCopies * document.pieces.capacity() * sizeof(ByteRange);
  }
  for (const PromptedDocument& document : *prompted_) {
    bytes += sizeof(document) + document.title.capacity();
  }
  return bytes;
}

size_t MessageCitations::Bytes(const Delta& delta) const {
  size_t bytes = 0;
  for (const SentenceEvidence& sentence : delta.evidence) {
    for (const Passage& passage : sentence.passages) {
      const PromptedDocument& prompted = prompted_->at(static_cast<size_t>(passage.document));
      bytes += kCitationBytes + JsonStringSize(passage.place.text) +
               JsonStringSize(prompted.title) + JsonStringSize(passage.place.label) +
               JsonStringSize(passage.place.document);
    }
  }
  return bytes;
}

}  // namespace annulus::server
