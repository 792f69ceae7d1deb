#include "server/work/call_memory.h"

#include "absl/strings/str_cat.h"
#include "server/base/errors.h"
#include "server/process/memory_reserve.h"

namespace annulus::server {
namespace {

constexpr int64_t kRetryNoRoomMs = 500;

absl::Status NoRoom(size_t needed, const MemoryBudget& budget) {
  // Do not say how much is free: it would reveal how much other tenants use.
  const ErrorMetadata numbers = {{"needed", absl::StrCat(needed)},
                                 {"limit", absl::StrCat(budget.limit())}};
  if (needed > budget.limit()) {
    return ReasonError(
        absl::StatusCode::kOutOfRange, v1::ERROR_REASON_MEMORY_TOO_SMALL,
        absl::StrCat("the request needs ", needed, " bytes of memory, but this server has ",
                     budget.limit(),
                     " for all requests together; send a shorter one, or start the server with a "
                     "larger --max-prompts-memory"),
        numbers);
  }
  return WithRetry(
      ReasonError(
          absl::StatusCode::kResourceExhausted, v1::ERROR_REASON_QUEUE_FULL,
          absl::StrCat(
              "the request needs ", needed, " bytes of memory; of the ", budget.limit(),
              " for all requests, fewer are free now; try again when running requests have ended"),
          numbers),
      kRetryNoRoomMs);
}

}  // namespace

absl::Status CallMemory::Hold(Part part, size_t bytes) {
  if (bytes > parts_[part] && MemoryReserve::Gone()) return OutOfMemoryError();
  if (SetPart(part, bytes)) return absl::OkStatus();
  return NoRoom(held_ - parts_[part] + bytes, lease_.budget());
}

absl::Status CallMemory::Keep(size_t bytes) {
  const size_t held = held_ - parts_[kWork] - parts_[kKept] + bytes;
  if (!lease_.TryResize(held)) return NoRoom(held, lease_.budget());
  held_ = held;
  parts_[kWork] = 0;
  parts_[kKept] = bytes;
  return absl::OkStatus();
}

bool CallMemory::SetPart(Part part, size_t bytes) {
  const size_t held = held_ - parts_[part] + bytes;
  if (!lease_.TryResize(held)) return false;
  held_ = held;
  parts_[part] = bytes;
  return true;
}

absl::Status WorkGrant::Allow(size_t bytes) {
  if (bytes <= allowed_) return absl::OkStatus();
  const absl::Status status = memory_.Hold(CallMemory::kWork, beside_ + bytes);
  if (status.ok()) allowed_ = bytes;
  return status;
}

absl::Status OutOfMemoryError() {
  return WithRetry(ReasonError(absl::StatusCode::kResourceExhausted, v1::ERROR_REASON_QUEUE_FULL,
                               "the machine has no memory left for this request; try again when "
                               "other requests have ended, or send a shorter one"),
                   kRetryNoRoomMs);
}

}  // namespace annulus::server
