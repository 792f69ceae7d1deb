#include "server/generation/document_download.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/documents/document_name.h"

namespace annulus::server {
namespace {

constexpr int64_t kRetryShareMs = 500;

absl::Status ShareIsFull(size_t limit) {
  return WithRetry(
      ReasonError(absl::StatusCode::kResourceExhausted, v1::ERROR_REASON_QUEUE_FULL,
                  absl::StrCat("your downloads under way may take ", limit,
                               " bytes of memory together, and one more exceeds that; try again "
                               "when one of them has ended"),
                  {{"limit", absl::StrCat(limit)}}),
      kRetryShareMs);
}

}  // namespace

absl::Status DocumentDownload::Reserve(const CallContext& call) {
  share_.emplace(context_.downloads.Of(ClientOf(call)));
  if (!share_->TryResize(kDownloadMemory)) return ShareIsFull(share_->budget().limit());
  return memory_.Hold(CallMemory::kKept, kDownloadMemory);
}

absl::StatusOr<DocumentPtr> DocumentDownload::Open(const TenantId& tenant, absl::string_view field,
                                                   absl::string_view name,
                                                   const CancelFlag& cancel) {
  ANNULUS_RETURN_IF_ERROR(context_.CheckDocumentsLoaded());
  ANNULUS_RETURN_IF_ERROR(CheckDocumentName(field, name));
  ANNULUS_ASSIGN_OR_RETURN(const DocumentPtr document, context_.documents.Promise(tenant, name));
  ANNULUS_ASSIGN_OR_RETURN(text_, context_.documents.OpenTextOf(document, cancel));
  return document;
}

absl::StatusOr<std::string> DocumentDownload::ReadPart(const CancelFlag& cancel) {
  std::string part;
  part.reserve(kDownloadBytes);
  while (part.size() < kDownloadBytes) {
    ANNULUS_ASSIGN_OR_RETURN(const std::string block,
                             context_.documents.folder()->ReadNext(text_, cancel));
    if (block.empty()) break;
    part.append(block);
  }
  return part;
}

}  // namespace annulus::server
