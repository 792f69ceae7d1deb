#ifndef ANNULUS_ENGINE_TIERS_LOCAL_SHELVES_H_
#define ANNULUS_ENGINE_TIERS_LOCAL_SHELVES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/disk/checksum.h"
#include "engine/tiers/page_lane.h"
#include "engine/tiers/rank_shelves.h"
#include "kernels/base/device_buffer.h"

namespace annulus {

// The shelves of ranks of this process, whose memory the host can access.
class LocalShelves final : public RankShelves {
 public:
  struct Options {
    int32_t first_rank = 0;
    int32_t ranks = 1;
    int32_t pages = 1;      // of each rank
    size_t page_bytes = 0;  // of each page, without gaps
    int32_t slots = 1;      // of each shelf
    // Where a page of a rank here is. Thread-safe.
    std::function<PagePieces(PageId)> pieces;
  };
  // Errors of MapHostMemory.
  static absl::StatusOr<std::unique_ptr<LocalShelves>> Create(Options options);

  absl::Status Save(PageId page, int32_t slot, const PageKey& key) override;
  absl::Status Load(PageId page, int32_t slot, const PageKey& key) override;
  absl::StatusOr<bool> Same(PageId one, PageId other) override;

  // The errors of Save and Load that a caller can tell in advance: whether there are such a page
  // and slot. Thread-safe.
  absl::Status Check(PageId page, int32_t slot) const;
  absl::Status Check(PageId page) const;

  int64_t resident_bytes() const override;
  // Of the rank's shelf alone. Thread-safe.
  int64_t resident_bytes(int32_t rank) const;

  // Bytes of host memory for each slot.
  static size_t SlotBytes(size_t page_bytes);

 private:
  struct Slot {
    PageKey key;
    Checksum bytes{};
    bool full = false;
  };
  struct Shelf {
    DeviceBuffer memory;
    std::vector<Slot> slots;
    // One more than the last slot that was ever used.
    std::atomic<int32_t> used = 0;
  };

  explicit LocalShelves(Options options) : options_(std::move(options)) {}
  Shelf& ShelfOf(int32_t rank) const { return *shelves_[rank - options_.first_rank]; }
  std::span<std::byte> BytesOf(Shelf& shelf, int32_t slot) const;

  const Options options_;
  std::vector<std::unique_ptr<Shelf>> shelves_;  // of each rank
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TIERS_LOCAL_SHELVES_H_
