#ifndef ANNULUS_ENGINE_PAGE_STORES_H_
#define ANNULUS_ENGINE_PAGE_STORES_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/api/load.h"
#include "engine/api/options.h"
#include "engine/api/result.h"
#include "engine/memory/kv_pool.h"
#include "engine/metrics/engine_metrics.h"
#include "engine/page_levels.h"
#include "engine/tiers/disk_remover.h"
#include "engine/tiers/disk_store.h"
#include "engine/tiers/host_store.h"

namespace annulus {

// The stores that options ask for: kv_host_bytes of the host's memory, the folder kv_disk, both or
// none. All calls are thread-safe.
class PageStores {
 public:
  // `pages`: those of a rank; `on_host`: whether they are in the host's memory. INVALID_ARGUMENT,
  // UNIMPLEMENTED, RESOURCE_EXHAUSTED or what DiskStore::Open gives.
  static absl::StatusOr<std::unique_ptr<PageStores>> Open(const EngineOptions& options,
                                                          const KvGeometry& pages, bool on_host);

  // The fastest first; empty: there is none. They outlive what uses the levels.
  std::vector<PageLevels::Level> Levels(EngineMetrics& metrics) const;

  // See Engine::ForgetDocument. Every store forgets, whatever becomes of another's pages.
  absl::Status ForgetDocument(const TenantId& tenant, absl::string_view content,
                              const CancelFlag& cancel) const;
  // Adds to `found` what the stores have of the tenant's documents of these contents. CANCELLED.
  absl::Status AddKept(const TenantId& tenant, std::span<const std::string> contents,
                       int64_t page_tokens, const CancelFlag& cancel,
                       std::vector<KeptDocument>& found) const;

  void Show(EngineMetrics& metrics) const;
  std::vector<TierLoad> Load() const;
  // Most bytes that pages in the host's memory ever took at once.
  int64_t host_bytes() const { return host_ == nullptr ? 0 : host_->resident_bytes(); }

 private:
  PageStores() = default;

  std::chrono::milliseconds disk_timeout_{0};
  std::unique_ptr<HostStore> host_;  // null: there is none
  std::unique_ptr<DiskStore> disk_;  // null: there is none
  std::unique_ptr<DiskRemover> disk_remover_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_PAGE_STORES_H_
