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

absl::Status StoreFullError(size_t needed, const MemoryBudget& budget) {
  // Do not say how much is free: it would reveal how much other tenants use.
  return ReasonError(absl::StatusCode::kResourceExhausted, v1::ERROR_REASON_DOCUMENT_STORE_FULL,
                     absl::StrCat("the document store is full: ", needed,
                                  " bytes of memory are needed, and of its ", budget.limit(),
                                  " fewer are free; delete documents, or start the server with a "
                                  "larger --max-documents-memory"),
                     {{"needed", absl::StrCat(needed)}, {"limit", absl::StrCat(budget.limit())}});
}

int DocumentStore::count() const {
  std::lock_guard lock(mutex_);
  return static_cast<int>(documents_.size());
}

absl::Status DocumentStore::CheckCountLocked() const {
  if (documents_.size() < static_cast<size_t>(limits_.max_documents)) return absl::OkStatus();
  return ReasonError(absl::StatusCode::kResourceExhausted, v1::ERROR_REASON_DOCUMENT_STORE_FULL,
                     absl::StrCat("the document store is full: it holds ", limits_.max_documents,
                                  " documents, the most allowed; delete some, or start the server "
                                  "with a larger --max-documents"),
                     {{"needed", "1"}, {"limit", absl::StrCat(limits_.max_documents)}});
}

absl::Status DocumentStore::CheckRoom(size_t size_bytes) const {
  if (size_bytes > limits_.max_document_bytes) {
    return ReasonError(
        absl::StatusCode::kOutOfRange, v1::ERROR_REASON_DOCUMENT_TOO_LARGE,
        absl::StrCat("the document has ", size_bytes, " bytes, and this server takes at most ",
                     limits_.max_document_bytes,
                     "; split it, or start the server with a larger --max-document-size"),
        {{"needed", absl::StrCat(size_bytes)},
         {"available", absl::StrCat(limits_.max_document_bytes)}});
  }
  std::lock_guard lock(mutex_);
  return CheckCountLocked();
}

absl::StatusOr<DocumentPtr> DocumentStore::Add(std::shared_ptr<StoredDocument> document) {
  std::lock_guard lock(mutex_);
  const auto existing = documents_.find({document->tenant, document->name});
  if (existing != documents_.end()) {
    if (existing->second->sha256 == document->sha256) {
      existing->second->promised = true;
      return existing->second;
    }
    return ResourceError(absl::StatusCode::kAlreadyExists, v1::ERROR_REASON_DOCUMENT_EXISTS,
                         "document", document->name,
                         absl::StrCat("the document ", QuoteName(document->name),
                                      " holds another text; delete it first, or use another name"));
  }
  ANNULUS_RETURN_IF_ERROR(CheckCountLocked());
  DocumentPtr stored = std::move(document);
  documents_.emplace(std::pair(stored->tenant, stored->name), stored);
  return stored;
}

absl::StatusOr<DocumentPtr> DocumentStore::Get(const TenantId& tenant,
                                               absl::string_view name) const {
  std::lock_guard lock(mutex_);
  const auto found = documents_.find({tenant, std::string(name)});
  if (found == documents_.end()) return DocumentNotFound(name);
  return found->second;
}

absl::StatusOr<DocumentStore::Deleted> DocumentStore::Delete(const TenantId& tenant,
                                                             absl::string_view name) {
  std::lock_guard lock(mutex_);
  const auto found = documents_.find({tenant, std::string(name)});
  if (found == documents_.end()) return DocumentNotFound(name);
  Deleted deleted{std::move(found->second), true};  // its memory is freed outside the lock
  documents_.erase(found);
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
  // Keep it if another upload of the same text was told that it is stored.
  if (!document->promised) documents_.erase(found);
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
