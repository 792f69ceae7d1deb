#include "server/generation/evidence_sink.h"

#include <algorithm>

#include "absl/strings/string_view.h"
#include "kernels/base/check.h"

namespace annulus::server {
namespace {

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Whether a sentence, or the text, ends right before `at`, with the blank behind it.
bool SentenceEnds(absl::string_view text, size_t at) {
  if (at == 0) return false;
  if (text[at - 1] == '\n') return true;
  if (at >= 3) {
    const absl::string_view mark = text.substr(at - 3, 3);
    if (mark == "\u3002" || mark == "\uff01" || mark == "\uff1f") return true;
  }
  if (at < 2 || !IsBlank(text[at - 1])) return false;
  const char mark = text[at - 2];
  return mark == '.' || mark == '!' || mark == '?';
}

bool WordEnds(absl::string_view text, size_t at) { return at > 0 && IsBlank(text[at - 1]); }

// A part of a document's text, and a range in it.
struct Cut {
  absl::string_view text;
  bool is_first = false;  // the document begins with it
  bool is_last = false;   // and ends with it
  size_t begin = 0;
  size_t end = 0;
};

// Widens the range to whole sentences, else to whole words; as it is if there are none.
void WidenToSentences(Cut& cut) {
  const auto back = [&](auto ends) {
    for (size_t at = cut.begin;; --at) {
      if ((at == 0 && cut.is_first) || ends(cut.text, at)) {
        cut.begin = at;
        return true;
      }
      if (at == 0) return false;
    }
  };
  const auto forward = [&](auto ends) {
    for (size_t at = cut.end;; ++at) {
      if ((at == cut.text.size() && cut.is_last) || ends(cut.text, at)) {
        cut.end = at;
        return true;
      }
      if (at == cut.text.size()) return false;
    }
  };
  if (!back(SentenceEnds)) back(WordEnds);
  if (!forward(SentenceEnds)) forward(WordEnds);
  while (cut.end > cut.begin && IsBlank(cut.text[cut.end - 1])) --cut.end;
  while (cut.begin < cut.end && IsBlank(cut.text[cut.begin])) ++cut.begin;
}

// The first bytes of a text, without a part of a character.
std::string BeginningOf(absl::string_view text, size_t most) {
  if (text.size() <= most) return std::string(text);
  while (most > 0 && IsContinuation(text[most])) --most;
  return std::string(text.substr(0, most));
}

}  // namespace

std::pair<size_t, size_t> PiecesOf(const DocumentPieces& pieces, int64_t begin, int64_t end) {
  const auto after = std::partition_point(pieces.begin(), pieces.end(),
                                          [&](const ByteRange& one) { return one.end <= begin; });
  const auto behind = std::partition_point(pieces.begin(), pieces.end(),
                                           [&](const ByteRange& one) { return one.begin < end; });
  auto first = std::min(static_cast<size_t>(after - pieces.begin()), pieces.size() - 1);
  while (first + 1 < pieces.size() && pieces[first].begin == pieces[first].end) ++first;
  auto last = static_cast<size_t>(behind - pieces.begin());
  if (last > 0) --last;
  while (last > first && pieces[last].begin == pieces[last].end) --last;
  return {first, std::max(first, last)};
}

EvidenceSource::EvidenceSource(const std::vector<DocumentPtr>& documents,
                               const DocumentStore& store, std::string heads,
                               const std::vector<DocumentPieces>& pieces)
    : heads_(std::move(heads)) {
  for (const DocumentPtr& document : documents) {
    const size_t index = documents_.size();
    documents_.push_back({document, store.NotesOf(document),
                          index < pieces.size() ? pieces[index] : DocumentPieces()});
  }
}

// Moves the place, which is that of whole tokens, to where sentences or pieces begin and end, and
// adds its text.
void EvidenceSource::Quote(const Document& document, PassagePlace& place) {
  ByteRange within{0, static_cast<int64_t>(document.stored->size_bytes)};
  ByteRange cut{place.byte_begin, place.byte_end};
  bool whole = false;
  if (!document.pieces.empty()) {
    const auto [first, last] = PiecesOf(document.pieces, cut.begin, cut.end);
    within = {document.pieces[first].begin, document.pieces[last].end};
    whole = within.end - within.begin <= kMostPieceBytes;
    cut = {std::clamp(cut.begin, within.begin, within.end),
           std::clamp(cut.end, within.begin, within.end)};
    if (whole) cut = within;
  }
  const int64_t first = std::min(place.byte_begin, std::max(within.begin, cut.begin - kMostCut));
  const int64_t last = std::max(place.byte_end, std::min(within.end, cut.end + kMostCut));
  const std::string text =
      document.notes->text.Read(static_cast<size_t>(first), static_cast<size_t>(last));
  const absl::string_view all = text;
  const auto part = [&](int64_t from, int64_t to) {
    return all.substr(static_cast<size_t>(from - first), static_cast<size_t>(to - from));
  };
  if (!whole) {
    const int64_t begin = std::max(within.begin, first);
    const int64_t end = std::min(within.end, last);
    Cut sentences{part(begin, end), begin == within.begin, end == within.end,
                  static_cast<size_t>(cut.begin - begin), static_cast<size_t>(cut.end - begin)};
    WidenToSentences(sentences);
    cut = {begin + static_cast<int64_t>(sentences.begin),
           begin + static_cast<int64_t>(sentences.end)};
  }
  const auto characters = [&](int64_t from, int64_t to) {
    return from <= to ? CountCharacters(part(from, to)) : -CountCharacters(part(to, from));
  };
  place.character_begin += characters(place.byte_begin, cut.begin);
  place.character_end += characters(place.byte_end, cut.end);
  place.byte_begin = cut.begin;
  place.byte_end = cut.end;
  const int64_t most = whole ? kMostPieceBytes : kMostTextBytes;
  place.text = BeginningOf(part(cut.begin, cut.end), static_cast<size_t>(most));
}

void EvidenceSource::Place(Passage& passage) const {
  const auto index = static_cast<size_t>(passage.document);
  ANNULUS_CHECK(index < documents_.size()) << "a passage of document " << passage.document;
  const Document& document = documents_[index];
  const StoredDocument& stored = *document.stored;
  const auto place_of = [&](int32_t block) {
    const auto at = static_cast<size_t>(block);
    return at < stored.places.size()
               ? stored.places[at]
               : TokenPlace{static_cast<int64_t>(stored.size_bytes), stored.characters};
  };
  const TokenPlace begin = place_of(passage.begin / kPlaceTokens);
  const TokenPlace end = place_of((passage.end + kPlaceTokens - 1) / kPlaceTokens);
  PassagePlace& place = passage.place;
  place.document = stored.name;
  place.byte_begin = begin.byte;
  place.byte_end = end.byte;
  place.character_begin = begin.character;
  place.character_end = end.character;
  if (document.notes == nullptr) return;
  if (document.notes->keeps_text) Quote(document, place);
  place.label = std::string(document.notes->LabelAt((place.byte_begin + place.byte_end) / 2));
}

void EvidenceSink::PlaceAll(std::vector<SentenceEvidence>& sentences) const {
  for (SentenceEvidence& sentence : sentences) {
    for (Passage& passage : sentence.passages) source_->Place(passage);
  }
}

void EvidenceSink::OnDelta(Delta delta) {
  PlaceAll(delta.evidence);
  sink_->OnDelta(std::move(delta));
}

void EvidenceSink::OnDone(Completion completion) {
  PlaceAll(completion.evidence);
  completion.evidence_heads = source_->heads();
  sink_->OnDone(std::move(completion));
}

}  // namespace annulus::server
