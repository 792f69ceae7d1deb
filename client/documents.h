#ifndef ANNULUS_CLIENT_DOCUMENTS_H_
#define ANNULUS_CLIENT_DOCUMENTS_H_

#include <grpcpp/support/status.h>

#include <cstdint>
#include <functional>
#include <istream>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "annulus/v1/document.pb.h"
#include "client/connection.h"

namespace annulus::client {

// The bytes of a document to upload, with their hash.
struct DocumentContent {
  std::unique_ptr<std::istream> stream;   // at its beginning, seekable
  int64_t size = 0;                       // bytes
  std::string sha256;                     // 64 lower-case hexadecimal digits
  std::string title;                      // shown to people and to the model; UTF-8, may be empty
  bool transient = false;                 // the server may evict it: see DocumentHeader
  bool keep_text = false;                 // see DocumentHeader
  std::vector<v1::DocumentMark> marks{};  // see DocumentHeader
};

// The marks that a text of pages or slides has, as that of pdf and pptx: lines that begin with
// "[page 7]" or "[slide 7]". At most as many as a server takes.
std::vector<v1::DocumentMark> MarksOf(absl::string_view text);

// Opens a file and reads it once to hash and check it. The title is the file's name without
// folders. Anything but a regular file, such as a pipe, is read into memory. NOT_FOUND if the file
// cannot be opened, INVALID_ARGUMENT if it is a folder, empty or not UTF-8, DATA_LOSS if reading
// fails.
absl::StatusOr<DocumentContent> OpenDocument(const std::string& path);

// The same for a stream such as standard input, which is read into memory. The document has no
// title, and messages call it "standard input".
absl::StatusOr<DocumentContent> ReadDocument(std::istream& input);

// Returns a file's name without folders, as valid UTF-8: every invalid byte becomes U+FFFD.
std::string TitleOf(const std::string& path);

// Reads `input` to its end.
std::string ReadAll(std::istream& input);

// Whether the server accepts `name` as a document's name.
bool IsDocumentName(absl::string_view name);

// Returns a name derived from the content: "sha256-<hash>".
std::string ContentName(const DocumentContent& content);

// Returns a name derived from content and title, for a text that the server already has under
// another title: "sha256-<hash>-<hash of the title>".
std::string TitledName(const DocumentContent& content);

// Called after every chunk with the bytes sent so far and the total size.
using UploadObserver = std::function<void(int64_t, int64_t)>;

// Uploads `content` from its beginning. On OK, `document` describes the stored document.
grpc::Status UploadDocument(Connection& connection, const std::string& name,
                            DocumentContent& content, const UploadObserver& observer,
                            v1::Document* document);

// Called for every progress event of a prefill.
using PrefillObserver = std::function<void(const v1::PrefillDocumentResponse&)>;

// Has the server compute the keys and values of a stored document ahead of any question. On OK,
// `prefilled` holds the result. INTERNAL if the stream ends with OK but without a result.
grpc::Status PrefillDocument(Connection& connection, const v1::PrefillDocumentRequest& request,
                             const PrefillObserver& observer, v1::Prefilled* prefilled);

grpc::Status GetDocument(Connection& connection, const std::string& name, v1::Document* document);

// Takes the next bytes of a document. Returns false to end the download.
using TextObserver = std::function<bool(absl::string_view bytes)>;

// Calls `observer` with the bytes of a document, in order, until it returns false; then the result
// is CANCELLED. On OK, `document` describes the document, and all of its bytes came. DATA_LOSS if
// the stream ends with OK but bytes are missing.
grpc::Status DownloadDocument(Connection& connection, const std::string& name,
                              const TextObserver& observer, v1::Document* document);

// Lists all documents: requests page after page, and appends them to `documents`.
grpc::Status ListDocuments(Connection& connection, std::vector<v1::Document>* documents);

grpc::Status UnpinDocument(Connection& connection, const std::string& name);

grpc::Status DeleteDocument(Connection& connection, const std::string& name);

// Takes back a transient upload: see DeleteDocumentRequest.if_unused. Gives the server
// kWithdrawSeconds, since the user waits for nothing any more.
inline constexpr int kWithdrawSeconds = 2;
grpc::Status WithdrawDocument(Connection& connection, const std::string& name);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_DOCUMENTS_H_
