#ifndef ANNULUS_SERVER_HTTP_ATTACHED_DOCUMENTS_H_
#define ANNULUS_SERVER_HTTP_ATTACHED_DOCUMENTS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/generation/generation_run.h"
#include "server/generation/service_context.h"
#include "server/work/call_memory.h"

namespace annulus::server {

// A document in the body of a request, or the name of an uploaded one.
struct AttachedDocument {
  std::string field;       // its path in the request, for errors
  std::string name = {};   // of an uploaded one; empty: `text` is the document
  std::string text = {};   // UTF-8
  std::string title = {};  // for the model; empty: an uploaded document's own
  // The answer quotes its passages, so its text is kept while the request lasts.
  bool quoted = false;
  DocumentPieces pieces = {};  // see FoundDocuments
};

// A document of the prompt; Passage::document is its place among them.
struct PromptedDocument {
  // Which of the attached ones it is; of several that are the same, the first. -1: the spec names
  // it.
  int attached = -1;
  std::string title = {};  // what it is called, or else the uploaded document's own; may be empty
};

// Checks that a document of this media type (empty: not told) which begins with these bytes is
// text. UNIMPLEMENTED (reason UNSUPPORTED, told as status 415) if it is a pdf or the like; the
// message names the command that reads it.
absl::Status CheckIsText(absl::string_view media_type, absl::string_view beginning);

// Reads a file in a request: base64, or a data URL "data:text/plain;base64,...". INVALID_ARGUMENT
// if it is neither; errors of CheckIsText. The text takes at most as many bytes as `data`.
absl::Status ReadFileData(absl::string_view data, std::string& text);

// Adds documents behind those that the request names, and looks all of them up. A text becomes a
// document of this request alone, cached like an uploaded one; it is not stored. A document that
// comes twice is added once. Tokenizes, so it may take long; the tokens, and the text of a document
// that is quoted, take memory of the store. Returns all documents of the prompt, if there are
// attached ones or the spec asks for evidence.
//
// Errors name AttachedDocument::field: INVALID_ARGUMENT, OUT_OF_RANGE and RESOURCE_EXHAUSTED as of
// Upload and FindDocuments; INVALID_ARGUMENT if an uploaded document is quoted whose text was not
// kept; NOT_FOUND if there is no such file.
absl::StatusOr<std::vector<PromptedDocument>> AttachDocuments(
    ServiceContext& context, const Caller& caller, std::vector<AttachedDocument> documents,
    AskedGeneration& asked, CallMemory& memory, const CancelFlag& cancel);

// NOT_FOUND: there is no file with this id (any more). Without --documents the message says that
// files do not outlive the server.
absl::Status MissingFileError(const ServiceContext& context, absl::string_view id);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_ATTACHED_DOCUMENTS_H_
