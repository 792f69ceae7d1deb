#ifndef ANNULUS_SERVER_HTTP_ANTHROPIC_MESSAGE_CITATIONS_H_
#define ANNULUS_SERVER_HTTP_ANTHROPIC_MESSAGE_CITATIONS_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "engine/api.h"
#include "server/http/attached_documents.h"

namespace annulus::server {

// A document block of a request whose answer cites it.
struct CitedDocument {
  std::string file_id = {};    // of an uploaded one; empty: it came with the request
  DocumentPieces pieces = {};  // the texts of a source of type "content"; empty: another source
};

// Writes the evidence of an answer as Anthropic's citations. Copies share what they know of the
// request. Not thread-safe.
class MessageCitations {
 public:
  MessageCitations() = default;  // cites nothing
  // `documents`: all of the request's document blocks, in order.
  explicit MessageCitations(std::vector<CitedDocument> documents)
      : cited_(std::make_shared<const std::vector<CitedDocument>>(std::move(documents))) {}

  bool enabled() const { return cited_ != nullptr; }
  // See AnswerForm::SetDocuments; before the next two.
  void SetDocuments(std::vector<PromptedDocument> documents);

  // The citations of a sentence as JSON, the most attended passage first. Passages without text,
  // which are blank, are left out.
  std::vector<std::string> ToJson(const SentenceEvidence& sentence) const;
  // See AnswerForm.
  size_t kept_bytes() const;
  // Upper bound of the bytes that ToJson makes of a delta's evidence.
  size_t Bytes(const Delta& delta) const;

 private:
  std::string PassageJson(const Passage& passage) const;

  std::shared_ptr<const std::vector<CitedDocument>> cited_;                  // null: not asked for
  std::shared_ptr<const std::vector<PromptedDocument>> prompted_ = nullptr;  // by Passage::document
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_ANTHROPIC_MESSAGE_CITATIONS_H_
