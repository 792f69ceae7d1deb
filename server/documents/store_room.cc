#include "server/documents/store_room.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/base/errors.h"

namespace annulus::server {
namespace {

constexpr int64_t kRetryMilliseconds = 1000;  // uploads end soon, or are cut off

}  // namespace

absl::Status RoomFullError(RoomAnswer answer, size_t needed, const StoreRoom& room) {
  const bool disk = room.of() == StoreRoom::Of::kDisk;
  const char* const bytes = disk ? " bytes of disk" : " bytes of memory";
  const char* const option = disk ? "--documents-size" : "--max-documents-memory";
  const bool of_share = room.tenants() > 1 && (answer == RoomAnswer::kShareFull ||
                                               answer == RoomAnswer::kShareFullForNow);
  const size_t limit = of_share ? room.share() : room.limit();
  // Do not say how much is free: it would reveal how much other tenants use.
  const std::string message =
      of_share ? absl::StrCat("the tenant's share of the document store is full: ", needed, bytes,
                              " are needed for one document, and all documents of the tenant, "
                              "uploads included, may take ",
                              limit, ", an equal share for each of ", room.tenants(), " tenants")
               : absl::StrCat("the document store is full: ", needed, bytes,
                              " are needed, but of its ", limit, " fewer are free");
  absl::Status full = ReasonError(
      absl::StatusCode::kResourceExhausted, v1::ERROR_REASON_DOCUMENT_STORE_FULL,
      absl::StrCat(message, "; delete documents, or start the server with a larger ", option),
      {{"needed", absl::StrCat(needed)}, {"limit", absl::StrCat(limit)}});
  const bool for_now = answer == RoomAnswer::kFullForNow || answer == RoomAnswer::kShareFullForNow;
  return for_now ? WithRetry(std::move(full), kRetryMilliseconds) : full;
}

void StoreRoom::SetTenants(size_t tenants) {
  std::lock_guard lock(mutex_);
  tenants_ = std::max<size_t>(1, tenants);
}

size_t StoreRoom::tenants() const {
  std::lock_guard lock(mutex_);
  return tenants_;
}

size_t StoreRoom::share() const { return limit_ / tenants(); }

size_t StoreRoom::used() const {
  std::lock_guard lock(mutex_);
  return used_;
}

size_t StoreRoom::most() const {
  std::lock_guard lock(mutex_);
  return most_;
}

size_t StoreRoom::HeldBy(const TenantId& tenant) const {
  std::lock_guard lock(mutex_);
  size_t bytes = 0;
  if (const auto found = holdings_.find(tenant); found != holdings_.end()) {
    for (const auto& [use, held] : found->second) bytes += held;
  }
  return bytes;
}

size_t StoreRoom::FixedOf(const Holding& holding) {
  size_t bytes = 0;
  for (const auto& [use, held] : holding) bytes += use == RoomUse::kTransient ? 0 : held;
  return bytes;
}

RoomAnswer StoreRoom::TryTake(const TenantId& tenant, RoomUse use, size_t own, size_t bytes) {
  const auto fits = [bytes](size_t held, size_t limit) {
    return bytes <= limit && held <= limit - bytes;
  };
  const size_t own_upload = use == RoomUse::kUpload ? own : 0;
  std::lock_guard lock(mutex_);
  const auto found = holdings_.find(tenant);
  const Holding holding = found == holdings_.end() ? Holding() : found->second;
  if (use == RoomUse::kUpload || use == RoomUse::kKept) {
    const size_t share = limit_ / tenants_;
    const size_t fixed = FixedOf(holding);
    const auto uploads = holding.find(RoomUse::kUpload);
    const size_t others = uploads == holding.end() ? 0 : uploads->second - own_upload;
    if (!fits(fixed, share)) {
      return fits(fixed - others, share) ? RoomAnswer::kShareFullForNow : RoomAnswer::kShareFull;
    }
  }
  if (!fits(used_, limit_)) {
    const size_t others = uploading_ - own_upload;
    return fits(used_ - others, limit_) ? RoomAnswer::kFullForNow : RoomAnswer::kFull;
  }
  AddLocked(tenant, use, bytes);
  return RoomAnswer::kGranted;
}

void StoreRoom::AddLocked(const TenantId& tenant, RoomUse use, size_t bytes) {
  holdings_[tenant][use] += bytes;
  used_ += bytes;
  most_ = std::max(most_, used_);
  if (use == RoomUse::kUpload) uploading_ += bytes;
}

void StoreRoom::Count(const TenantId& tenant, RoomUse use, size_t bytes) {
  std::lock_guard lock(mutex_);
  AddLocked(tenant, use, bytes);
}

void StoreRoom::GiveBack(const TenantId& tenant, RoomUse use, size_t bytes) {
  std::lock_guard lock(mutex_);
  const auto holding = holdings_.find(tenant);
  if (holding == holdings_.end()) return;
  holding->second[use] -= bytes;
  used_ -= bytes;
  if (use == RoomUse::kUpload) uploading_ -= bytes;
  for (const auto& [of, held] : holding->second) {
    if (held > 0) return;
  }
  holdings_.erase(holding);
}

bool StoreRoom::TryMove(const TenantId& tenant, size_t bytes, RoomUse from, RoomUse to) {
  std::lock_guard lock(mutex_);
  Holding& holding = holdings_[tenant];
  const size_t share = limit_ / tenants_;
  if (from == RoomUse::kTransient && (bytes > share || FixedOf(holding) > share - bytes)) {
    return false;
  }
  holding[from] -= bytes;
  holding[to] += bytes;
  if (from == RoomUse::kUpload) uploading_ -= bytes;
  if (to == RoomUse::kUpload) uploading_ += bytes;
  return true;
}

RoomLease::~RoomLease() { GiveBack(); }

RoomAnswer RoomLease::TryResize(size_t bytes) {
  if (bytes > bytes_) {
    const RoomAnswer answer = room_->TryTake(tenant_, use_, bytes_, bytes - bytes_);
    if (answer != RoomAnswer::kGranted) return answer;
  }
  if (bytes < bytes_) room_->GiveBack(tenant_, use_, bytes_ - bytes);
  bytes_ = bytes;
  return RoomAnswer::kGranted;
}

void RoomLease::Count(const TenantId& tenant, size_t bytes) {
  tenant_ = tenant;
  use_ = RoomUse::kKept;
  bytes_ = bytes;
  room_->Count(tenant_, use_, bytes_);
}

void RoomLease::GiveBack() {
  if (bytes_ > 0) room_->GiveBack(tenant_, use_, std::exchange(bytes_, 0));
}

bool RoomLease::TrySetUse(RoomUse use) {
  if (use == use_) return true;
  if (bytes_ > 0 && !room_->TryMove(tenant_, bytes_, use_, use)) return false;
  use_ = use;
  return true;
}

}  // namespace annulus::server
