#ifndef ANNULUS_SERVER_DOCUMENTS_DOCUMENT_STORE_H_
#define ANNULUS_SERVER_DOCUMENTS_DOCUMENT_STORE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/api.h"
#include "server/config/server_config.h"
#include "server/documents/document_folder.h"
#include "server/documents/document_name.h"
#include "server/documents/document_notes.h"
#include "server/documents/store_room.h"
#include "server/documents/token_list.h"
#include "server/identity/quota_book.h"

namespace annulus::server {

// A stored document. Its content never changes. Requests share ownership, so the memory of a
// deleted document is freed when the last request that reads it ends.
struct StoredDocument {
  TenantId tenant;
  std::string name;
  size_t size_bytes = 0;  // as UTF-8
  std::string sha256;     // 64 lower-case hexadecimal digits
  TokenList tokens;
  SteadyTime stored_at;
  mutable RoomLease lease;      // guarded by the store's mutex once it is stored
  std::string title;            // UTF-8, may be empty
  bool holds_end_mark = false;  // see TextStream
  DocumentShare share;          // its part of the tenant's quota
  // Whether the store may evict it. Becomes false if it is uploaded as one that stays.
  mutable std::atomic<bool> transient = false;
  // Whether `file` is not null.
  mutable std::atomic<bool> has_bytes = false;
  // When a request last named it; equals stored_at if none has.
  mutable std::atomic<SteadyTime> last_used = stored_at;
  // Whether `notes` has the text.
  mutable std::atomic<bool> has_text = false;
  std::vector<TokenPlace> places;  // of its tokens: see TextStream::places
  int64_t characters = 0;          // code points of its text
  // Guarded by the store's mutex:
  mutable std::shared_ptr<const DocumentNotes> notes;  // null: the uploads had none
  mutable bool promised = false;                       // see DocumentStore::Withdraw
  mutable uint64_t turn = 0;     // when it was last asked for, among all documents
  mutable DocumentFilePtr file;  // in the store's folder; null: its bytes are not kept
};
using DocumentPtr = std::shared_ptr<const StoredDocument>;

// Documents by tenant and name. A tenant sees only its own. Thread-safe.
//
// All tenants together have limits of memory and number. Kept documents and uploads under way of
// one tenant take at most its equal share: one part of as many as there are tenants. Transient
// documents take what is free. When there is no room, the store evicts transient documents that no
// request reads: of the tenant that holds most, first the one that was not asked for the longest;
// never of a tenant that holds less than the one that needs the room.
//
// With a folder, the bytes of kept documents are in its files, and the next process finds them
// (LoadDocuments). Transient documents have no file.
class DocumentStore {
 public:
  // Bytes counted for a document in addition to its token ids and title. The text itself is not in
  // memory.
  static constexpr size_t kMemoryPerDocument = 1024;

  // `folder`: null without --documents.
  explicit DocumentStore(const DocumentLimits& limits,
                         std::unique_ptr<DocumentFolder> folder = nullptr)
      : limits_(limits),
        folder_(std::move(folder)),
        room_(std::make_shared<StoreRoom>(limits.max_memory)) {}

  // The number of tenants that may upload, at least 1. Takes nothing from those that hold more than
  // their new share.
  void SetTenants(size_t tenants);

  DocumentFolder* folder() const { return folder_.get(); }  // null: there is none

  const DocumentLimits& limits() const { return limits_; }
  RoomLease NewLease(const TenantId& tenant) const { return {room_, tenant}; }
  size_t memory_used() const { return room_->used(); }
  size_t memory_most() const { return room_->most(); }
  int count() const;
  uint64_t evictions() const;

  // Checks whether a text of `size_bytes` may be uploaded now. OUT_OF_RANGE, with the numbers, if
  // it is too long; RESOURCE_EXHAUSTED if there are too many documents. Does not check memory,
  // which depends on the tokens and is known only as they arrive.
  absl::Status CheckRoom(const TenantId& tenant, bool transient, size_t size_bytes) const;

  // Sets the size of a lease of the tenant, and evicts what must go for it. RESOURCE_EXHAUSTED if
  // there is no room: with RetryInfo if uploads under way take it.
  absl::Status Resize(RoomLease& lease, const TenantId& tenant, size_t bytes);

  // Evicts the tenant's transient document that was not asked for the longest, unless requests read
  // all. Returns whether there was one.
  bool EvictOldest(const TenantId& tenant);

  // Stores a document. If the tenant has one with the same name and the same sha256, returns that
  // one, with its own title; it is kept from then on if one of the two is, and takes over notes if
  // it has none. ALREADY_EXISTS if the
  // tenant has another text under the name; RESOURCE_EXHAUSTED if there are too many documents.
  // Publishes the file of a kept document; if that fails, nothing is stored, and the errors are
  // those of DocumentFolder::Publish. The file of a document that is not stored is removed.
  absl::StatusOr<DocumentPtr> Add(std::shared_ptr<StoredDocument> document,
                                  const CancelFlag& cancel = CancelFlag::Never());

  // NOT_FOUND with ResourceInfo.
  absl::StatusOr<DocumentPtr> Get(const TenantId& tenant, absl::string_view name) const;
  // The same for a client that may name the document in a request: see Withdraw.
  absl::StatusOr<DocumentPtr> Promise(const TenantId& tenant, absl::string_view name) const;
  // The notes of a document; null: there are none.
  std::shared_ptr<const DocumentNotes> NotesOf(const DocumentPtr& document) const;
  struct Deleted {
    DocumentPtr document;
    bool last = false;  // whether the tenant has the same text under no other name
    // Not OK: the file may be left, and the document may come back at the next start. CANCELLED and
    // UNAVAILABLE: the file will be removed if the disk answers before the process ends.
    absl::Status file;
  };
  // Requests that read the document keep it alive until they end. NOT_FOUND with ResourceInfo.
  absl::StatusOr<Deleted> Delete(const TenantId& tenant, absl::string_view name,
                                 const CancelFlag& cancel = CancelFlag::Never());

  // Opens the text of a document, to be read by folder()->ReadNext. FAILED_PRECONDITION if its
  // bytes are not kept; errors of DocumentFolder::OpenTextOf.
  absl::StatusOr<OpenTextPtr> OpenTextOf(const DocumentPtr& document,
                                         const CancelFlag& cancel) const;

  // Deletes exactly this document, if it is still stored and not promised: nobody else was told
  // that it is there, by Promise or by an upload of the same text.
  void Withdraw(const DocumentPtr& document);
  // Deletes the document if it is transient and not promised, and no request reads it. NOT_FOUND
  // with ResourceInfo.
  absl::Status DeleteIfUnused(const TenantId& tenant, absl::string_view name);

  // Returns at most `count` of the tenant's documents, sorted by name, from the first name after
  // `after`.
  std::vector<DocumentPtr> List(const TenantId& tenant, absl::string_view after,
                                size_t count) const;

 private:
  using Key = std::pair<TenantId, std::string>;  // tenant and name
  struct Tenant {
    size_t documents = 0;
    size_t kept = 0;                                  // of them, those that are not transient
    std::set<std::pair<uint64_t, std::string>> idle;  // turns and names of the transient ones
  };
  enum class Scarce : uint8_t { kMemory, kNumber };

  // RESOURCE_EXHAUSTED if the tenant keeps its share of the number of documents.
  absl::Status CheckShareLocked(const TenantId& tenant) const;
  bool HasPlaceLocked() const;
  absl::Status CountFullError() const;
  absl::StatusOr<DocumentPtr> FindLocked(const TenantId& tenant, absl::string_view name) const;
  absl::Status KeepLocked(const DocumentPtr& document);
  absl::Status AddNotesLocked(const StoredDocument& from, const StoredDocument& to);
  // Publishes the file in place of the document's own, which lacks notes, and removes that one.
  absl::StatusOr<DocumentPtr> ReplaceFile(const DocumentPtr& document, const DocumentFilePtr& file,
                                          const CancelFlag& cancel);
  // Returns the stored document with the key of `document`, which it has become or equals.
  absl::StatusOr<DocumentPtr> AddLocked(const std::shared_ptr<StoredDocument>& document,
                                        DocumentPtr& evicted);
  void EraseLocked(std::map<Key, DocumentPtr>::iterator found);
  // Deletes exactly this document, if it is still stored, and its file later.
  void Drop(const DocumentPtr& document, bool unless_promised);
  void TouchLocked(const StoredDocument& document) const;
  size_t HeldLocked(const TenantId& tenant, Scarce scarce) const;
  // The document of the tenant to evict first; end() if there is none.
  std::map<Key, DocumentPtr>::iterator OldestLocked(const TenantId& tenant);
  // Evicts one document so that `tenant` gets what is scarce, and returns it for the caller to
  // destroy without the lock. Null if there is none to evict.
  DocumentPtr EvictLocked(const TenantId& tenant, Scarce scarce, size_t needed);

  const DocumentLimits limits_;
  const std::unique_ptr<DocumentFolder> folder_;
  const std::shared_ptr<StoreRoom> room_;
  mutable std::mutex mutex_;
  std::map<Key, DocumentPtr> documents_;
  mutable std::map<TenantId, Tenant> tenants_;  // those that have documents
  mutable uint64_t turn_ = 0;
  uint64_t evictions_ = 0;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_DOCUMENTS_DOCUMENT_STORE_H_
