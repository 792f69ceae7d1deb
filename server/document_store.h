#ifndef ANNULUS_SERVER_DOCUMENT_STORE_H_
#define ANNULUS_SERVER_DOCUMENT_STORE_H_

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
#include "server/identity/quota_book.h"
#include "server/memory_budget.h"

namespace annulus {

// Never changes once stored. Requests share ownership, so a deleted document's memory is given back
// when the last request that reads it has ended.
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
  DocumentShare share;          // of its tenant's quota
  // When a request last named it; stored_at: none has.
  mutable std::atomic<SteadyTime> last_used = stored_at;
  mutable bool promised = false;  // see DocumentStore::Withdraw, whose lock guards it
};
using DocumentPtr = std::shared_ptr<const StoredDocument>;

struct DocumentLimits {
  size_t max_document_bytes = 0;
  size_t max_memory = 0;  // bytes of all documents and uploads
  int max_documents = 0;
};

// INVALID_ARGUMENT unless `name` has 1 to 128 of [A-Za-z0-9._-], begins with a letter or digit and
// has no "..". `field` is named in the error.
absl::Status CheckDocumentName(absl::string_view field, absl::string_view name);

// Documents by tenant and name. A tenant sees its own alone; all share the limits. Thread-safe.
class DocumentStore {
 public:
  // Beside its token ids, which are all that is kept of a text, and its title.
  static constexpr size_t kMemoryPerDocument = 1024;

  explicit DocumentStore(const DocumentLimits& limits)
      : limits_(limits), budget_(std::make_shared<MemoryBudget>(limits.max_memory)) {}

  const DocumentLimits& limits() const { return limits_; }
  MemoryLease NewLease() const { return MemoryLease(budget_); }
  size_t memory_used() const { return budget_->used(); }
  size_t memory_most() const { return budget_->most(); }
  int count() const;

  // Whether a text of `size_bytes` may be uploaded now. OUT_OF_RANGE: it is too long, with needed
  // and available numbers; RESOURCE_EXHAUSTED: there are too many documents. What its tokens take
  // is known only as they come.
  absl::Status CheckRoom(size_t size_bytes) const;

  // Stores a document. The tenant's same name with the same sha256 gives the one that is there
  // already; another text under that name is ALREADY_EXISTS; too many documents are
  // RESOURCE_EXHAUSTED.
  absl::StatusOr<DocumentPtr> Add(std::shared_ptr<StoredDocument> document);

  // NOT_FOUND with ResourceInfo.
  absl::StatusOr<DocumentPtr> Get(const TenantId& tenant, absl::string_view name) const;
  struct Deleted {
    DocumentPtr document;
    bool last = false;  // the tenant has its text under no other name
  };
  absl::StatusOr<Deleted> Delete(const TenantId& tenant, absl::string_view name);

  // Deletes exactly this document, if it is still there and nobody else was told that it is.
  void Withdraw(const DocumentPtr& document);

  // At most `count` of the tenant's documents with names after `after`, in the order of their
  // names.
  std::vector<DocumentPtr> List(const TenantId& tenant, absl::string_view after,
                                size_t count) const;

 private:
  absl::Status CheckCountLocked() const;

  const DocumentLimits limits_;
  const std::shared_ptr<MemoryBudget> budget_;
  mutable std::mutex mutex_;
  std::map<std::pair<TenantId, std::string>, DocumentPtr> documents_;
};

// RESOURCE_EXHAUSTED: the store has no room for `needed` more bytes.
absl::Status StoreFullError(size_t needed, const MemoryBudget& budget);

}  // namespace annulus

#endif  // ANNULUS_SERVER_DOCUMENT_STORE_H_
