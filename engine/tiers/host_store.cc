#include "engine/tiers/host_store.h"

#include <cstring>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/tiers/host_mapping.h"
#include "kernels/base/status_macros.h"

namespace annulus {

absl::StatusOr<std::unique_ptr<HostStore>> HostStore::Create(int64_t limit_bytes, size_t page_bytes,
                                                             const Clock& clock) {
  const int64_t slot = KnownPages::FileBytes(page_bytes);
  const int64_t slots = SlotsIn(limit_bytes, page_bytes);
  if (slots < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a page takes ", slot, " bytes; the limit for all is ", limit_bytes));
  }
  ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer memory, MapHostMemory(static_cast<size_t>(slots * slot)));
  return std::unique_ptr<HostStore>(
      new HostStore(limit_bytes, page_bytes, static_cast<Slot>(slots), std::move(memory), clock));
}

std::span<std::byte> HostStore::BytesOf(Slot slot) {
  const auto bytes = static_cast<size_t>(KnownPages::FileBytes(page_bytes()));
  return {memory_.data() + static_cast<size_t>(slot) * bytes, kEntryHeaderBytes + page_bytes()};
}

int64_t HostStore::resident_bytes() const {
  std::lock_guard lock(mutex_);
  return EverUsed(0) * KnownPages::FileBytes(page_bytes());
}

absl::Status HostStore::WriteSlot(Slot slot, const PageMark& mark, const PageSource& payload) {
  const std::span<std::byte> place = BytesOf(slot);
  WriteHeader({mark, page_bytes(), ChecksumOf(payload.parts())}, place.first(kEntryHeaderBytes));
  std::span<std::byte> rest = place.subspan(kEntryHeaderBytes);
  for (const std::span<const std::byte> part : payload.parts()) {
    std::memcpy(rest.data(), part.data(), part.size());
    rest = rest.subspan(part.size());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<double>> HostStore::ReadSlot(Slot slot, const PageMark& expected,
                                                          const PageTarget& payload) {
  const std::span<const std::byte> bytes = BytesOf(slot);
  ANNULUS_ASSIGN_OR_RETURN(const EntryHeader header, ReadHeader(bytes.first(kEntryHeaderBytes)));
  if (header.payload_bytes != payload.size() || !SamePage(header.mark, expected)) {
    return absl::DataLossError("the slot holds a different page than was stored");
  }
  std::memcpy(payload.bytes().data(), bytes.data() + kEntryHeaderBytes, payload.size());
  if (ChecksumOf(std::span<const std::byte>(payload.bytes())) != header.payload) {
    return absl::DataLossError("the page's checksum is wrong");
  }
  return header.mark.coverage;
}

}  // namespace annulus
