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

EvidenceSource::EvidenceSource(const std::vector<DocumentPtr>& documents,
                               const DocumentStore& store, std::string heads)
    : heads_(std::move(heads)) {
  for (const DocumentPtr& document : documents) {
    documents_.push_back({document, store.NotesOf(document)});
  }
}

void EvidenceSource::Place(Passage& passage) const {
  const auto index = static_cast<size_t>(passage.document);
  ANNULUS_CHECK(index < documents_.size()) << "a passage of document " << passage.document;
  const auto& [stored, notes] = documents_[index];
  const auto size = static_cast<int64_t>(stored->size_bytes);
  const auto place_of = [&](int32_t block) {
    const auto at = static_cast<size_t>(block);
    return at < stored->places.size() ? stored->places[at] : TokenPlace{size, stored->characters};
  };
  const TokenPlace begin = place_of(passage.begin / kPlaceTokens);
  const TokenPlace end = place_of((passage.end + kPlaceTokens - 1) / kPlaceTokens);
  PassagePlace& place = passage.place;
  place.document = stored->name;
  place.byte_begin = begin.byte;
  place.byte_end = end.byte;
  place.character_begin = begin.character;
  place.character_end = end.character;
  if (notes == nullptr) return;
  if (notes->keeps_text) {
    const int64_t first = std::max<int64_t>(0, begin.byte - kMostCut);
    const int64_t last = std::min(size, end.byte + kMostCut);
    const std::string text =
        notes->text.Read(static_cast<size_t>(first), static_cast<size_t>(last));
    Cut cut{text, first == 0, last == size, static_cast<size_t>(begin.byte - first),
            static_cast<size_t>(end.byte - first)};
    WidenToSentences(cut);
    const absl::string_view all = text;
    const auto characters = [&](size_t from, size_t to) {
      return from <= to ? CountCharacters(all.substr(from, to - from))
                        : -CountCharacters(all.substr(to, from - to));
    };
    place.character_begin += characters(static_cast<size_t>(begin.byte - first), cut.begin);
    place.character_end += characters(static_cast<size_t>(end.byte - first), cut.end);
    place.byte_begin = first + static_cast<int64_t>(cut.begin);
    place.byte_end = first + static_cast<int64_t>(cut.end);
    place.text = BeginningOf(all.substr(cut.begin, cut.end - cut.begin), kMostTextBytes);
  }
  place.label = std::string(notes->LabelAt((place.byte_begin + place.byte_end) / 2));
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
