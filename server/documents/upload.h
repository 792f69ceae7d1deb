#ifndef ANNULUS_SERVER_DOCUMENTS_UPLOAD_H_
#define ANNULUS_SERVER_DOCUMENTS_UPLOAD_H_

#include <cstddef>
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
#include "server/base/sha256.h"
#include "server/documents/document_folder.h"
#include "server/documents/document_store.h"
#include "server/identity/quota_book.h"

namespace annulus::server {

// One upload, from its header to the stored document. Independent of gRPC. Tokenizes the text as it
// arrives and keeps it only in the store's folder, if there is one and the document is not
// transient. So a text longer than the context is refused as soon as it exceeds it. Takes memory
// from the store's budget as bytes arrive, so an upload that announces much but sends little holds
// little; gives it back when destroyed. Not thread-safe.
class Upload {
 public:
  // `store`, `engine` and `cancel`, which ends the work early, must outlive the object. The
  // document will belong to `tenant`; `share` counts it in the tenant's quotas.
  Upload(DocumentStore& store, const Engine& engine, TenantId tenant,
         const CancelFlag& cancel = CancelFlag::Never(), DocumentShare share = DocumentShare())
      : store_(store),
        engine_(engine),
        tenant_(std::move(tenant)),
        cancel_(cancel),
        stream_(engine.NewTextStream(cancel)),
        lease_(store.NewLease(tenant_)),
        share_(std::move(share)) {}
  ~Upload();
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;

  // Takes the header, then the chunks in order. After an error the upload must not continue.
  // OUT_OF_RANGE, with the numbers, if the text exceeds the document limit or the model's context;
  // RESOURCE_EXHAUSTED if the store is full or a quota is used up; INVALID_ARGUMENT if a part is
  // wrong or out of order; errors of DocumentFolder.
  absl::Status Accept(const v1::UploadDocumentRequest& part);

  struct Result {
    DocumentPtr document;
    bool created = false;  // false if the same text was already stored under the name
  };
  // Checks length and hash, and stores the document. Call it last, or FinishUnstored.
  absl::StatusOr<Result> Finish();
  // The same for a transient document that only the caller has: it holds its part of the store's
  // memory and of the tenant's quotas until it is destroyed.
  absl::StatusOr<DocumentPtr> FinishUnstored();

  // Instead of Accept and Finish: takes the document that an earlier process has put into `file` of
  // the store's folder, with ids of this engine's tokenizer. The tenant's share and the context do
  // not limit it, because it was accepted before. Errors: those of DocumentFolder and
  // RESOURCE_EXHAUSTED; DATA_LOSS if the text is not what its header says.
  absl::StatusOr<DocumentPtr> Restore(const DocumentFilePtr& file, const OpenTextPtr& text);

 private:
  absl::Status AcceptHeader(const v1::DocumentHeader& header);
  absl::Status AcceptChunk(const v1::DocumentChunk& chunk);
  absl::Status CheckComplete() const;
  absl::Status Take(absl::string_view bytes);
  absl::Status Tokenize(absl::string_view bytes);
  absl::Status KeepFresh();
  absl::Status CheckContext() const;
  absl::Status TakeMemory(size_t more_ids, size_t others);
  absl::Status TakeShare(size_t bytes);
  size_t NotesMemory(size_t more_text) const;
  absl::StatusOr<std::string> End();
  absl::Status EndText();
  std::shared_ptr<StoredDocument> MakeDocument(const std::string& sha256, SteadyTime stored_at);
  absl::StatusOr<Result> Store(const std::string& sha256, SteadyTime stored_at);

  DocumentStore& store_;
  const Engine& engine_;
  const TenantId tenant_;
  const CancelFlag& cancel_;
  std::unique_ptr<TextStream> stream_;
  RoomLease lease_;
  DocumentShare share_;
  DocumentFilePtr file_;  // null: the bytes are not kept
  bool restoring_ = false;
  bool has_header_ = false;
  std::string name_;
  std::string title_;
  std::optional<size_t> total_bytes_;
  std::optional<std::string> expected_sha256_;
  size_t received_ = 0;  // bytes
  int64_t characters_ = 0;
  bool transient_ = false;
  bool holds_end_mark_ = false;
  TokenList tokens_;
  std::vector<TokenPlace> places_;  // once the text has ended
  DocumentNotes notes_;
  std::vector<int32_t> fresh_;  // ids of the latest part of the text
  Sha256 hash_;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_DOCUMENTS_UPLOAD_H_
