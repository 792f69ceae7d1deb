#ifndef ANNULUS_ENGINE_TIERS_HOST_STORE_H_
#define ANNULUS_ENGINE_TIERS_HOST_STORE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "engine/tiers/slot_store.h"
#include "kernels/base/device_buffer.h"

namespace annulus {

// A PageStore in the host's memory. Pages are stored as in files: header with checksums, then
// bytes. They are lost when the process ends.
//
// The memory is one mapping of equal slots, each for one page. The system provides memory as slots
// are first used, and it is never returned, so resident_bytes never decreases.
class HostStore final : public SlotStore {
 public:
  // `page_bytes`: size of every page. `clock` must outlive the store. INVALID_ARGUMENT if the limit
  // is below one page; RESOURCE_EXHAUSTED if the system refuses the mapping.
  static absl::StatusOr<std::unique_ptr<HostStore>> Create(int64_t limit_bytes, size_t page_bytes,
                                                           const Clock& clock = Clock::Real());

  int64_t resident_bytes() const override;

 private:
  HostStore(int64_t limit_bytes, size_t page_bytes, Slot slots, DeviceBuffer memory,
            const Clock& clock)
      : SlotStore(limit_bytes, page_bytes, slots, 0, clock), memory_(std::move(memory)) {}

  absl::Status WriteSlot(Slot slot, const PageMark& mark, const PageSource& payload) override;
  absl::StatusOr<std::optional<double>> ReadSlot(Slot slot, const PageMark& expected,
                                                 const PageTarget& payload) override;

  std::span<std::byte> BytesOf(Slot slot);

  DeviceBuffer memory_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TIERS_HOST_STORE_H_
