#ifndef ANNULUS_SERVER_GENERATION_DOCUMENT_DOWNLOAD_H_
#define ANNULUS_SERVER_GENERATION_DOCUMENT_DOWNLOAD_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/documents/document_store.h"
#include "server/generation/service_context.h"
#include "server/work/call_memory.h"

namespace annulus::server {

// The bytes of a stored document on their way to a client, whichever transport carries them: read
// from --documents a part at a time. Not thread-safe: call Reserve first, then Open, then ReadPart.
class DocumentDownload {
 public:
  // `context` must outlive the download.
  explicit DocumentDownload(ServiceContext& context)
      : context_(context), memory_(context.prompts) {}

  // Takes the memory that a download needs until it is destroyed. RESOURCE_EXHAUSTED if the
  // client's downloads together, or all requests, hold too much.
  absl::Status Reserve(const CallContext& call);

  // Finds the document and opens its text. INVALID_ARGUMENT about `field` if this can be no name;
  // UNAVAILABLE while documents are being loaded; errors of DocumentStore::Promise and OpenTextOf.
  absl::StatusOr<DocumentPtr> Open(const TenantId& tenant, absl::string_view field,
                                   absl::string_view name, const CancelFlag& cancel);

  // Returns the next bytes, at most kDownloadBytes; empty at the end. Errors of
  // DocumentFolder::ReadNext.
  absl::StatusOr<std::string> ReadPart(const CancelFlag& cancel);

  // Memory of the call.
  CallMemory& memory() { return memory_; }

 private:
  ServiceContext& context_;
  CallMemory memory_;
  std::optional<MemoryLease> share_;  // of the client's downloads
  OpenTextPtr text_;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GENERATION_DOCUMENT_DOWNLOAD_H_
