#ifndef ANNULUS_CLIENT_CLI_INPUT_PROVIDE_H_
#define ANNULUS_CLIENT_CLI_INPUT_PROVIDE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "annulus/v1/document.pb.h"
#include "annulus/v1/model.pb.h"
#include "client/cli/session.h"
#include "client/documents.h"
#include "client/read/files.h"
#include "client/read/read.h"

namespace annulus::client {

// Uploads of the documents that a request is about.

// The most documents that one request takes.
inline constexpr size_t kMostDocuments = 64;

// Which files to take, if a DOC stands for several.
struct DocumentChoice {
  FileChoice files;              // applies to folders and patterns
  ReadOptions read;              // how files are read
  bool skip_unreadable = false;  // skip with a warning; if false, an unreadable file is an error
  bool strict = false;           // a file of which a part cannot be read makes the exit code 3
  bool keep_text = false;        // upload texts to be kept, with marks, for passages of them
};

// A document of a command line: read here and not uploaded yet, or known to the server.
struct GatheredDocument {
  std::optional<DocumentContent> content{};  // nullopt: it is on the server
  v1::Document stored{};                     // if it is on the server
  int64_t tokens = 0;                        // 0: not counted
};

// The documents of a command line, in order.
struct GatheredDocuments {
  std::vector<GatheredDocument> documents;
  int skipped = 0;     // number of files that cannot be read
  int incomplete = 0;  // with choice.strict, number of files of which a part cannot be read
};

// The documents of a request.
struct ProvidedDocuments {
  std::vector<v1::Document> documents;  // as they are on the server, in order
  int skipped = 0;                      // number of files that cannot be read
  int incomplete = 0;  // with choice.strict, number of files of which a part cannot be read
  std::vector<std::string> uploaded;  // names of those that were not there before
};

// The functions that return int return 0 on success. On failure they print an error and return the
// exit code.

// Reads every DOC. A DOC is, in this order of precedence: "-" for standard input, a file or folder
// here, a pattern, or the name of a document on the server. Uploads nothing. Misuse if one cannot
// be read, if no document can be read, or if there are more than kMostDocuments.
int GatherDocuments(Session& session, const std::vector<std::string>& docs,
                    const DocumentChoice& choice, GatheredDocuments* gathered);

// Whether the documents fit into one request to the model, with `others` more tokens. Counts their
// tokens first, by the model's tokenizer on the server, unless their bytes show that they fit.
// Returns the exit code in place of a failure.
int CheckRoom(Session& session, const v1::Model& model, int64_t others, GatheredDocuments* gathered,
              bool* fit);

// Says which documents are too long for the model: their tokens, and how many the model reads. Call
// it if CheckRoom has found that they do not fit.
std::string TooLongText(const v1::Model& model, const GatheredDocuments& gathered);

// Makes sure that all gathered documents are on the server, and appends them to `provided`. Uploads
// a file under ContentName, unless the server has it already; if the server has its text with
// another title, under TitledName. Uploads are transient. Takes them back if one of them fails.
int UploadDocuments(Session& session, GatheredDocuments& gathered, ProvidedDocuments* provided);

// Gathers documents and uploads them, unless they are too long for the model with this name (empty:
// the only one): that is Misuse.
int ProvideDocuments(Session& session, const std::vector<std::string>& docs,
                     const DocumentChoice& choice, const std::string& model,
                     ProvidedDocuments* provided);

// Does the same for one text that has been read from a file, or that could not be read: then skips
// it, or fails, as choice.skip_unreadable says. Does not limit the number.
int ProvideText(Session& session, const FileText& read, const DocumentChoice& choice,
                ProvidedDocuments* provided);

// Takes back the uploads: deletes them, unless somebody else has asked for them. Keys and values
// stay cached. Gives up when the server does not answer, which then evicts them some day.
void WithdrawUploads(Session& session, ProvidedDocuments* provided);

// Call it at the end of a command whose calls were about `provided`. Returns `exit_code`, or 3 in
// place of 0 if files were skipped or incomplete. If a call failed, takes back the uploads.
int EndWith(int exit_code, Session& session, ProvidedDocuments* provided);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CLI_INPUT_PROVIDE_H_
