#include "server/generation/stored_documents.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace annulus::server {

void NoteUpload(ServiceContext& context, const Caller& caller, const absl::Status& status,
                const Upload::Result& result) {
  if (status.ok()) {
    context.log.FromClient(LogLevel::kInfo, "document_uploaded",
                           {{"tenant", caller.tenant.name()},
                            {"bytes", result.document->size_bytes},
                            {"tokens", result.document->tokens.size()},
                            {"new", result.created ? "yes" : "no"}});
  }
  context.metrics.CountUpload(status.ok() ? result.document.get() : nullptr, result.created);
}

absl::StatusOr<std::vector<KeptDocument>> FindKept(ServiceContext& context, const TenantId& tenant,
                                                   const std::vector<DocumentPtr>& documents,
                                                   const CancelFlag& cancel) {
  const absl::StatusOr<Engine*> engine = context.lifecycle.engine();
  if (!engine.ok()) return std::vector<KeptDocument>(documents.size());
  std::vector<std::string> contents;
  for (const DocumentPtr& document : documents) contents.push_back(document->sha256);
  return (*engine)->FindDocuments(tenant, contents, cancel);
}

absl::Status DeleteStoredDocument(ServiceContext& context, const TenantId& tenant,
                                  const std::string& name, const CancelFlag& cancel) {
  ANNULUS_ASSIGN_OR_RETURN(const DocumentStore::Deleted deleted,
                           context.documents.Delete(tenant, name, cancel));
  const absl::StatusOr<Engine*> engine = context.lifecycle.engine();
  const absl::Status forgotten =
      deleted.last && engine.ok()
          ? (*engine)->ForgetDocument(tenant, deleted.document->sha256, cancel)
          : absl::OkStatus();
  if (absl::IsCancelled(forgotten)) return forgotten;
  // INTERNAL, so the client learns only of a fault and the log has the reason. Not UNAVAILABLE,
  // because a retry would find no document.
  if (!deleted.file.ok()) {
    return absl::InternalError(
        absl::StrCat("the document is deleted, but its file in --documents may be left, and then "
                     "the next start finds it: ",
                     deleted.file.message()));
  }
  if (forgotten.ok()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(
      "the document is deleted, but not yet all of its pages in kv-disk: ", forgotten.message()));
}

}  // namespace annulus::server
