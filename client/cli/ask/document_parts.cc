#include "client/cli/ask/document_parts.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/ask/text_parts.h"
#include "client/cli/input/inputs.h"
#include "client/format/units.h"

namespace annulus::client {
namespace {

// Tokens of the context reserved for document titles and frames and the chat template.
constexpr int64_t kReservedTokens = 512;
// Texts are measured in pieces of this share of a part, a call each, so parts are filled to at
// least 94%.
constexpr int64_t kPiecesOfPart = 16;
constexpr int64_t kShortestPiece = 64;    // bytes
constexpr int64_t kLongestPiece = 16384;  // bytes

}  // namespace

int DocumentParts::SetBudget(const v1::Model& model, int64_t answer_tokens,
                             int64_t question_tokens) {
  model_ = &model;
  const int64_t context = model.max_context();
  budget_ = context - answer_tokens - question_tokens - std::min(kReservedTokens, context / 8);
  if (budget_ >= context / 2) return 0;
  return session_.Misuse(absl::StrCat(
      "the model reads ", FormatCount(context), " tokens, which leaves no room for documents with ",
      FormatCount(answer_tokens), " tokens of answer and ", FormatCount(question_tokens),
      " of question; lower --max-tokens or shorten the question"));
}

bool DocumentParts::Fits(const std::vector<DocumentText>& texts) const {
  int64_t tokens = 0;
  for (const DocumentText& text : texts) tokens += text.tokens;
  return tokens <= budget_ && texts.size() <= kMostDocuments;
}

int DocumentParts::Cut(const std::vector<DocumentText>& texts, std::vector<DocumentText>* parts) {
  for (const DocumentText& text : texts) {
    if (text.tokens <= budget_) {
      parts->push_back(text);
      continue;
    }
    if (text.text.empty()) {
      return session_.Misuse(absl::StrCat(text.name, " has ", FormatCount(text.tokens),
                                          " tokens, more than the context, and is stored only on "
                                          "the server; give its file to split it"));
    }
    const int exit_code = CutOne(text, parts);
    if (exit_code != 0) return exit_code;
  }
  return 0;
}

// Measures piece after piece, because tables and code have more tokens for their bytes than prose.
int DocumentParts::CutOne(const DocumentText& text, std::vector<DocumentText>* parts) {
  const int64_t bytes_of_part =
      static_cast<int64_t>(text.text.size()) * budget_ / std::max<int64_t>(text.tokens, 1);
  const int64_t piece_bytes =
      std::clamp(bytes_of_part / kPiecesOfPart, kShortestPiece, kLongestPiece);
  const size_t first = parts->size();
  size_t offset = 0;
  for (const absl::string_view piece : CutText(text.text, static_cast<size_t>(piece_bytes))) {
    int64_t tokens = 0;
    const int exit_code = CountTokens(session_, model_->name(), piece, &tokens);
    if (exit_code != 0) return exit_code;
    if (parts->size() == first || parts->back().tokens + tokens > budget_) {
      parts->push_back({.document = text.document, .offset = text.offset + offset});
    }
    absl::StrAppend(&parts->back().text, piece);
    parts->back().tokens += tokens;
    offset += piece.size();
  }
  const size_t count = parts->size() - first;
  for (size_t i = 0; i < count; ++i) {
    (*parts)[first + i].title = absl::StrCat(text.title, ", part ", i + 1, " of ", count);
  }
  return 0;
}

std::vector<size_t> DocumentParts::Group(const std::vector<DocumentText>& parts) const {
  std::vector<size_t> begins;
  int64_t tokens = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i == 0 || tokens + parts[i].tokens > budget_ || i - begins.back() == kMostDocuments) {
      begins.push_back(i);
      tokens = 0;
    }
    tokens += parts[i].tokens;
  }
  return begins;
}

int DocumentParts::Store(DocumentText* part) {
  if (!part->name.empty()) return 0;
  const int exit_code = ProvideText(session_, {part->title, part->text}, {}, &provided_);
  if (exit_code != 0) return exit_code;
  part->name = provided_.documents.back().name();
  part->tokens = provided_.documents.back().token_count();
  return 0;
}

}  // namespace annulus::client
