#include "engine/pages/page_stores.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/tiers/host_store.h"
#include "engine/tiers/shelf_store.h"
#include "kernels/base/pinned_size.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// So that a burst of pages leaves the disk, resp. the memory's bandwidth, to others too.
constexpr double kDiskBytesPerSecond = 512 << 20;
constexpr double kHostBytesPerSecond = 2048.0 * (1 << 20);

// `option` says how much, for pages that `what` holds.
absl::Status CheckSize(absl::string_view option, int64_t bytes, const KvGeometry& pages) {
  // A few pages.
  const int64_t least = std::max<int64_t>(1 << 20, 4 * KnownPages::FileBytes(pages.stored_bytes()));
  if (bytes >= least) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(option, " is ", bytes, " bytes; give at least ", least,
                   " bytes, enough for a few pages of keys and values"));
}

absl::StatusOr<std::unique_ptr<DiskStore>> OpenDisk(const EngineOptions& options, DiskCalls& calls,
                                                    const Clock& clock) {
  absl::StatusOr<std::unique_ptr<DiskStore>> store =
      DiskStore::Open(options.kv_disk, options.kv_disk_bytes, calls, clock);
  if (store.ok()) return store;
  return absl::Status(store.status().code(), absl::StrCat("kv-disk: ", store.status().message()));
}

absl::StatusOr<std::unique_ptr<SlotStore>> OpenHost(const EngineOptions& options, size_t page_bytes,
                                                    const PageStores::Parts& parts) {
  if (parts.shelves == nullptr) {
    return HostStore::Create(options.kv_host_bytes, page_bytes, parts.clock);
  }
  return ShelfStore::Create(
      {.limit_bytes = options.kv_host_bytes, .page_bytes = page_bytes, .ranks = options.ranks},
      *parts.shelves, parts.clock);
}

void ShowTier(const PageStore& store, TierMetrics& metrics) {
  const PageStore::Stats stats = store.stats();
  metrics.Show({.up = store.on(),
                .bytes = stats.bytes,
                .limit = stats.limit,
                .pages = stats.pages,
                .rejects = stats.rejects,
                .mismatches = stats.mismatches,
                .io_errors = stats.io_errors});
}

}  // namespace

absl::StatusOr<std::unique_ptr<PageStores>> PageStores::Open(const EngineOptions& options,
                                                             const KvGeometry& pages,
                                                             const Parts& parts) {
  const std::span<Backend* const> devices = parts.devices;
  std::unique_ptr<PageStores> stores(new PageStores);
  const size_t page_bytes = pages.stored_bytes();
  stores->most_call_ = options.kv_disk_timeout;
  stores->on_device_ = !devices[0]->capabilities().host_accessible;
  if (options.kv_host_bytes > 0) {
    ANNULUS_RETURN_IF_ERROR(CheckSize("kv-host", options.kv_host_bytes, pages));
    ANNULUS_ASSIGN_OR_RETURN(stores->host_, OpenHost(options, page_bytes, parts));
    ANNULUS_ASSIGN_OR_RETURN(stores->host_lanes_, OpenLanes(devices, page_bytes));
  }
  if (!options.kv_disk.empty()) {
    ANNULUS_RETURN_IF_ERROR(CheckSize("kv-disk-size", options.kv_disk_bytes, pages));
    ANNULUS_ASSIGN_OR_RETURN(stores->disk_, OpenDisk(options, parts.calls, parts.clock));
    ANNULUS_ASSIGN_OR_RETURN(stores->disk_lanes_, OpenLanes(devices, page_bytes));
    stores->disk_remover_ = std::make_unique<DiskRemover>(
        *stores->disk_, DiskRemover::Options{.most_call = options.kv_disk_timeout}, parts.clock);
  }
  const bool keeps = stores->host_ != nullptr || stores->disk_ != nullptr;
  if (keeps && options.kv_verify == KvVerify::kSample) {
    if (parts.shelves != nullptr) {
      stores->comparer_ = PageComparer::Beside(*parts.shelves, parts.clock);
    } else {
      ANNULUS_ASSIGN_OR_RETURN(stores->comparer_,
                               PageComparer::Open(devices, page_bytes, parts.clock));
    }
  }
  return stores;
}

absl::StatusOr<PageStores::Lanes> PageStores::OpenLanes(std::span<Backend* const> devices,
                                                        size_t page_bytes) {
  Lanes lanes(PageMover::kThreads);
  for (std::unique_ptr<PageLane>& lane : lanes) {
    ANNULUS_ASSIGN_OR_RETURN(lane, PageLane::Open(devices, page_bytes));
  }
  return lanes;
}

size_t PageStores::BufferBytes(const EngineOptions& options, const KvGeometry& pages) {
  const int stores = (options.kv_host_bytes > 0 ? 1 : 0) + (options.kv_disk.empty() ? 0 : 1);
  const bool compares = stores > 0 && options.kv_verify == KvVerify::kSample;
  const auto pinned = static_cast<size_t>(stores * PageMover::kThreads + (compares ? 2 : 0));
  const auto plain = static_cast<size_t>(options.kv_verify == KvVerify::kAll ? stores : 0);
  return pinned * PinnedSize(pages.stored_bytes()) + plain * pages.stored_bytes();
}

std::vector<ContentHash> PageStores::OtherIdentities(absl::string_view identity) const {
  return disk_ == nullptr ? std::vector<ContentHash>() : disk_->OtherIdentities(HashOf(identity));
}

std::vector<PageLevels::Level> PageStores::Levels(EngineMetrics& metrics) const {
  std::vector<PageLevels::Level> levels;
  const auto pointers = [](const Lanes& lanes) {
    std::vector<PageLane*> all;
    for (const std::unique_ptr<PageLane>& lane : lanes) all.push_back(lane.get());
    return all;
  };
  const double most = std::chrono::duration<double>(most_call_).count();
  if (host_ != nullptr) {
    levels.push_back({.kind = TierKind::kHost,
                      .store = host_.get(),
                      .metrics = &metrics.tiers.host,
                      .lanes = pointers(host_lanes_),
                      .write_bytes_per_second = kHostBytesPerSecond});
    // Memory always answers, a device may not.
    if (on_device_) levels.back().most_job_seconds = most;
  }
  if (disk_ != nullptr) {
    levels.push_back({.kind = TierKind::kDisk,
                      .store = disk_.get(),
                      .metrics = &metrics.tiers.disk,
                      .lanes = pointers(disk_lanes_),
                      .write_bytes_per_second = kDiskBytesPerSecond,
                      .most_job_seconds = most});
  }
  return levels;
}

absl::Status PageStores::ForgetDocument(const TenantId& tenant, absl::string_view content,
                                        const CancelFlag& cancel) const {
  const ContentHash name = HashOf(tenant.name());
  absl::Status status;
  // The host's memory is free at once.
  if (host_ != nullptr) status.Update(host_->ForgetDocument(name, content, cancel).status());
  if (disk_ == nullptr) return status;
  absl::StatusOr<PageStore::Deletion> deletion = disk_->ForgetDocument(name, content, cancel);
  status.Update(deletion.status());
  if (deletion.ok()) status.Update(disk_remover_->Remove(name, *std::move(deletion), cancel));
  return status;
}

absl::Status PageStores::AddKept(const TenantId& tenant, std::span<const std::string> contents,
                                 int64_t page_tokens, const CancelFlag& cancel,
                                 std::vector<KeptDocument>& found) const {
  const auto add = [&](const PageStore* store, int64_t KeptDocument::*tokens) -> absl::Status {
    if (store == nullptr) return absl::OkStatus();
    ANNULUS_ASSIGN_OR_RETURN(const std::vector<int64_t> pages,
                             store->CountPages(HashOf(tenant.name()), contents, cancel));
    for (size_t i = 0; i < found.size(); ++i) found[i].*tokens = page_tokens * pages[i];
    return absl::OkStatus();
  };
  ANNULUS_RETURN_IF_ERROR(add(host_.get(), &KeptDocument::host_tokens));
  return add(disk_.get(), &KeptDocument::disk_tokens);
}

void PageStores::Show(EngineMetrics& metrics) const {
  if (host_ != nullptr) ShowTier(*host_, metrics.tiers.host);
  if (disk_ != nullptr) ShowTier(*disk_, metrics.tiers.disk);
}

std::vector<TierLoad> PageStores::Load() const {
  std::vector<TierLoad> loads;
  const auto add = [&](TierKind kind, const PageStore* store) {
    if (store == nullptr) return;
    PageStore::Stats stats = store->stats();
    loads.push_back({kind, std::move(stats.off), stats.mismatches, std::move(stats.obstacle)});
  };
  add(TierKind::kHost, host_.get());
  add(TierKind::kDisk, disk_.get());
  return loads;
}

}  // namespace annulus
