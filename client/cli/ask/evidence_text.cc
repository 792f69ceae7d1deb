#include "client/cli/ask/evidence_text.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/format/text.h"

namespace annulus::client {
namespace {

constexpr size_t kMostShownBytes = 300;  // of a passage

// The words on one line, with one blank between them.
std::string InOneLine(absl::string_view text) {
  const std::vector<absl::string_view> words =
      absl::StrSplit(text, absl::ByAnyChar(" \t\r\n"), absl::SkipEmpty());
  return OnOneLine(absl::StrJoin(words, " "));
}

// The beginning of a passage on one line.
std::string Shown(absl::string_view text) {
  std::string line = InOneLine(text);
  if (line.size() <= kMostShownBytes) return line;
  size_t end = kMostShownBytes;
  while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xC0) == 0x80) --end;
  return absl::StrCat(absl::string_view(line).substr(0, end), " ...");
}

std::string PlaceOf(const v1::Passage& passage) {
  if (!passage.label().empty()) return InOneLine(passage.label());
  return absl::StrCat("bytes ", passage.byte_begin(), " to ", passage.byte_end());
}

}  // namespace

int EvidenceNotes::NumberOf(const v1::Passage& passage) {
  const std::tuple key(passage.document_index(), passage.token_begin(), passage.token_end());
  const auto [known, is_new] = numbers_.emplace(key, static_cast<int>(passages_.size()) + 1);
  if (is_new) passages_.push_back(passage);
  return known->second;
}

std::string EvidenceNotes::Mark(const v1::Delta& delta) {
  std::string text = delta.text();
  const int64_t first = std::exchange(bytes_, bytes_ + static_cast<int64_t>(text.size()));
  size_t added = 0;
  for (const v1::SentenceEvidence& sentence : delta.evidence()) {
    // Its end may have been printed before.
    const size_t at = NumbersAt(delta.text(), sentence.end() - first);
    std::string numbers;
    for (const v1::Passage& passage : sentence.passages()) {
      absl::StrAppend(&numbers, "[", NumberOf(passage), "]");
    }
    text.insert(at + added, numbers);
    added += numbers.size();
  }
  return text;
}

std::string EvidenceNotes::Lines(const std::vector<std::string>& titles) const {
  std::string lines;
  for (size_t i = 0; i < passages_.size(); ++i) {
    const v1::Passage& passage = passages_[i];
    absl::StrAppend(&lines, "[", i + 1, "] ", PlaceText(passage, titles),
                    passage.text().empty() ? "" : absl::StrCat(": ", Shown(passage.text())), "\n");
  }
  return lines;
}

size_t NumbersAt(absl::string_view text, int64_t end) {
  auto at = static_cast<size_t>(std::clamp<int64_t>(end, 0, static_cast<int64_t>(text.size())));
  while (at > 0 && absl::ascii_isspace(static_cast<unsigned char>(text[at - 1]))) --at;
  return at;
}

std::string PlaceText(const v1::Passage& passage, const std::vector<std::string>& titles) {
  const auto index = static_cast<size_t>(passage.document_index());
  const std::string& title =
      index < titles.size() && !titles[index].empty() ? titles[index] : passage.document();
  return absl::StrCat(OnOneLine(title), ", ", PlaceOf(passage));
}

std::string MarkAll(const std::string& text, const v1::Evidence& evidence, EvidenceNotes& notes) {
  v1::Delta all;
  all.set_text(text);
  *all.mutable_evidence() = evidence.sentences();
  return notes.Mark(all);
}

}  // namespace annulus::client
