#ifndef ANNULUS_ENGINE_TIERS_SLOT_STORE_H_
#define ANNULUS_ENGINE_TIERS_SLOT_STORE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/tiers/page_store.h"

namespace annulus {

// A PageStore whose memory is cut into equal slots, each for one page: of one memory, or of one
// beside each rank. Each has an equal part of the limits. This class decides which slot has which
// page; derived classes copy the bytes. No slot is read or written by two calls at once, but for
// reads.
class SlotStore : public PageStore {
 public:
  // How many slots fit into so many bytes of one memory.
  static int64_t SlotsIn(int64_t bytes, size_t page_bytes);

  absl::Status RemoveForgotten(const EntryName& page) override;

  // The most bytes that pages have taken at once so far, of what this process has.
  virtual int64_t resident_bytes() const = 0;

 protected:
  using Slot = int32_t;

  // `page_bytes`: size of every page; `slots`: at least one, of each memory; `ranks`: as for
  // PageStore.
  SlotStore(int64_t limit_bytes, size_t page_bytes, Slot slots, int ranks, const Clock& clock);

  // Copies a page into a slot, or from a slot that has it, of the memory beside the payload's rank.
  // Called without the lock. Errors: those of Put and Get.
  virtual absl::Status WriteSlot(Slot slot, const PageMark& mark, const PageSource& payload) = 0;
  virtual absl::StatusOr<std::optional<double>> ReadSlot(Slot slot, const PageMark& expected,
                                                         const PageTarget& payload) = 0;

  size_t page_bytes() const { return page_bytes_; }
  // How many slots of the memory were ever used. Requires the lock.
  Slot EverUsed(int memory) const { return memories_[static_cast<size_t>(memory)].never_used; }

 private:
  struct Reads {
    int readers = 0;
    bool dropped = false;  // the slot's page was dropped meanwhile
  };
  struct Memory {
    std::unordered_map<PageKey, Slot, PageKeyHash> slots;  // has every known page of the memory
    std::vector<Slot> free;                                // used before and free again
    Slot never_used = 0;                                   // first slot that was never used
    std::unordered_map<Slot, Reads> reads;                 // has every slot that is being read
  };

  absl::StatusOr<bool> PutNew(const EntryName& name, const PageMark& mark,
                              const PageSource& payload, int64_t use) override;
  absl::StatusOr<bool> AddDocuments(const EntryName& known, const PageMark& mark) override;
  absl::StatusOr<std::optional<double>> Read(const EntryName& name, const PageMark& expected,
                                             const PageTarget& payload, int64_t use) override;
  bool OnDropped(const EntryName& name) override;

  Memory& MemoryOf(const PageKey& key) {
    return memories_[key.rank == PageKey::kAnyRank ? 0 : static_cast<size_t>(key.rank)];
  }
  // These require the lock. A page that is being read is held: dropping it would not make room,
  // since its slot becomes free only when its last reader ends.
  absl::StatusOr<Slot> TakeSlot(const EntryName& name, const PageMark& mark, int64_t use);
  void FreeOf(const PageKey& key);
  void BeginRead(Slot slot, const PageKey& key);
  void EndRead(Slot slot, const PageKey& key);

  const size_t page_bytes_;
  const Slot slots_;              // of each memory
  std::vector<Memory> memories_;  // one, or beside each rank
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TIERS_SLOT_STORE_H_
