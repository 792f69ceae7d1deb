#ifndef ANNULUS_SERVER_HTTP_BODY_BYTES_H_
#define ANNULUS_SERVER_HTTP_BODY_BYTES_H_

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/base/memory_budget.h"
#include "server/work/call_memory.h"

namespace annulus::server {

// The body of a request, in pieces, so that it never moves while it grows. Holds memory of
// --max-prompts-memory, as CallMemory::kReceived, before it takes bytes. Not thread-safe.
class BodyBytes {
 public:
  static constexpr size_t kPiece = size_t{16} << 10;

  // `share`: what bodies of one client may hold together while they come; null: all of the budget.
  explicit BodyBytes(std::shared_ptr<MemoryBudget> budget,
                     std::shared_ptr<MemoryBudget> share = nullptr);

  // Errors of CallMemory::Hold, and RESOURCE_EXHAUSTED if the share is used up; then nothing was
  // added.
  absl::Status Append(absl::string_view bytes);

  // The memory that a body of this size takes.
  static size_t MemoryOf(size_t size);

  size_t size() const { return size_; }
  // The memory that it takes.
  size_t held_bytes() const { return memory_.held(); }

  // Passes on what holds the memory, to a call that must keep the bytes no longer than it holds it.
  CallMemory TakeMemory() { return std::move(memory_); }
  // Takes the pieces, in order; each but the last has kPiece bytes.
  std::deque<std::string> TakePieces() { return std::move(pieces_); }

 private:
  CallMemory memory_;
  std::optional<MemoryLease> share_;
  std::deque<std::string> pieces_;
  size_t size_ = 0;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_BODY_BYTES_H_
