#include "engine/coordinator/admission/tenant_quota.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <optional>
#include <vector>

#include "engine/coordinator/admission/room_kept.h"
#include "engine/request/check_request.h"

namespace annulus {

int64_t TenantQuota::BytesOf(int64_t pages) const { return pages * ranks_.facts()[0].page_bytes; }

int64_t TenantQuota::NewBytes(const RingChoice& choice) const {
  const std::vector<int32_t> pages = PagesHeld(choice, nullptr, limits_);
  return BytesOf(std::accumulate(pages.begin(), pages.end(), int64_t{0}));
}

bool TenantQuota::MayHave(const RequestSpec& spec, const RingChoice& choice) const {
  const int64_t allowed = spec.tenant_room.kv_bytes;
  if (allowed == 0) return true;
  const PageBook::TenantPages own = ledger_.book().pages_of(spec.tenant);
  return BytesOf(own.all - own.unheld) + NewBytes(choice) <= allowed;
}

bool TenantQuota::FindRoom(const RequestSpec& spec, const RingChoice& choice) {
  if (MayHave(spec, choice)) return true;
  return ledger_.LetGoOfWrites() && MayHave(spec, choice);
}

bool TenantQuota::MakeRoom(const RequestSpec& spec, const RingChoice& choice) {
  const int64_t allowed = spec.tenant_room.kv_bytes;
  if (allowed == 0) return true;
  const int64_t needed = NewBytes(choice);
  const auto enough = [&] {
    return BytesOf(ledger_.book().pages_of(spec.tenant).all) + needed <= allowed;
  };
  return ledger_.prefixes().index().Evict(enough, &spec.tenant);
}

absl::Status TenantQuota::FullError(const RequestSpec& spec, const RingChoice& choice) const {
  const PageBook::TenantPages own = ledger_.book().pages_of(spec.tenant);
  const auto& running = ledger_.state().running;
  const bool runs = std::any_of(running.begin(), running.end(), [&](const auto& each) {
    return ledger_.request(each->id).spec().tenant == spec.tenant;
  });
  const bool ends = runs || ledger_.tier_will_free_pages();
  return TenantFullError(
      NewBytes(choice), BytesOf(own.all - own.unheld), spec.tenant_room.kv_bytes,
      ends ? std::optional(RetryAfter(serving_.turnover_seconds(), 0).count()) : std::nullopt);
}

}  // namespace annulus
