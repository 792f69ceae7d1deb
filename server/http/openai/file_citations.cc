#include "server/http/openai/file_citations.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "server/http/json/json_text.h"

namespace annulus::server {
namespace {

constexpr size_t kAnnotationBytes = 256;  // of an annotation beside its texts

// In characters, before the blank that ends the sentence.
int64_t EndOfSentence(absl::string_view text) {
  return CountCharacters(absl::StripTrailingAsciiWhitespace(text));
}

}  // namespace

// The two fields that name its document.
std::string FileCitations::FileOf(const Passage& passage) const {
  const std::string& title = prompted_.at(static_cast<size_t>(passage.document)).title;
  const std::string& id = passage.place.document;
  return absl::StrCat("\"file_id\":", JsonString(id),
                      ",\"filename\":", JsonString(title.empty() ? id : title));
}

void FileCitations::NoteText(const Delta& delta, const AnswerBlocks& blocks) {
  if (delta.text.empty()) return;
  size_t block = blocks.last();
  while (blocks.all()[block].kind != AnswerBlock::Kind::kText) --block;  // calls stand behind it
  if (texts_.empty() || texts_.back().block != block) texts_.push_back({block, text_end_});
  text_end_ += static_cast<int64_t>(delta.text.size());
}

void FileCitations::Add(const Delta& delta, const AnswerBlocks& blocks) {
  if (!enabled_) return;
  NoteText(delta, blocks);
  for (const SentenceEvidence& sentence : delta.evidence) {
    const auto after = std::partition_point(
        texts_.begin(), texts_.end(), [&](const Text& text) { return text.begin < sentence.end; });
    ANNULUS_CHECK(after != texts_.begin()) << "evidence before the answer's text";
    const Text& text = *std::prev(after);
    const absl::string_view so_far = blocks.all()[text.block].bytes;
    const int64_t index =
        EndOfSentence(so_far.substr(0, static_cast<size_t>(sentence.end - text.begin)));
    std::vector<std::string> files;
    for (const Passage& passage : sentence.passages) {
      std::string file = FileOf(passage);
      if (std::find(files.begin(), files.end(), file) != files.end()) continue;
      files.push_back(std::move(file));
      OfBlock& of_block = annotations_[text.block];
      std::string json =
          absl::StrCat("{\"type\":\"file_citation\",", files.back(), ",\"index\":", index, "}");
      bytes_ += 2 * json.size() + sizeof(Annotation);
      absl::StrAppend(&of_block.json, of_block.json.empty() ? "" : ",", json);
      fresh_.push_back({text.block, of_block.count++, std::move(json)});
    }
  }
}

absl::string_view FileCitations::Of(size_t block) const {
  const auto found = annotations_.find(block);
  return found == annotations_.end() ? "" : absl::string_view(found->second.json);
}

std::vector<FileCitations::Annotation> FileCitations::TakeFresh(size_t last_block) {
  const auto later = std::find_if(fresh_.begin(), fresh_.end(), [&](const Annotation& annotation) {
    return annotation.block > last_block;
  });
  std::vector<Annotation> taken(std::make_move_iterator(fresh_.begin()),
                                std::make_move_iterator(later));
  fresh_.erase(fresh_.begin(), later);
  return taken;
}

size_t FileCitations::BytesOf(const Delta& delta) const {
  size_t bytes = 0;
  for (const SentenceEvidence& sentence : delta.evidence) {
    for (const Passage& passage : sentence.passages) {
      bytes += 2 * (kAnnotationBytes + FileOf(passage).size());
    }
  }
  return bytes;
}

}  // namespace annulus::server
