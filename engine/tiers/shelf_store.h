#ifndef ANNULUS_ENGINE_TIERS_SHELF_STORE_H_
#define ANNULUS_ENGINE_TIERS_SHELF_STORE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/tiers/rank_shelves.h"
#include "engine/tiers/slot_store.h"

namespace annulus {

// The directory of pages on shelves beside the ranks of a ring: which slot of which rank's shelf
// has which page. Put takes a page of any rank, and Get gives it back to pages of that rank. Each
// shelf has an equal part of the limit, and of a tenant's (PageMark::tenant_bytes).
//
// What a shelf says is checked by its key: a slot that has not got the page is a miss, DATA_LOSS.
class ShelfStore final : public SlotStore {
 public:
  struct Options {
    int64_t limit_bytes = 0;  // of all shelves together
    size_t page_bytes = 0;
    int32_t ranks = 1;
  };
  // How many slots each shelf needs; INVALID_ARGUMENT if its part of the limit is below one page.
  static absl::StatusOr<int32_t> SlotsOf(const Options& options);
  // The error of SlotsOf. `shelves`, with as many slots, and `clock` must outlive the store.
  static absl::StatusOr<std::unique_ptr<ShelfStore>> Create(const Options& options,
                                                            RankShelves& shelves,
                                                            const Clock& clock = Clock::Real());

  void Stop() override { shelves_.Stop(); }
  int64_t resident_bytes() const override { return shelves_.resident_bytes(); }

 private:
  ShelfStore(const Options& options, Slot slots, RankShelves& shelves, const Clock& clock);

  absl::Status WriteSlot(Slot slot, const PageMark& mark, const PageSource& payload) override;
  absl::StatusOr<std::optional<double>> ReadSlot(Slot slot, const PageMark& expected,
                                                 const PageTarget& payload) override;

  // Of the page in the slot; belongs to whoever writes or reads the slot.
  std::optional<double>& CoverageOf(int32_t rank, Slot slot) {
    return coverage_[static_cast<size_t>(rank)][static_cast<size_t>(slot)];
  }

  RankShelves& shelves_;
  std::vector<std::vector<std::optional<double>>> coverage_;  // [rank][slot]
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TIERS_SHELF_STORE_H_
