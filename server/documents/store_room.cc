#include "server/documents/store_room.h"

#include <algorithm>

namespace annulus::server {

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
  if (use != RoomUse::kTransient) {
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
  holdings_[tenant][use] += bytes;
  used_ += bytes;
  most_ = std::max(most_, used_);
  if (use == RoomUse::kUpload) uploading_ += bytes;
  return RoomAnswer::kGranted;
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

RoomLease::~RoomLease() {
  if (bytes_ > 0) room_->GiveBack(tenant_, use_, bytes_);
}

RoomAnswer RoomLease::TryResize(size_t bytes) {
  if (bytes > bytes_) {
    const RoomAnswer answer = room_->TryTake(tenant_, use_, bytes_, bytes - bytes_);
    if (answer != RoomAnswer::kGranted) return answer;
  }
  if (bytes < bytes_) room_->GiveBack(tenant_, use_, bytes_ - bytes);
  bytes_ = bytes;
  return RoomAnswer::kGranted;
}

bool RoomLease::TrySetUse(RoomUse use) {
  if (use == use_) return true;
  if (bytes_ > 0 && !room_->TryMove(tenant_, bytes_, use_, use)) return false;
  use_ = use;
  return true;
}

}  // namespace annulus::server
