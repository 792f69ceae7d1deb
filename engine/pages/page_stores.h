#ifndef ANNULUS_ENGINE_PAGES_PAGE_STORES_H_
#define ANNULUS_ENGINE_PAGES_PAGE_STORES_H_

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
#include "engine/pages/page_levels.h"
#include "engine/tiers/disk_remover.h"
#include "engine/tiers/disk_store.h"
#include "engine/tiers/host_store.h"
#include "engine/tiers/page_comparer.h"
#include "engine/tiers/page_lane.h"

namespace annulus {

// The stores that options ask for: kv_host_bytes of the host's memory, the folder kv_disk, both or
// none. All calls are thread-safe.
class PageStores {
 public:
  // `pages`: those of a rank. `devices`: [rank] the backend of the rank's device; they and `clock`
  // must outlive the stores. INVALID_ARGUMENT, RESOURCE_EXHAUSTED or what DiskStore::Open and
  // PageLane::Open give.
  static absl::StatusOr<std::unique_ptr<PageStores>> Open(const EngineOptions& options,
                                                          const KvGeometry& pages,
                                                          std::span<Backend* const> devices,
                                                          const Clock& clock);

  // Host memory of all buffers for pages of this size if they are in a device's memory: what Open
  // pins, and what the levels compare pages in under KvVerify::kAll.
  static size_t BufferBytes(const EngineOptions& options, const KvGeometry& pages);

  // The fastest first; empty: there is none. They outlive what uses the levels.
  std::vector<PageLevels::Level> Levels(EngineMetrics& metrics) const;
  // For PageTier; null if it never compares. Outlives what uses it.
  PageComparer* comparer() const { return comparer_.get(); }

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

  using Lanes = std::vector<std::unique_ptr<PageLane>>;
  static absl::StatusOr<Lanes> OpenLanes(std::span<Backend* const> devices, size_t page_bytes);

  std::chrono::milliseconds most_call_{0};
  bool on_device_ = false;           // the host cannot access the ranks' memory
  std::unique_ptr<HostStore> host_;  // null: there is none
  std::unique_ptr<DiskStore> disk_;  // null: there is none
  std::unique_ptr<DiskRemover> disk_remover_;
  Lanes host_lanes_;
  Lanes disk_lanes_;
  std::unique_ptr<PageComparer> comparer_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_PAGES_PAGE_STORES_H_
