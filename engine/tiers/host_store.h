#ifndef ANNULUS_ENGINE_TIERS_HOST_STORE_H_
#define ANNULUS_ENGINE_TIERS_HOST_STORE_H_

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/tiers/page_store.h"
#include "kernels/base/device_buffer.h"

namespace annulus {

// A PageStore in the host's memory. Pages are stored as in files: header with checksums, then
// bytes. They are lost when the process ends.
//
// The memory is one mapping of equal slots, each for one page. The system provides memory as slots
// are first used, and it is never returned, so resident_bytes never decreases.
class HostStore final : public PageStore {
 public:
  // `page_bytes`: size of every page. `clock` must outlive the store. INVALID_ARGUMENT if the limit
  // is below one page; RESOURCE_EXHAUSTED if the system refuses the mapping.
  static absl::StatusOr<std::unique_ptr<HostStore>> Create(int64_t limit_bytes, size_t page_bytes,
                                                           const Clock& clock = Clock::Real());

  absl::Status RemoveForgotten(const EntryName& page) override;

  // The most bytes that pages have taken at once so far.
  int64_t resident_bytes() const;

 private:
  using Slot = int32_t;

  HostStore(int64_t limit_bytes, size_t page_bytes, Slot slots, DeviceBuffer memory,
            const Clock& clock);

  absl::StatusOr<bool> PutNew(const EntryName& name, const PageMark& mark,
                              std::span<const std::span<const std::byte>> payload,
                              int64_t use) override;
  absl::StatusOr<bool> AddDocuments(const EntryName& known, const PageMark& mark) override;
  absl::StatusOr<std::optional<double>> Read(const EntryName& name, const PageMark& expected,
                                             std::span<std::byte> payload, int64_t use) override;
  bool OnDropped(const EntryName& name) override;

  std::span<std::byte> BytesOf(Slot slot);
  // These require the lock. A page that is being read is held: dropping it would not make room,
  // since its slot becomes free only when its last reader ends.
  void Free(Slot slot);
  void FreeOf(const PageKey& key);
  void BeginRead(Slot slot, const PageKey& key);
  void EndRead(Slot slot, const PageKey& key);

  const size_t page_bytes_;
  DeviceBuffer memory_;
  std::unordered_map<PageKey, Slot, PageKeyHash> slots_;  // has every known page
  std::vector<Slot> free_;                                // used before and free again
  Slot never_used_ = 0;                                   // first slot that was never used
  const Slot all_slots_;
  struct Reads {
    int readers = 0;
    bool dropped = false;  // the slot's page was dropped meanwhile
  };
  std::unordered_map<Slot, Reads> reads_;  // has every slot that is being read
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TIERS_HOST_STORE_H_
