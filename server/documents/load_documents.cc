#include "server/documents/load_documents.h"

#include "kernels/base/guarded.h"
#include "kernels/base/status_macros.h"
#include "server/documents/upload.h"

namespace annulus::server {
namespace {

absl::Status LoadOne(DocumentStore& store, const Engine& engine,
                     const std::shared_ptr<QuotaBook>& quotas, const DocumentFilePtr& file,
                     const CancelFlag& cancel, LoadedDocuments& loaded) {
  ANNULUS_ASSIGN_OR_RETURN(const OpenTextPtr text, store.folder()->OpenTextOf(file, cancel));
  const FileFacts& facts = DocumentFolder::FactsOf(*text);
  if (store.Get(facts.tenant, facts.name).ok()) {
    ++loaded.older;
    return store.folder()->Remove(file, cancel);
  }
  store.folder()->Count(file, facts);
  const Caller without_quotas{.tenant = facts.tenant, .roles = {}, .quotas = {}};
  Upload upload(store, engine, facts.tenant, cancel, DocumentShare(quotas, without_quotas));
  ANNULUS_ASSIGN_OR_RETURN(const DocumentPtr document, upload.Restore(file, text));
  ++loaded.documents;
  loaded.bytes += document->size_bytes;
  loaded.tokens += document->tokens.size();
  return absl::OkStatus();
}

}  // namespace

LoadedDocuments LoadDocuments(
    DocumentStore& store, const Engine& engine, const std::shared_ptr<QuotaBook>& quotas,
    const CancelFlag& cancel,
    const std::function<void(const std::string& path, const absl::Status& why)>& lost) {
  LoadedDocuments loaded;
  if (store.folder() == nullptr) return loaded;
  // The latest upload of a name comes first, and is the one that counts.
  for (const DocumentFilePtr& file : store.folder()->found()) {
    if (cancel.cancelled()) return loaded;
    const absl::Status status =
        Guarded([&] { return LoadOne(store, engine, quotas, file, cancel, loaded); },
                [] { return absl::ResourceExhaustedError("no memory is left for it"); });
    if (status.ok() || cancel.cancelled()) continue;
    ++loaded.lost;
    store.folder()->CountLost(file, cancel);
    lost(DocumentFolder::PathOf(*file), status);
  }
  return loaded;
}

}  // namespace annulus::server
