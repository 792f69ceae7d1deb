#ifndef ANNULUS_ENGINE_PAGES_PAGE_STORES_H_
#define ANNULUS_ENGINE_PAGES_PAGE_STORES_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/api/load.h"
#include "engine/api/options.h"
#include "engine/api/result.h"
#include "engine/memory/kv_pool.h"
#include "engine/metrics/engine_metrics.h"
#include "engine/pages/page_levels.h"
#include "engine/tiers/disk_remover.h"
#include "engine/tiers/disk_store.h"
#include "engine/tiers/page_comparer.h"
#include "engine/tiers/page_lane.h"
#include "engine/tiers/rank_shelves.h"
#include "engine/tiers/slot_store.h"

namespace annulus {

// Owns the stores that EngineOptions asks for, and everything their levels need: kv_host_bytes of
// the host's memory, the folder kv_disk, both, or none. Thread-safe.
class PageStores {
 public:
  // What the stores use; all of it must outlive them.
  struct Parts {
    std::span<Backend* const> devices;  // [rank] of the rank's device; at least one
    // Where pages of the host's memory are, if not all ranks are in this process; else null. There
    // is no disk then, and nothing is compared with all that is computed (KvVerify::kAll).
    RankShelves* shelves = nullptr;
    DiskCalls& calls;
    const Clock& clock;
  };
  // `pages`: the layout of a rank's pages. INVALID_ARGUMENT if a size is too small for a few pages;
  // otherwise the errors of HostStore::Create, ShelfStore::Create, DiskStore::Open and
  // PageLane::Open.
  static absl::StatusOr<std::unique_ptr<PageStores>> Open(const EngineOptions& options,
                                                          const KvGeometry& pages,
                                                          const Parts& parts);

  // Bytes of host memory for all buffers, if the pages are in a device's memory: those that Open
  // pins, and those in which PageMover compares pages under KvVerify::kAll. Does not include
  // kv_host_bytes.
  static size_t BufferBytes(const EngineOptions& options, const KvGeometry& pages);

  // Calls DiskStore::OtherIdentities with the hash of `identity` (CoordinatorOptions::identity),
  // and returns its result; empty without a disk.
  std::vector<ContentHash> OtherIdentities(absl::string_view identity) const;

  // The levels, the fastest first; empty if there is no store. They point into this object and
  // `metrics`, which must outlive their users.
  std::vector<PageLevels::Level> Levels(EngineMetrics& metrics) const;
  // For PageTier::Options; null except under KvVerify::kSample. Lives as long as this object.
  PageComparer* comparer() const { return comparer_.get(); }

  // Deletes the document's pages from all stores, even if one of them fails: see
  // Engine::ForgetDocument.
  absl::Status ForgetDocument(const TenantId& tenant, absl::string_view content,
                              const CancelFlag& cancel) const;
  // Sets host_tokens and disk_tokens of `found`, which has one entry for each of `contents`, to
  // what the stores have of the tenant's documents. CANCELLED if `cancel` is set.
  absl::Status AddKept(const TenantId& tenant, std::span<const std::string> contents,
                       int64_t page_tokens, const CancelFlag& cancel,
                       std::vector<KeptDocument>& found) const;

  // Writes the stores' statistics to `metrics`.
  void Show(EngineMetrics& metrics) const;
  std::vector<TierLoad> Load() const;
  // SlotStore::resident_bytes; 0 without a host store.
  int64_t host_bytes() const { return host_ == nullptr ? 0 : host_->resident_bytes(); }

 private:
  PageStores() = default;

  using Lanes = std::vector<std::unique_ptr<PageLane>>;
  static absl::StatusOr<Lanes> OpenLanes(std::span<Backend* const> devices, size_t page_bytes);

  std::chrono::milliseconds most_call_{0};  // EngineOptions::kv_disk_timeout
  bool on_device_ = false;                  // the host cannot access the ranks' memory
  std::unique_ptr<SlotStore> host_;         // null: there is none
  std::unique_ptr<DiskStore> disk_;         // null: there is none
  std::unique_ptr<DiskRemover> disk_remover_;
  Lanes host_lanes_;
  Lanes disk_lanes_;
  std::unique_ptr<PageComparer> comparer_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_PAGES_PAGE_STORES_H_
