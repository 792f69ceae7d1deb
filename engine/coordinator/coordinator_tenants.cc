// The part of Coordinator that limits how many of the ranks' pages a tenant may have.

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "engine/coordinator/coordinator.h"
#include "engine/request/check_request.h"

namespace annulus {

int64_t Coordinator::BytesOf(int64_t pages) const { return pages * ranks_.facts()[0].page_bytes; }

// Bytes that a request would take besides the cached pages that it uses.
int64_t Coordinator::NewBytes(const RingChoice& choice) const {
  const std::vector<int32_t> pages = PagesHeld(choice, nullptr, options_.limits);
  return BytesOf(std::accumulate(pages.begin(), pages.end(), int64_t{0}));
}

// Whether the tenant may have what `choice` takes once all its pages that are only cached are
// freed.
bool Coordinator::TenantMayHave(const RequestSpec& spec, const RingChoice& choice) const {
  const int64_t allowed = spec.tenant_room.kv_bytes;
  if (allowed == 0) return true;
  const PageBook::TenantPages own = pages_.pages_of(spec.tenant);
  return BytesOf(own.all - own.unheld) + NewBytes(choice) <= allowed;
}

// The same, once no page is held only to be written to a disk.
bool Coordinator::FindTenantRoom(const RequestSpec& spec, const RingChoice& choice) {
  if (TenantMayHave(spec, choice)) return true;
  return tier_ != nullptr && tier_->LetGoOfWrites() && TenantMayHave(spec, choice);
}

// Frees the tenant's own cached prefixes until it may have what `choice` takes.
bool Coordinator::MakeTenantRoom(const RequestSpec& spec, const RingChoice& choice) {
  const int64_t allowed = spec.tenant_room.kv_bytes;
  if (allowed == 0) return true;
  const int64_t needed = NewBytes(choice);
  const auto enough = [&] { return BytesOf(pages_.pages_of(spec.tenant).all) + needed <= allowed; };
  return prefixes_.index().Evict(enough, &spec.tenant);
}

absl::Status Coordinator::TenantIsFull(const RequestSpec& spec, int64_t needed) const {
  const PageBook::TenantPages own = pages_.pages_of(spec.tenant);
  const bool runs = std::any_of(
      state_.running.begin(), state_.running.end(),
      [&](const auto& each) { return requests_.at(each->id)->spec().tenant == spec.tenant; });
  const bool ends = runs || (tier_ != nullptr && tier_->will_free_pages());
  return TenantFullError(
      needed, BytesOf(own.all - own.unheld), spec.tenant_room.kv_bytes,
      ends ? std::optional(RetryAfter(turnover_seconds_, 0).count()) : std::nullopt);
}

}  // namespace annulus
