#ifndef ANNULUS_SERVER_GENERATION_STORED_DOCUMENTS_H_
#define ANNULUS_SERVER_GENERATION_STORED_DOCUMENTS_H_

// What calls about stored documents do, whichever transport carried them.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/documents/upload.h"
#include "server/generation/service_context.h"

namespace annulus::server {

// Counts and logs the end of an upload. `result` is set if `status` is OK.
void NoteUpload(ServiceContext& context, const Caller& caller, const absl::Status& status,
                const Upload::Result& result);

// How much of each of the tenant's documents is in memory and on disk, in their order; nothing
// while there is no engine. CANCELLED.
absl::StatusOr<std::vector<KeptDocument>> FindKept(ServiceContext& context, const TenantId& tenant,
                                                   const std::vector<DocumentPtr>& documents,
                                                   const CancelFlag& cancel);

// Deletes the tenant's document, and unless it has the same text under another name, the keys and
// values of all prompts with it. May take long: looks at every page in --kv-disk, and waits for the
// disk. NOT_FOUND with ResourceInfo; INTERNAL if files may be left; CANCELLED.
absl::Status DeleteStoredDocument(ServiceContext& context, const TenantId& tenant,
                                  const std::string& name, const CancelFlag& cancel);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GENERATION_STORED_DOCUMENTS_H_
