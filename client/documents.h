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

namespace annulus {

// Bytes that can be uploaded, with their hash.
struct DocumentContent {
  std::unique_ptr<std::istream> stream;  // at its beginning, seekable
  int64_t size = 0;                      // bytes
  std::string sha256;                    // 64 lower-case hexadecimal digits
  std::string title;                     // what people and the model call it, in UTF-8
};

// Reads a file once to hash and check it; its name, without folders, is the title. A pipe is held
// in memory. NOT_FOUND if it cannot be opened, INVALID_ARGUMENT for a folder, an empty file and
// what is not UTF-8, DATA_LOSS if reading fails.
absl::StatusOr<DocumentContent> OpenDocument(const std::string& path);

// The same for a stream such as standard input, held in memory; it has no title.
absl::StatusOr<DocumentContent> ReadDocument(std::istream& input);

// A file's name without folders as the server takes it; what is not UTF-8 becomes U+FFFD.
std::string TitleOf(const std::string& path);

// Every byte up to the end of `input`.
std::string ReadAll(std::istream& input);

// Whether the server would take `name` as a document's name.
bool IsDocumentName(absl::string_view name);

// The name of a document that is known by what it holds: "sha256-<hash>".
std::string ContentName(const DocumentContent& content);

// The same for a text that is there under another title: "sha256-<hash>-<hash of the title>".
std::string TitledName(const DocumentContent& content);

// Bytes sent and all bytes; called after every chunk.
using UploadObserver = std::function<void(int64_t, int64_t)>;

// Uploads `content` from its beginning. On OK `document` is what the server stored.
grpc::Status UploadDocument(Connection& connection, const std::string& name,
                            DocumentContent& content, const UploadObserver& observer,
                            v1::Document* document);

// Sees how far a document has been read ahead.
using PrefillObserver = std::function<void(const v1::PrefillDocumentResponse&)>;

// Has the server read a stored document ahead. On OK `prefilled` is what it did. A stream that ends
// well but without that is INTERNAL.
grpc::Status PrefillDocument(Connection& connection, const v1::PrefillDocumentRequest& request,
                             const PrefillObserver& observer, v1::Prefilled* prefilled);

grpc::Status GetDocument(Connection& connection, const std::string& name, v1::Document* document);

// Every page of the list.
grpc::Status ListDocuments(Connection& connection, std::vector<v1::Document>* documents);

grpc::Status UnpinDocument(Connection& connection, const std::string& name);

grpc::Status DeleteDocument(Connection& connection, const std::string& name);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_DOCUMENTS_H_
