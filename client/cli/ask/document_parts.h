#ifndef ANNULUS_CLIENT_CLI_ASK_DOCUMENT_PARTS_H_
#define ANNULUS_CLIENT_CLI_ASK_DOCUMENT_PARTS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "annulus/v1/model.pb.h"
#include "client/cli/input/provide.h"
#include "client/cli/session.h"

namespace annulus::client {

// A document, or a part of one.
struct DocumentText {
  std::string name{};    // on the server; empty: not stored there
  std::string title{};   // shown to the model
  std::string text{};    // empty if only the server has it
  std::string sha256{};  // of the text, if only the server has it
  int64_t tokens = 0;
  size_t document = 0;  // which document it is a part of
  size_t offset = 0;    // bytes of that document before it
};

// Cuts documents into parts that a model reads at a time, and keeps the parts on the server as long
// as they are needed. The functions that return int return 0 on success; on failure they print an
// error and return the exit code.
class DocumentParts {
 public:
  // `session` must outlive this object.
  explicit DocumentParts(Session& session) : session_(session) {}

  // Sets how many tokens of documents one request to the model may have: its context without
  // `answer_tokens` and what frames, template and question take. Misuse if less than half of the
  // context is left for documents. `model` must outlive this object.
  int SetBudget(const v1::Model& model, int64_t answer_tokens, int64_t question_tokens);
  int64_t budget() const { return budget_; }

  // Whether one request takes them all.
  bool Fits(const std::vector<DocumentText>& texts) const;

  // Appends the texts to `parts`, those with more than budget() tokens in parts of at most
  // budget() tokens. Misuse if such a text is known to the server only.
  int Cut(const std::vector<DocumentText>& texts, std::vector<DocumentText>* parts);

  // Groups consecutive parts that one request takes together: the first index of each group.
  std::vector<size_t> Group(const std::vector<DocumentText>& parts) const;

  // Uploads a part that the server does not have, and takes its name and tokens from there.
  int Store(DocumentText* part);

  // Takes back the parts that Store has uploaded, also after an interruption. Those that others
  // have asked for meanwhile stay: commands about the same document have the same parts. Ignores
  // failures, which change no answer.
  void Delete() { WithdrawUploads(session_, &provided_); }

 private:
  int CutOne(const DocumentText& text, std::vector<DocumentText>* parts);

  Session& session_;
  const v1::Model* model_ = nullptr;
  int64_t budget_ = 0;
  ProvidedDocuments provided_;  // by Store
};

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CLI_ASK_DOCUMENT_PARTS_H_
