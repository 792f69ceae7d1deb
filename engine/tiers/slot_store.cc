#include "engine/tiers/slot_store.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus {

SlotStore::SlotStore(int64_t limit_bytes, size_t page_bytes, Slot slots, int ranks,
                     const Clock& clock)
    : PageStore(limit_bytes, clock, ranks),
      page_bytes_(page_bytes),
      slots_(slots),
      memories_(static_cast<size_t>(std::max(1, ranks))) {
  // So that freeing a slot never allocates.
  for (Memory& memory : memories_) memory.free.reserve(static_cast<size_t>(slots));
}

int64_t SlotStore::SlotsIn(int64_t bytes, size_t page_bytes) {
  return std::min<int64_t>(bytes / KnownPages::FileBytes(page_bytes),
                           std::numeric_limits<Slot>::max());
}

void SlotStore::FreeOf(const PageKey& key) {
  Memory& memory = MemoryOf(key);
  const auto found = memory.slots.find(key);
  ANNULUS_CHECK(found != memory.slots.end()) << "a page without a slot";
  const Slot slot = found->second;
  memory.slots.erase(found);
  const auto read = memory.reads.find(slot);
  if (read == memory.reads.end()) {
    memory.free.push_back(slot);
  } else {
    read->second.dropped = true;
  }
}

void SlotStore::BeginRead(Slot slot, const PageKey& key) {
  if (MemoryOf(key).reads[slot].readers++ == 0) pages_.Hold(key);
}

void SlotStore::EndRead(Slot slot, const PageKey& key) {
  Memory& memory = MemoryOf(key);
  const auto read = memory.reads.find(slot);
  if (--read->second.readers > 0) return;
  const bool dropped = read->second.dropped;
  memory.reads.erase(read);
  if (dropped) {
    memory.free.push_back(slot);
  } else {
    pages_.Release(key);
  }
}

// Also counts the page's bytes.
absl::StatusOr<SlotStore::Slot> SlotStore::TakeSlot(const EntryName& name, const PageMark& mark,
                                                    int64_t use) {
  KnownPages::Wanted wanted = WantedFor(name, mark, use);
  const auto parts = static_cast<int64_t>(memories_.size());
  wanted.rank = name.key.rank;
  wanted.most /= parts;
  wanted.most_of_tenant /= parts;
  const auto given_up = pages_.MakeRoom(wanted);
  if (!given_up.has_value()) {
    return absl::ResourceExhaustedError(
        "no room: all other pages are held, are being read or were used at least as recently");
  }
  for (const EntryName& page : *given_up) FreeOf(page.key);
  Memory& memory = MemoryOf(name.key);
  if (memory.free.empty() && memory.never_used == slots_) {
    return absl::ResourceExhaustedError("no room: pages that were dropped are still being read");
  }
  pages_.Count(name.tenant, wanted.bytes, name.key.rank);
  if (memory.free.empty()) return memory.never_used++;
  const Slot slot = memory.free.back();
  memory.free.pop_back();
  return slot;
}

absl::StatusOr<bool> SlotStore::PutNew(const EntryName& name, const PageMark& mark,
                                       const PageSource& payload, int64_t use) {
  ANNULUS_CHECK(name.payload_bytes == page_bytes_) << name.payload_bytes;
  Memory& memory = MemoryOf(name.key);
  Slot slot = 0;
  {
    std::lock_guard lock(mutex_);
    ANNULUS_ASSIGN_OR_RETURN(slot, TakeSlot(name, mark, use));
  }
  bool placed = false;
  bool known = false;
  const absl::Cleanup end = [&] {  // also if an allocation throws
    if (known) return;
    std::lock_guard lock(mutex_);
    if (placed) memory.slots.erase(name.key);
    pages_.Count(name.tenant, -KnownPages::FileBytes(page_bytes_), name.key.rank);
    memory.free.push_back(slot);
  };
  ANNULUS_RETURN_IF_ERROR(WriteSlot(slot, mark, payload));
  std::lock_guard lock(mutex_);
  if (IsForgotten(mark) || pages_.Find(name.key) != nullptr) return false;
  placed = memory.slots.emplace(name.key, slot).second;
  pages_.Add(name, use);
  known = true;
  return true;
}

absl::StatusOr<bool> SlotStore::AddDocuments(const EntryName& known, const PageMark& mark) {
  std::lock_guard lock(mutex_);
  const KnownPages::Page* const page = pages_.Find(known.key);
  if (page == nullptr) return false;  // the page was dropped meanwhile
  DocumentSet documents = page->name.documents;
  documents.Add(mark.documents);
  pages_.SetDocuments(known.key, documents);
  if (!IsForgotten(mark)) return false;
  pages_.Drop(known.key);
  FreeOf(known.key);
  return false;
}

absl::StatusOr<std::optional<double>> SlotStore::Read(const EntryName& name,
                                                      const PageMark& expected,
                                                      const PageTarget& payload, int64_t /*use*/) {
  if (payload.size() != page_bytes_) return absl::NotFoundError("the page has a wrong length");
  Slot slot = 0;
  {
    std::lock_guard lock(mutex_);
    const Memory& memory = MemoryOf(name.key);
    const auto found = memory.slots.find(name.key);
    if (found == memory.slots.end()) return absl::NotFoundError("the page is gone");
    slot = found->second;
    BeginRead(slot, name.key);
  }
  const absl::Cleanup end = [&] {
    std::lock_guard lock(mutex_);
    EndRead(slot, name.key);
  };
  return ReadSlot(slot, expected, payload);
}

bool SlotStore::OnDropped(const EntryName& name) {
  FreeOf(name.key);
  return false;
}

absl::Status SlotStore::RemoveForgotten(const EntryName& /*page*/) {
  return absl::OkStatus();  // OnDropped has freed the slot already
}

}  // namespace annulus
