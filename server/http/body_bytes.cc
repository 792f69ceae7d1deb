#include "server/http/body_bytes.h"

#include <algorithm>

#include "kernels/base/status_macros.h"

namespace annulus::server {
namespace {

// A piece's block in the heap, and its place in the list.
constexpr size_t kPieceBytes = BodyBytes::kPiece + 128;
// The list itself, which allocates its entries in blocks.
constexpr size_t kListBytes = 1536;

}  // namespace

absl::Status BodyBytes::Append(absl::string_view bytes) {
  const size_t pieces = (size_ + bytes.size() + kPiece - 1) / kPiece;
  if (pieces > pieces_.size()) {
    ANNULUS_RETURN_IF_ERROR(memory_.Hold(CallMemory::kReceived, kListBytes + pieces * kPieceBytes));
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
