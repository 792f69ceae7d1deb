#include "client/cli/ask/evidence_page.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cli/ask/evidence_text.h"
#include "client/draw/answer_page.h"

namespace annulus::client {

bool WantsPage(const v1::GenerationSpec& spec, const AnswerOptions& options) {
  return spec.evidence() && absl::EndsWithIgnoreCase(options.output, ".html");
}

std::string EvidencePage(const Generation& generation, const AnswerOptions& options) {
  AnswerPage page{.question = options.question, .answer = generation.text};
  for (size_t i = 0; i < options.titles.size(); ++i) {
    page.documents.push_back(
        {options.titles[i], i < options.texts.size() ? options.texts[i] : std::string()});
  }
  if (!generation.completion.has_value()) return AnswerPageHtml(page);
  EvidenceNotes notes;
  for (const v1::SentenceEvidence& sentence : generation.completion->evidence().sentences()) {
    AnswerPage::Note note{.at = NumbersAt(generation.text, sentence.end())};
    for (const v1::Passage& passage : sentence.passages()) {
      note.numbers.push_back(notes.NumberOf(passage));
    }
    page.notes.push_back(std::move(note));
  }
  for (const v1::Passage& passage : notes.passages()) {
    page.passages.push_back({.document = static_cast<size_t>(passage.document_index()),
                             .begin = static_cast<size_t>(passage.byte_begin()),
                             .end = static_cast<size_t>(passage.byte_end()),
                             .where = PlaceText(passage, options.titles),
                             .text = passage.text()});
  }
  return AnswerPageHtml(page);
}

}  // namespace annulus::client
