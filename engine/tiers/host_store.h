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

// Pages of keys and values in the host's memory, each as in its file on a disk: header, checksums
// and bytes. They end with the process.
//
// The memory is one mapping of equal slots, one page each. The system gives it as it fills, and it
// stays: resident_bytes never becomes less.
class HostStore final : public PageStore {
 public:
  // `page_bytes`: of every page. INVALID_ARGUMENT if not one page fits into the limit;
  // RESOURCE_EXHAUSTED if the system has not so many addresses.
  static absl::StatusOr<std::unique_ptr<HostStore>> Create(int64_t limit_bytes, size_t page_bytes);

  absl::Status RemoveForgotten(const EntryName& page) override;

  // Most bytes that pages ever took at once.
  int64_t resident_bytes() const;

 private:
  using Slot = int32_t;

  HostStore(int64_t limit_bytes, size_t page_bytes, Slot slots, DeviceBuffer memory);

  absl::StatusOr<bool> PutNew(const EntryName& name, const PageMark& mark,
                              std::span<const std::span<const std::byte>> payload,
                              int64_t use) override;
  absl::StatusOr<bool> AddDocuments(const EntryName& known, const PageMark& mark) override;
  absl::StatusOr<std::optional<double>> Read(const EntryName& name, const PageMark& expected,
                                             std::span<std::byte> payload, int64_t use) override;
  bool OnDropped(const EntryName& name) override;

  std::span<std::byte> BytesOf(Slot slot);
  // With the lock held. A slot that is read ends free once nobody reads it.
  void Free(Slot slot);
  void FreeOf(const PageKey& key);
  void EndRead(Slot slot);

  const size_t page_bytes_;
  DeviceBuffer memory_;
  std::unordered_map<PageKey, Slot, PageKeyHash> slots_;  // of every page that is known
  std::vector<Slot> free_;                                // that had a page before
  Slot never_used_ = 0;                                   // this one and those behind it
  const Slot all_slots_;
  struct Reads {
    int readers = 0;
    bool dropped = false;  // its page is known no more
  };
  std::unordered_map<Slot, Reads> reads_;  // of slots that are being read
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TIERS_HOST_STORE_H_
