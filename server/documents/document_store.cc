#include "server/documents/document_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"

namespace annulus::server {
namespace {

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

}  // namespace

void DocumentStore::SetTenants(size_t tenants) {
  room_->SetTenants(tenants);
  if (folder_ != nullptr) folder_->SetTenants(tenants);
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
    DocumentPtr evicted;  // destroyed without the lock
    if (!of_share) {
      std::lock_guard lock(mutex_);
      evicted = EvictLocked(tenant, Scarce::kMemory, bytes - lease.bytes());
    }
    if (evicted == nullptr) return RoomFullError(answer, bytes, *room_);
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

absl::StatusOr<DocumentPtr> DocumentStore::Add(std::shared_ptr<StoredDocument> document,
                                               const CancelFlag& cancel) {
  // The file of a restored document has its name already, and stays whatever happens.
  const bool restored = document->lease.use() == RoomUse::kRestored;
  const DocumentFilePtr own = restored ? nullptr : document->file;
  const std::shared_ptr<const DocumentNotes> notes = document->notes;
  DocumentFilePtr file;
  absl::StatusOr<DocumentPtr> stored;
  bool has_our_notes = false;
  {
    DocumentPtr evicted;  // destroyed without the lock
    std::lock_guard lock(mutex_);
    stored = AddLocked(document, evicted);
    if (stored.ok()) {
      file = (*stored)->file;
      has_our_notes = notes != nullptr && (*stored)->notes == notes;
    }
  }
  if (own != nullptr && own != file && has_our_notes) return ReplaceFile(*stored, own, cancel);
  if (own != nullptr && own != file) folder_->RemoveLater(own);
  if (!stored.ok() || file == nullptr || restored) return stored;
  // Also if another upload has stored it, which may not have come so far.
  const absl::Status published = folder_->Publish(file, cancel);
  if (published.ok()) return stored;
  // If the wait ended early, the file may get its name all the same, and others may count on it.
  const bool ended_early = absl::IsCancelled(published) || absl::IsUnavailable(published);
  if (own == file) Drop(*stored, /*unless_promised=*/ended_early);
  return published;
}

absl::StatusOr<DocumentPtr> DocumentStore::AddLocked(
    const std::shared_ptr<StoredDocument>& document, DocumentPtr& evicted) {
  const auto existing = documents_.find({document->tenant, document->name});
  if (existing != documents_.end()) {
    const DocumentPtr& stored = existing->second;
    if (stored->sha256 == document->sha256) {
      if (!document->transient) ANNULUS_RETURN_IF_ERROR(KeepLocked(stored));
      ANNULUS_RETURN_IF_ERROR(AddNotesLocked(*document, *stored));
      if (stored->file == nullptr) stored->file = document->file;
      stored->has_bytes = stored->file != nullptr;
      stored->promised = true;
      TouchLocked(*stored);
      return stored;
    }
    return ResourceError(absl::StatusCode::kAlreadyExists, v1::ERROR_REASON_DOCUMENT_EXISTS,
                         "document", document->name,
                         absl::StrCat("the document ", QuoteName(document->name),
                                      " holds another text; delete it first, or use another name"));
  }
  const bool restored = document->lease.use() == RoomUse::kRestored;
  if (!document->transient && !restored) {
    ANNULUS_RETURN_IF_ERROR(CheckShareLocked(document->tenant));
  }
  if (!HasPlaceLocked()) evicted = EvictLocked(document->tenant, Scarce::kNumber, 1);
  if (!HasPlaceLocked()) return CountFullError();
  const RoomUse use = document->transient ? RoomUse::kTransient : RoomUse::kKept;
  if (!restored && !document->lease.TrySetUse(use)) {
    return RoomFullError(RoomAnswer::kShareFull, document->lease.bytes(), *room_);
  }
  document->has_bytes = document->file != nullptr;
  const DocumentPtr stored = document;
  documents_.emplace(Key(stored->tenant, stored->name), stored);
  Tenant& tenant = tenants_[stored->tenant];
  ++tenant.documents;
  tenant.kept += stored->transient ? 0 : 1;
  TouchLocked(*stored);
  return stored;
}

absl::Status DocumentStore::AddNotesLocked(const StoredDocument& from, const StoredDocument& to) {
  if (from.notes == nullptr || to.notes != nullptr) return absl::OkStatus();
  const size_t bytes = from.notes->memory_bytes();
  ANNULUS_CHECK(from.lease.TryResize(from.lease.bytes() - bytes) == RoomAnswer::kGranted);
  const size_t needed = to.lease.bytes() + bytes;
  const RoomAnswer answer = to.lease.TryResize(needed);
  if (answer != RoomAnswer::kGranted) return RoomFullError(answer, needed, *room_);
  to.notes = from.notes;
  to.has_text = to.notes->keeps_text;
  return absl::OkStatus();
}

// Until the new file has its name, the old one is what the next process finds; if both are there,
// the new one counts.
absl::StatusOr<DocumentPtr> DocumentStore::ReplaceFile(const DocumentPtr& document,
                                                       const DocumentFilePtr& file,
                                                       const CancelFlag& cancel) {
  const absl::Status published = folder_->Publish(file, cancel);
  DocumentFilePtr old = file;
  if (published.ok()) {
    std::lock_guard lock(mutex_);
    const auto found = documents_.find({document->tenant, document->name});
    if (found != documents_.end() && found->second == document) {
      old = std::exchange(document->file, file);
    }
  }
  folder_->RemoveLater(std::move(old));
  if (!published.ok()) return published;
  return document;
}

void DocumentStore::Drop(const DocumentPtr& document, bool unless_promised) {
  DocumentFilePtr file;
  {
    std::lock_guard lock(mutex_);
    const auto found = documents_.find({document->tenant, document->name});
    if (found == documents_.end() || found->second != document) return;
    if (unless_promised && document->promised) return;
    file = document->file;
    EraseLocked(found);
  }
  if (file != nullptr) folder_->RemoveLater(std::move(file));
}

absl::Status DocumentStore::KeepLocked(const DocumentPtr& document) {
  if (!document->transient) return absl::OkStatus();
  ANNULUS_RETURN_IF_ERROR(CheckShareLocked(document->tenant));
  if (!document->lease.TrySetUse(RoomUse::kKept)) {
    return RoomFullError(RoomAnswer::kShareFull, document->lease.bytes(), *room_);
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

std::shared_ptr<const DocumentNotes> DocumentStore::NotesOf(const DocumentPtr& document) const {
  std::lock_guard lock(mutex_);
  return document->notes;
}

absl::StatusOr<DocumentStore::Deleted> DocumentStore::Delete(const TenantId& tenant,
                                                             absl::string_view name,
                                                             const CancelFlag& cancel) {
  Deleted deleted;
  DocumentFilePtr file;
  {
    std::lock_guard lock(mutex_);
    const auto found = documents_.find({tenant, std::string(name)});
    if (found == documents_.end()) return DocumentNotFound(name);
    deleted = {found->second, true, absl::OkStatus()};  // its memory is freed outside the lock
    file = found->second->file;
    EraseLocked(found);
    for (auto other = documents_.lower_bound({tenant, ""});
         other != documents_.end() && other->first.first == tenant; ++other) {
      if (other->second->sha256 == deleted.document->sha256) deleted.last = false;
    }
  }
  if (file == nullptr) return deleted;
  deleted.file = folder_->Remove(file, cancel);
  // If the wait ended early, the removal may never have begun, and nobody can ask for it again.
  const bool ended_early = absl::IsCancelled(deleted.file) || absl::IsUnavailable(deleted.file);
  if (ended_early) folder_->RemoveLater(std::move(file));
  return deleted;
}

absl::StatusOr<OpenTextPtr> DocumentStore::OpenTextOf(const DocumentPtr& document,
                                                      const CancelFlag& cancel) const {
  DocumentFilePtr file;
  {
    std::lock_guard lock(mutex_);
    file = document->file;
  }
  if (file != nullptr) return folder_->OpenTextOf(file, cancel);
  return ReasonError(
      absl::StatusCode::kFailedPrecondition, v1::ERROR_REASON_DOCUMENT_NOT_KEPT,
      absl::StrCat("the server does not keep the bytes of ", QuoteName(document->name), ": ",
                   folder_ == nullptr
                       ? "start it with --documents DIR, then upload the document again"
                       : "it was uploaded as transient; upload it as a document that stays"));
}

void DocumentStore::Withdraw(const DocumentPtr& document) {
  Drop(document, /*unless_promised=*/true);
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
