#ifndef ANNULUS_SERVER_UPLOAD_H_
#define ANNULUS_SERVER_UPLOAD_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "annulus/v1/document.pb.h"
#include "engine/api.h"
#include "server/document_store.h"
#include "server/sha256.h"

namespace annulus {

// One upload from its header to the stored document; knows nothing of gRPC. Memory is taken from
// the store's budget as bytes arrive, so that an upload that promises much and sends little holds
// little, and given back when the object ends. Not thread-safe.
class Upload {
 public:
  explicit Upload(DocumentStore& store) : store_(store), lease_(store.NewLease()) {}

  // Takes the header, then chunks. After an error the upload is over.
  absl::Status Accept(const v1::UploadDocumentRequest& part);

  struct Result {
    DocumentPtr document;
    bool created = false;  // false: the same text was stored already
  };
  // Checks length and hash, tokenizes and stores. Ends the object's use.
  absl::StatusOr<Result> Finish(const Engine& engine);

  size_t received() const { return text_.size(); }
  const std::string& name() const { return name_; }

 private:
  absl::Status AcceptHeader(const v1::DocumentHeader& header);
  absl::Status AcceptChunk(const v1::DocumentChunk& chunk);
  absl::Status CheckComplete() const;
  absl::Status Reserve(size_t text_bytes);

  DocumentStore& store_;
  MemoryLease lease_;
  bool has_header_ = false;
  std::string name_;
  std::optional<size_t> total_bytes_;
  std::optional<std::string> expected_sha256_;
  std::string text_;
  Sha256 hash_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_UPLOAD_H_
