#ifndef ANNULUS_CLIENT_CLI_INPUTS_H_
#define ANNULUS_CLIENT_CLI_INPUTS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "annulus/v1/inference.pb.h"
#include "client/cli/session.h"
#include "client/documents.h"

namespace annulus {

// What stands for standard input on the command line.
inline constexpr char kStandardInput[] = "-";

// These return 0, or the exit code after they said what is wrong.

// All of standard input, byte for byte. Misuse if it is not UTF-8; `what` names it in messages.
int ReadText(Session& session, absl::string_view what, std::string* text);

// Misuse if `text` is not UTF-8.
int CheckText(Session& session, absl::string_view what, absl::string_view text);

// Puts the prompt into the spec: as a user's message for a model with a chat template, else as
// text.
int PlacePrompt(Session& session, const std::string& text, v1::GenerationSpec& spec);

// Uploads with progress.
int Upload(Session& session, const std::string& name, DocumentContent& content,
           v1::Document* document);

// Sees to it that every DOC (the path of a file, "-" for standard input, or the name of a document
// on the server) is on the server, and gives their names there in order. A file goes under the name
// of its content unless it is there already.
int ProvideDocuments(Session& session, const std::vector<std::string>& docs,
                     std::vector<std::string>* names);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_INPUTS_H_
