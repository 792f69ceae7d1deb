#include "server/documents/document_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"

namespace annulus::server {
namespace {

constexpr size_t kLongestDocumentName = 128;

absl::Status DocumentNotFound(absl::string_view name) {
  return ResourceError(absl::StatusCode::kNotFound, v1::ERROR_REASON_DOCUMENT_NOT_FOUND, "document",
                       name,
                       absl::StrCat("there is no document ", QuoteName(name),
                                    "; upload it, or list the documents to see their names"));
}

absl::Status StoreFull(absl::string_view message, size_t needed, size_t limit) {
  return ReasonError(absl::StatusCode::kResourceExhausted, v1::ERROR_REASON_DOCUMENT_STORE_FULL,
                     message, {{"needed", absl::StrCat(needed)}, {"limit", absl::StrCat(limit)}});
}

absl::Status StoreFullError(size_t needed, const StoreRoom& room) {
  // Do not say how much is free: it would reveal how much other tenants use.
  return StoreFull(absl::StrCat("the document store is full: ", needed,
                                " bytes of memory are needed, but of its ", room.limit(),
                                " fewer are free; delete documents, or start the server with a "
                                "larger --max-documents-memory"),
                   needed, room.limit());
}

absl::Status ShareFullError(size_t needed, const StoreRoom& room) {
  if (room.tenants() == 1) return StoreFullError(needed, room);
  return StoreFull(absl::StrCat("the tenant's share of the document store is full: ", needed,
                                " bytes of memory are needed for one document, and all documents "
                                "of the tenant, uploads included, may take ",
                                room.share(), ", an equal share for each of ", room.tenants(),
                                " tenants; delete documents, or start the server with a larger "
                                "--max-documents-memory"),
                   needed, room.share());
}

}  // namespace

absl::Status CheckDocumentName(absl::string_view field, absl::string_view name) {
  bool allowed = !name.empty() && name.size() <= kLongestDocumentName &&
                 absl::ascii_isalnum(name.front()) && !absl::StrContains(name, "..");
  for (const char c : name) {
    allowed = allowed && (absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-');
  }
  if (allowed) return absl::OkStatus();
  return FieldError(field,
                    absl::StrCat("document name ", QuoteName(name),
                                 " is not allowed: 1 to 128 ASCII letters, digits, '.', "
                                 "'_' and '-', the first a letter or digit, without \"..\""));
}

int DocumentStore::count() const {
  std::lock_guard lock(mutex_);
  return static_cast<int>(documents_.size());
}

uint64_t DocumentStore::evictions() const {
  std::lock_guard lock(mutex_);
  return evictions_;
}

bool DocumentStore::HasPlaceLocked() const {
  return documents_.size() < static_cast<size_t>(limits_.max_documents);
}

absl::Status DocumentStore::CountFullError() const {
  return StoreFull(absl::StrCat("the document store is full: it holds ", limits_.max_documents,
                                " documents, the maximum; delete some, or start the server "
                                "with a larger --max-documents"),
                   1, static_cast<size_t>(limits_.max_documents));
}

absl::Status DocumentStore::CheckShareLocked(const TenantId& tenant) const {
  const auto found = tenants_.find(tenant);
  const size_t tenants = room_->tenants();
  const size_t share = std::max<size_t>(1, static_cast<size_t>(limits_.max_documents) / tenants);
  if (tenants == 1 || found == tenants_.end() || found->second.kept < share) {
    return absl::OkStatus();
  }
  return StoreFull(
      absl::StrCat("the tenant has ", found->second.kept, " documents, and its share of the ",
                   limits_.max_documents, " for ", tenants, " tenants is ", share,
                   "; delete some, or start the server with a larger --max-documents"),
      1, share);
}

absl::Status DocumentStore::CheckRoom(const TenantId& tenant, bool transient,
                                      size_t size_bytes) const {
  if (size_bytes > limits_.max_document_bytes) {
    return ReasonError(
        absl::StatusCode::kOutOfRange, v1::ERROR_REASON_DOCUMENT_TOO_LARGE,
        absl::StrCat("the document has ", size_bytes, " bytes, and this server accepts at most ",
                     limits_.max_document_bytes,
                     "; split it, or start the server with a larger --max-document-size"),
        {{"needed", absl::StrCat(size_bytes)},
         {"available", absl::StrCat(limits_.max_document_bytes)}});
  }
  std::lock_guard lock(mutex_);
  if (!transient) ANNULUS_RETURN_IF_ERROR(CheckShareLocked(tenant));
  if (HasPlaceLocked()) return absl::OkStatus();
  // Whether one can be evicted is known when the upload ends; here it is enough that one may be.
  for (const auto& [name, held] : tenants_) {
    if (!held.idle.empty()) return absl::OkStatus();
  }
  return CountFullError();
}

absl::Status DocumentStore::Resize(RoomLease& lease, const TenantId& tenant, size_t bytes) {
  while (true) {
    const RoomAnswer answer = lease.TryResize(bytes);
    if (answer == RoomAnswer::kGranted) return absl::OkStatus();
    const bool of_share =
        answer == RoomAnswer::kShareFull || answer == RoomAnswer::kShareFullForNow;
    const bool for_now =
        answer == RoomAnswer::kFullForNow || answer == RoomAnswer::kShareFullForNow;
    DocumentPtr evicted;  // destroyed without the lock
    if (!of_share) {
      std::lock_guard lock(mutex_);
      evicted = EvictLocked(tenant, Scarce::kMemory, bytes - lease.bytes());
    }
    if (evicted != nullptr) continue;
    absl::Status full = of_share ? ShareFullError(bytes, *room_) : StoreFullError(bytes, *room_);
    constexpr int64_t kRetryMilliseconds = 1000;  // uploads end soon, or are cut off
    return for_now ? WithRetry(std::move(full), kRetryMilliseconds) : full;
  }
}

bool DocumentStore::EvictOldest(const TenantId& tenant) {
  DocumentPtr evicted;  // destroyed without the lock
  std::lock_guard lock(mutex_);
  const auto oldest = OldestLocked(tenant);
  if (oldest == documents_.end()) return false;
  evicted = oldest->second;
  EraseLocked(oldest);
  ++evictions_;
  return true;
}

absl::StatusOr<DocumentPtr> DocumentStore::Add(std::shared_ptr<StoredDocument> document) {
  DocumentPtr evicted;  // destroyed without the lock
  std::lock_guard lock(mutex_);
  const auto existing = documents_.find({document->tenant, document->name});
  if (existing != documents_.end()) {
    if (existing->second->sha256 == document->sha256) {
      if (!document->transient) ANNULUS_RETURN_IF_ERROR(KeepLocked(existing->second));
      existing->second->promised = true;
      TouchLocked(*existing->second);
      return existing->second;
    }
    return ResourceError(absl::StatusCode::kAlreadyExists, v1::ERROR_REASON_DOCUMENT_EXISTS,
                         "document", document->name,
                         absl::StrCat("the document ", QuoteName(document->name),
                                      " holds another text; delete it first, or use another name"));
  }
  if (!document->transient) ANNULUS_RETURN_IF_ERROR(CheckShareLocked(document->tenant));
  if (!HasPlaceLocked()) evicted = EvictLocked(document->tenant, Scarce::kNumber, 1);
  if (!HasPlaceLocked()) return CountFullError();
  const RoomUse use = document->transient ? RoomUse::kTransient : RoomUse::kKept;
  if (!document->lease.TrySetUse(use)) return ShareFullError(document->lease.bytes(), *room_);
  DocumentPtr stored = std::move(document);
  documents_.emplace(Key(stored->tenant, stored->name), stored);
  Tenant& tenant = tenants_[stored->tenant];
  ++tenant.documents;
  tenant.kept += stored->transient ? 0 : 1;
  TouchLocked(*stored);
  return stored;
}

absl::Status DocumentStore::KeepLocked(const DocumentPtr& document) {
  if (!document->transient) return absl::OkStatus();
  ANNULUS_RETURN_IF_ERROR(CheckShareLocked(document->tenant));
  if (!document->lease.TrySetUse(RoomUse::kKept)) {
    return ShareFullError(document->lease.bytes(), *room_);
  }
  document->transient = false;
  Tenant& tenant = tenants_[document->tenant];
  tenant.idle.erase({document->turn, document->name});
  ++tenant.kept;
  return absl::OkStatus();
}

// The document was asked for: it is evicted after all others.
void DocumentStore::TouchLocked(const StoredDocument& document) const {
  if (!document.transient) return;
  auto& idle = tenants_[document.tenant].idle;
  idle.erase({document.turn, document.name});
  document.turn = ++turn_;
  idle.insert({document.turn, document.name});
}

void DocumentStore::EraseLocked(std::map<Key, DocumentPtr>::iterator found) {
  const StoredDocument& document = *found->second;
  const auto tenant = tenants_.find(document.tenant);
  if (document.transient) {
    tenant->second.idle.erase({document.turn, document.name});
  } else {
    --tenant->second.kept;
  }
  if (--tenant->second.documents == 0) tenants_.erase(tenant);
  documents_.erase(found);
}

size_t DocumentStore::HeldLocked(const TenantId& tenant, Scarce scarce) const {
  if (scarce == Scarce::kMemory) return room_->HeldBy(tenant);
  const auto found = tenants_.find(tenant);
  return found == tenants_.end() ? 0 : found->second.documents;
}

std::map<DocumentStore::Key, DocumentPtr>::iterator DocumentStore::OldestLocked(
    const TenantId& tenant) {
  const auto held = tenants_.find(tenant);
  if (held == tenants_.end()) return documents_.end();
  for (const auto& [turn, name] : held->second.idle) {
    const auto found = documents_.find({tenant, name});
    if (found->second.use_count() == 1) return found;  // nobody but the store has it
  }
  return documents_.end();
}

DocumentPtr DocumentStore::EvictLocked(const TenantId& tenant, Scarce scarce, size_t needed) {
  const size_t own = HeldLocked(tenant, scarce) + needed;
  auto chosen = documents_.end();
  size_t most = 0;
  for (const auto& [name, held] : tenants_) {
    const bool is_own = name == tenant;
    const size_t bytes = is_own ? own : HeldLocked(name, scarce);
    if (held.idle.empty() || bytes <= most || (!is_own && bytes <= own)) continue;
    const auto oldest = OldestLocked(name);
    if (oldest == documents_.end()) continue;
    chosen = oldest;
    most = bytes;
  }
  if (chosen == documents_.end()) return nullptr;
  DocumentPtr evicted = chosen->second;
  EraseLocked(chosen);
  ++evictions_;
  return evicted;
}

absl::StatusOr<DocumentPtr> DocumentStore::FindLocked(const TenantId& tenant,
                                                      absl::string_view name) const {
  const auto found = documents_.find({tenant, std::string(name)});
  if (found == documents_.end()) return DocumentNotFound(name);
  TouchLocked(*found->second);
  return found->second;
}

absl::StatusOr<DocumentPtr> DocumentStore::Get(const TenantId& tenant,
                                               absl::string_view name) const {
  std::lock_guard lock(mutex_);
  return FindLocked(tenant, name);
}

absl::StatusOr<DocumentPtr> DocumentStore::Promise(const TenantId& tenant,
                                                   absl::string_view name) const {
  std::lock_guard lock(mutex_);
  absl::StatusOr<DocumentPtr> found = FindLocked(tenant, name);
  if (found.ok()) (*found)->promised = true;
  return found;
}

absl::StatusOr<DocumentStore::Deleted> DocumentStore::Delete(const TenantId& tenant,
                                                             absl::string_view name) {
  std::lock_guard lock(mutex_);
  const auto found = documents_.find({tenant, std::string(name)});
  if (found == documents_.end()) return DocumentNotFound(name);
  Deleted deleted{found->second, true};  // its memory is freed outside the lock
  EraseLocked(found);
  for (auto other = documents_.lower_bound({tenant, ""});
       other != documents_.end() && other->first.first == tenant; ++other) {
    if (other->second->sha256 == deleted.document->sha256) deleted.last = false;
  }
  return deleted;
}

void DocumentStore::Withdraw(const DocumentPtr& document) {
  std::lock_guard lock(mutex_);
  const auto found = documents_.find({document->tenant, document->name});
  if (found == documents_.end() || found->second != document) return;
  if (!document->promised) EraseLocked(found);
}

absl::Status DocumentStore::DeleteIfUnused(const TenantId& tenant, absl::string_view name) {
  DocumentPtr deleted;  // its memory is freed outside the lock
  std::lock_guard lock(mutex_);
  const auto found = documents_.find({tenant, std::string(name)});
  if (found == documents_.end()) return DocumentNotFound(name);
  const StoredDocument& document = *found->second;
  if (!document.transient || document.promised || found->second.use_count() > 1) {
    return absl::OkStatus();
  }
  deleted = found->second;
  EraseLocked(found);
  return absl::OkStatus();
}

std::vector<DocumentPtr> DocumentStore::List(const TenantId& tenant, absl::string_view after,
                                             size_t count) const {
  std::lock_guard lock(mutex_);
  std::vector<DocumentPtr> listed;
  for (auto it = documents_.upper_bound({tenant, std::string(after)});
       it != documents_.end() && it->first.first == tenant && listed.size() < count; ++it) {
    listed.push_back(it->second);
  }
  return listed;
}

}  // namespace annulus::server
