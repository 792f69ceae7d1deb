#include "engine/tiers/local_shelves.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/tiers/host_mapping.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

absl::Status CheckRange(absl::string_view what, int64_t value, int64_t first, int64_t count) {
  if (first <= value && value - first < count) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " ", value, " of a shelf; allowed are ",
                                                 first, " to ", first + count - 1));
}

}  // namespace

size_t LocalShelves::SlotBytes(size_t page_bytes) {
  constexpr size_t kBlock = 4096;  // the system's pages of memory
  return (page_bytes + kBlock - 1) / kBlock * kBlock;
}

absl::StatusOr<std::unique_ptr<LocalShelves>> LocalShelves::Create(Options options) {
  std::unique_ptr<LocalShelves> shelves(new LocalShelves(std::move(options)));
  const Options& own = shelves->options_;
  const auto slots = static_cast<size_t>(own.slots);
  for (int32_t rank = 0; rank < own.ranks; ++rank) {
    auto& shelf = *shelves->shelves_.emplace_back(std::make_unique<Shelf>());
    ANNULUS_ASSIGN_OR_RETURN(shelf.memory, MapHostMemory(slots * SlotBytes(own.page_bytes)));
    shelf.slots.resize(slots);
  }
  return shelves;
}

absl::Status LocalShelves::Check(PageId page) const {
  ANNULUS_RETURN_IF_ERROR(CheckRange("rank", page.rank, options_.first_rank, options_.ranks));
  return CheckRange("page", page.page, 0, options_.pages);
}

absl::Status LocalShelves::Check(PageId page, int32_t slot) const {
  ANNULUS_RETURN_IF_ERROR(Check(page));
  return CheckRange("slot", slot, 0, options_.slots);
}

std::span<std::byte> LocalShelves::BytesOf(Shelf& shelf, int32_t slot) const {
  return {shelf.memory.data() + static_cast<size_t>(slot) * SlotBytes(options_.page_bytes),
          options_.page_bytes};
}

absl::Status LocalShelves::Save(PageId page, int32_t slot, const PageKey& key) {
  ANNULUS_RETURN_IF_ERROR(Check(page, slot));
  Shelf& shelf = ShelfOf(page.rank);
  Slot& own = shelf.slots[static_cast<size_t>(slot)];
  own.full = false;
  const std::span<std::byte> bytes = BytesOf(shelf, slot);
  size_t offset = 0;
  for (const std::span<const std::byte> piece : options_.pieces(page)) {
    std::memcpy(bytes.data() + offset, piece.data(), piece.size());
    offset += piece.size();
  }
  own.key = key;
  own.bytes = ChecksumOf(std::span<const std::byte>(bytes));
  own.full = true;
  int32_t used = shelf.used.load(std::memory_order_relaxed);
  while (used <= slot && !shelf.used.compare_exchange_weak(used, slot + 1)) {
  }
  return absl::OkStatus();
}

absl::Status LocalShelves::Load(PageId page, int32_t slot, const PageKey& key) {
  ANNULUS_RETURN_IF_ERROR(Check(page, slot));
  Shelf& shelf = ShelfOf(page.rank);
  const Slot& own = shelf.slots[static_cast<size_t>(slot)];
  if (!own.full || own.key != key) {
    return absl::DataLossError("the slot holds a different page than was stored");
  }
  const std::span<const std::byte> bytes = BytesOf(shelf, slot);
  if (ChecksumOf(bytes) != own.bytes) return absl::DataLossError("the page's checksum is wrong");
  size_t offset = 0;
  for (const std::span<std::byte> piece : options_.pieces(page)) {
    std::memcpy(piece.data(), bytes.data() + offset, piece.size());
    offset += piece.size();
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> LocalShelves::Same(PageId one, PageId other) {
  ANNULUS_RETURN_IF_ERROR(Check(one));
  ANNULUS_RETURN_IF_ERROR(Check(other));
  const PagePieces pieces = options_.pieces(one);
  const PagePieces others = options_.pieces(other);
  return std::equal(pieces.begin(), pieces.end(), others.begin(),
                    [](std::span<const std::byte> a, std::span<const std::byte> b) {
                      return std::memcmp(a.data(), b.data(), a.size()) == 0;
                    });
}

int64_t LocalShelves::resident_bytes() const {
  int64_t bytes = 0;
  for (int32_t rank = 0; rank < options_.ranks; ++rank) {
    bytes += resident_bytes(options_.first_rank + rank);
  }
  return bytes;
}

int64_t LocalShelves::resident_bytes(int32_t rank) const {
  return int64_t{ShelfOf(rank).used.load(std::memory_order_relaxed)} *
         static_cast<int64_t>(SlotBytes(options_.page_bytes));
}

}  // namespace annulus
