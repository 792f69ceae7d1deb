#ifndef ANNULUS_CLIENT_CLI_INPUT_INPUTS_H_
#define ANNULUS_CLIENT_CLI_INPUT_INPUTS_H_

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

namespace annulus::client {

// The argument that stands for standard input.
inline constexpr char kStandardInput[] = "-";

// The functions that return int return 0 on success. On failure they print an error and return the
// exit code.

// Reads all of standard input unchanged. Misuse if it is not UTF-8; `what` names it in messages.
int ReadText(Session& session, absl::string_view what, std::string* text);

// Misuse if `text` is not UTF-8.
int CheckText(Session& session, absl::string_view what, absl::string_view text);

// Appends a system message to the spec; no-op if `text` is empty. Misuse if it is not UTF-8.
int PlaceSystem(Session& session, const std::string& text, v1::GenerationSpec& spec);

// Appends a question to the spec, as a user message.
void PlaceQuestion(const std::string& text, v1::GenerationSpec& spec);

// Asks the server for the description of a model. An empty name means the only model.
grpc::Status DescribeModel(Session& session, const std::string& name, v1::Model* model);

// Counts the tokens of a text by the tokenizer of a model on the server. Counts a text of more than
// 1 MiB in pieces, each of which may make one token more.
int CountTokens(Session& session, const std::string& model, absl::string_view text,
                int64_t* tokens);
// The same, without a message of the failure.
grpc::Status TokensOf(Session& session, const std::string& model, absl::string_view text,
                      int64_t* tokens);

// Adapts questions about documents to a model. If neither the question nor the model's publisher
// says how to draw tokens, sets temperature 0: drawing from the whole vocabulary garbles what a
// document says. Warns if the model is a built-in demonstration, which cannot answer real
// questions. The second and third form ask the server to describe the model, named by the caller or
// in the question; they do nothing if the server does not answer.
void FitToModel(Session& session, const v1::Model& model,
                std::span<v1::GenerationSpec* const> questions);
void FitToModel(Session& session, const std::string& model,
                std::span<v1::GenerationSpec* const> questions);
void FitToModel(Session& session, v1::GenerationSpec& question);

// Uploads a document and shows progress.
int Upload(Session& session, const std::string& name, DocumentContent& content,
           v1::Document* document);

// Reads the text of one file, or of standard input if `file` is "-"; then the title is empty.
// INVALID_ARGUMENT if it is an archive of several files; other errors as for LoadFile, ReadBytes
// and ReadDocument.
absl::StatusOr<DocumentContent> ReadOneText(Session& session, const std::string& file,
                                            const ReadOptions& options);

// The options with a `tell` that warns by the session, which must outlive them.
ReadOptions Telling(Session& session, ReadOptions options);

// Whether a file is plain text that needs no conversion if it is UTF-8 to its end, which
// OpenDocument checks. It is then uploaded without loading it into memory.
bool MayBeSentAsIs(const std::string& path, const ReadOptions& options);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CLI_INPUT_INPUTS_H_
