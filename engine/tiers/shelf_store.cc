#include "engine/tiers/shelf_store.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace annulus {

ShelfStore::ShelfStore(const Options& options, Slot slots, RankShelves& shelves, const Clock& clock)
    : SlotStore(options.limit_bytes, options.page_bytes, slots, options.ranks, clock),
      shelves_(shelves),
      coverage_(static_cast<size_t>(options.ranks),
                std::vector<std::optional<double>>(static_cast<size_t>(slots))) {}

absl::StatusOr<int32_t> ShelfStore::SlotsOf(const Options& options) {
  const int64_t limit = options.limit_bytes / options.ranks;
  const int64_t slots = SlotsIn(limit, options.page_bytes);
  if (slots >= 1) return static_cast<int32_t>(slots);
  return absl::InvalidArgumentError(
      absl::StrCat("kv-host is ", options.limit_bytes, " bytes for ", options.ranks,
                   " ranks, each of which has ", limit, "; a page takes ",
                   KnownPages::FileBytes(options.page_bytes), ": raise kv-host"));
}

absl::StatusOr<std::unique_ptr<ShelfStore>> ShelfStore::Create(const Options& options,
                                                               RankShelves& shelves,
                                                               const Clock& clock) {
  ANNULUS_ASSIGN_OR_RETURN(const Slot slots, SlotsOf(options));
  return std::unique_ptr<ShelfStore>(new ShelfStore(options, slots, shelves, clock));
}

absl::Status ShelfStore::WriteSlot(Slot slot, const PageMark& mark, const PageSource& payload) {
  CoverageOf(payload.rank(), slot) = mark.coverage;
  return shelves_.Save(payload.id(), slot, KeyOf(mark));
}

absl::StatusOr<std::optional<double>> ShelfStore::ReadSlot(Slot slot, const PageMark& expected,
                                                           const PageTarget& payload) {
  ANNULUS_RETURN_IF_ERROR(shelves_.Load(payload.id(), slot, KeyOf(expected)));
  return CoverageOf(payload.rank(), slot);
}

}  // namespace annulus
