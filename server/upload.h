#ifndef ANNULUS_SERVER_UPLOAD_H_
#define ANNULUS_SERVER_UPLOAD_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "annulus/v1/document.pb.h"
#include "engine/api.h"
#include "server/document_store.h"
#include "server/identity/quota_book.h"
#include "server/sha256.h"

namespace annulus {

// One upload from its header to the stored document; knows nothing of gRPC. The text becomes token
// ids as it arrives and is not kept, so one that is longer than the context is refused as soon as
// that shows. Memory is taken from the store's budget as bytes arrive, so that an upload that
// promises much and sends little holds little, and given back when the object ends. Not
// thread-safe.
class Upload {
 public:
  // `store`, `engine` and `cancel`, which ends the work early, must outlive the object. The
  // document will be `tenant`'s, and its text counts as `share`.
  Upload(DocumentStore& store, const Engine& engine, TenantId tenant,
         const CancelFlag& cancel = CancelFlag::Never(), DocumentShare share = DocumentShare())
      : store_(store),
        engine_(engine),
        tenant_(std::move(tenant)),
        stream_(engine.NewTextStream(cancel)),
        lease_(store.NewLease()),
        share_(std::move(share)) {}

  // Takes the header, then chunks. After an error the upload is over. OUT_OF_RANGE: longer than the
  // largest document or the model's context; RESOURCE_EXHAUSTED: the store is full; both with the
  // numbers.
  absl::Status Accept(const v1::UploadDocumentRequest& part);

  struct Result {
    DocumentPtr document;
    bool created = false;  // false: the same text was stored already
  };
  // Checks length and hash, and stores. Ends the object's use.
  absl::StatusOr<Result> Finish();

 private:
  absl::Status AcceptHeader(const v1::DocumentHeader& header);
  absl::Status AcceptChunk(const v1::DocumentChunk& chunk);
  absl::Status CheckComplete() const;
  absl::Status Tokenize(absl::string_view bytes);
  absl::Status CheckContext() const;
  absl::Status MakeRoom(size_t more_ids);
  absl::Status TakeMemory(size_t bytes);
  absl::Status TakeShare(size_t bytes);

  DocumentStore& store_;
  const Engine& engine_;
  const TenantId tenant_;
  std::unique_ptr<TextStream> stream_;
  MemoryLease lease_;
  DocumentShare share_;
  bool has_header_ = false;
  std::string name_;
  std::string title_;
  std::optional<size_t> total_bytes_;
  std::optional<std::string> expected_sha256_;
  size_t received_ = 0;  // bytes
  std::vector<int32_t> tokens_;
  Sha256 hash_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_UPLOAD_H_
