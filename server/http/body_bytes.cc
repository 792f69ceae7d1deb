#include "server/http/body_bytes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"

namespace annulus::server {
namespace {

// A piece's block in the heap, and its place in the list.
constexpr size_t kPieceBytes = BodyBytes::kPiece + 128;
// The list itself, which allocates its entries in blocks.
constexpr size_t kListBytes = 1536;

constexpr int64_t kRetryShareMs = 500;

absl::Status ShareIsFull(size_t limit) {
  return WithRetry(
      ReasonError(
          absl::StatusCode::kResourceExhausted, v1::ERROR_REASON_QUEUE_FULL,
          absl::StrCat("the bodies of your requests that have not come whole may take ", limit,
                       " bytes of memory together, and this one exceeds that; send "
                       "fewer long requests at a time"),
          {{"limit", absl::StrCat(limit)}}),
      kRetryShareMs);
}

}  // namespace

BodyBytes::BodyBytes(std::shared_ptr<MemoryBudget> budget, std::shared_ptr<MemoryBudget> share)
    : memory_(std::move(budget)) {
  if (share != nullptr) share_.emplace(std::move(share));
}

size_t BodyBytes::MemoryOf(size_t size) {
  return kListBytes + (size + kPiece - 1) / kPiece * kPieceBytes;
}

absl::Status BodyBytes::Append(absl::string_view bytes) {
  const size_t needed = MemoryOf(size_ + bytes.size());
  if (needed > memory_.held()) {
    if (share_.has_value() && !share_->TryResize(needed)) {
      return ShareIsFull(share_->budget().limit());
    }
    ANNULUS_RETURN_IF_ERROR(memory_.Hold(CallMemory::kReceived, needed));
  }
  size_ += bytes.size();
  while (!bytes.empty()) {
    if (pieces_.empty() || pieces_.back().size() == kPiece) {
      pieces_.emplace_back().reserve(kPiece);
    }
    std::string& last = pieces_.back();
    const size_t count = std::min(bytes.size(), kPiece - last.size());
    last.append(bytes.data(), count);
    bytes.remove_prefix(count);
  }
  return absl::OkStatus();
}

}  // namespace annulus::server
