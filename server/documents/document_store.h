#ifndef ANNULUS_SERVER_DOCUMENTS_DOCUMENT_STORE_H_
#define ANNULUS_SERVER_DOCUMENTS_DOCUMENT_STORE_H_

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/api.h"
#include "server/base/memory_budget.h"
#include "server/config/server_config.h"
#include "server/identity/quota_book.h"

namespace annulus::server {

// A stored document. Its content never changes. Requests share ownership, so the memory of a
// deleted document is freed when the last request that reads it ends.
struct StoredDocument {
  TenantId tenant;
  std::string name;
  size_t size_bytes = 0;  // as UTF-8
  std::string sha256;     // 64 lower-case hexadecimal digits
  std::vector<int32_t> tokens;
  SteadyTime stored_at;
  MemoryLease lease;
  std::string title;            // UTF-8, may be empty
  bool holds_end_mark = false;  // see TextStream
  DocumentShare share;          // its part of the tenant's quota
  // When a request last named it; equals stored_at if none has.
  mutable std::atomic<SteadyTime> last_used = stored_at;
  mutable bool promised = false;  // see DocumentStore::Withdraw; guarded by the store's mutex
};
using DocumentPtr = std::shared_ptr<const StoredDocument>;

// INVALID_ARGUMENT, naming `field`, unless `name` consists of 1 to 128 characters [A-Za-z0-9._-],
// begins with a letter or digit and does not contain "..".
absl::Status CheckDocumentName(absl::string_view field, absl::string_view name);

// Documents by tenant and name. A tenant sees only its own; the limits are for all tenants
// together. Thread-safe.
class DocumentStore {
 public:
  // Bytes counted for a document in addition to its token ids and title. The text itself is not
  // kept.
  static constexpr size_t kMemoryPerDocument = 1024;

  explicit DocumentStore(const DocumentLimits& limits)
      : limits_(limits), budget_(std::make_shared<MemoryBudget>(limits.max_memory)) {}

  const DocumentLimits& limits() const { return limits_; }
  MemoryLease NewLease() const { return MemoryLease(budget_); }
  size_t memory_used() const { return budget_->used(); }
  size_t memory_most() const { return budget_->most(); }
  int count() const;

  // Checks whether a text of `size_bytes` may be uploaded now. OUT_OF_RANGE, with the numbers, if
  // it is too long; RESOURCE_EXHAUSTED if there are too many documents. Does not check memory,
  // which depends on the tokens and is known only as they arrive.
  absl::Status CheckRoom(size_t size_bytes) const;

  // Stores a document. If the tenant has one with the same name and the same sha256, returns that
  // one, with its own title. ALREADY_EXISTS if the tenant has another text under the name;
  // RESOURCE_EXHAUSTED if there are too many documents.
  absl::StatusOr<DocumentPtr> Add(std::shared_ptr<StoredDocument> document);

  // NOT_FOUND with ResourceInfo.
  absl::StatusOr<DocumentPtr> Get(const TenantId& tenant, absl::string_view name) const;
  struct Deleted {
    DocumentPtr document;
    bool last = false;  // whether the tenant has the same text under no other name
  };
  // Requests that read the document keep it alive until they end. NOT_FOUND with ResourceInfo.
  absl::StatusOr<Deleted> Delete(const TenantId& tenant, absl::string_view name);

  // Deletes exactly this document, if it is still stored, and if Add has not returned it to another
  // upload of the same text.
  void Withdraw(const DocumentPtr& document);

  // Returns at most `count` of the tenant's documents, sorted by name, from the first name after
  // `after`.
  std::vector<DocumentPtr> List(const TenantId& tenant, absl::string_view after,
                                size_t count) const;

 private:
  absl::Status CheckCountLocked() const;

  const DocumentLimits limits_;
  const std::shared_ptr<MemoryBudget> budget_;
  mutable std::mutex mutex_;
  std::map<std::pair<TenantId, std::string>, DocumentPtr> documents_;
};

// RESOURCE_EXHAUSTED: the store has no room for `needed` bytes.
absl::Status StoreFullError(size_t needed, const MemoryBudget& budget);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_DOCUMENTS_DOCUMENT_STORE_H_
