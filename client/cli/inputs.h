#ifndef ANNULUS_CLIENT_CLI_INPUTS_H_
#define ANNULUS_CLIENT_CLI_INPUTS_H_

#include <grpcpp/support/status.h>

#include <span>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "annulus/v1/inference.pb.h"
#include "annulus/v1/model.pb.h"
#include "client/cli/session.h"
#include "client/documents.h"
#include "client/read/files.h"
#include "client/read/read.h"

namespace annulus {

// What stands for standard input on the command line.
inline constexpr char kStandardInput[] = "-";

// These return 0, or the exit code after they said what is wrong.

// All of standard input, byte for byte. Misuse if it is not UTF-8; `what` names it in messages.
int ReadText(Session& session, absl::string_view what, std::string* text);

// Misuse if `text` is not UTF-8.
int CheckText(Session& session, absl::string_view what, absl::string_view text);

// Puts what the model is told first into the spec: a system's message, unless the text is empty.
int PlaceSystem(Session& session, const std::string& text, v1::GenerationSpec& spec);

// Puts a question into the spec: a user's message.
void PlaceQuestion(const std::string& text, v1::GenerationSpec& spec);

// What the server says of a model; an empty name is the only one's.
grpc::Status DescribeModel(Session& session, const std::string& name, v1::Model* model);

// Fits questions about documents to a model. Where neither the question nor the model's publisher
// says anything of sampling, the likeliest tokens are taken: draws from all of a vocabulary garble
// what a document says. Warns if the model is one that shows how the server works and answers no
// real question. The second asks the server for the model, and the third for that of its question.
void FitToModel(Session& session, const v1::Model& model,
                std::span<v1::GenerationSpec* const> questions);
void FitToModel(Session& session, const std::string& model,
                std::span<v1::GenerationSpec* const> questions);
void FitToModel(Session& session, v1::GenerationSpec& question);

// Uploads with progress.
int Upload(Session& session, const std::string& name, DocumentContent& content,
           v1::Document* document);

// Which of the files that DOCs stand for are taken.
struct DocumentChoice {
  FileChoice files;              // of folders and patterns
  bool skip_unreadable = false;  // with a warning; else the first one ends the command
};

// What ProvideDocuments found.
struct ProvidedDocuments {
  std::vector<std::string> names;  // on the server, in order
  int skipped = 0;                 // files that cannot be read
};

// Sees to it that every DOC (a file, a folder, a pattern, "-" for standard input, or the name of a
// document on the server) is on the server. What is a file here beats a pattern, and both beat a
// name on the server. A file goes under the name of its content unless it is there already; if its
// text is there under another title, under the name of both.
int ProvideDocuments(Session& session, const std::vector<std::string>& docs,
                     const DocumentChoice& choice, ProvidedDocuments* provided);

// A text under the name of its content, as a DOC.
int ProvideText(Session& session, const FileText& read, const DocumentChoice& choice,
                ProvidedDocuments* provided);

// The text of one file, or of standard input if `file` is "-". An archive of several is refused.
absl::StatusOr<DocumentContent> ReadOneText(Session& session, const std::string& file);

// The exit code after all else went well: 0, or 3 if files were skipped.
int ExitAfter(int exit_code, const ProvidedDocuments& provided);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_INPUTS_H_
