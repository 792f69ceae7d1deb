#include "engine/tiers/host_store.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus {

absl::StatusOr<std::unique_ptr<HostStore>> HostStore::Create(int64_t limit_bytes, size_t page_bytes,
                                                             const Clock& clock) {
  const int64_t slot = KnownPages::FileBytes(page_bytes);
  const int64_t slots = std::min<int64_t>(limit_bytes / slot, std::numeric_limits<Slot>::max());
  if (slots < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a page takes ", slot, " bytes; the limit for all is ", limit_bytes));
  }
  const auto bytes = static_cast<size_t>(slots * slot);
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the system refused ", bytes, " bytes of memory for pages; lower --kv-host"));
  }
  DeviceBuffer memory(static_cast<std::byte*>(data), bytes,
                      [bytes](std::byte* block) { munmap(block, bytes); });
  return std::unique_ptr<HostStore>(
      new HostStore(limit_bytes, page_bytes, static_cast<Slot>(slots), std::move(memory), clock));
}

HostStore::HostStore(int64_t limit_bytes, size_t page_bytes, Slot slots, DeviceBuffer memory,
                     const Clock& clock)
    : PageStore(limit_bytes, clock),
      page_bytes_(page_bytes),
      memory_(std::move(memory)),
      all_slots_(slots) {
  free_.reserve(static_cast<size_t>(slots));  // so that freeing a slot never allocates
}

std::span<std::byte> HostStore::BytesOf(Slot slot) {
  const auto bytes = static_cast<size_t>(KnownPages::FileBytes(page_bytes_));
  return {memory_.data() + static_cast<size_t>(slot) * bytes, kEntryHeaderBytes + page_bytes_};
}

int64_t HostStore::resident_bytes() const {
  std::lock_guard lock(mutex_);
  return never_used_ * KnownPages::FileBytes(page_bytes_);
}

void HostStore::Free(Slot slot) {
  const auto read = reads_.find(slot);
  if (read == reads_.end()) {
    free_.push_back(slot);
  } else {
    read->second.dropped = true;
  }
}

void HostStore::FreeOf(const PageKey& key) {
  const auto found = slots_.find(key);
  ANNULUS_CHECK(found != slots_.end()) << "a page without a slot";
  const Slot slot = found->second;
  slots_.erase(found);
  Free(slot);
}

void HostStore::BeginRead(Slot slot, const PageKey& key) {
  if (reads_[slot].readers++ == 0) pages_.Hold(key);
}

void HostStore::EndRead(Slot slot, const PageKey& key) {
  const auto read = reads_.find(slot);
  if (--read->second.readers > 0) return;
  const bool dropped = read->second.dropped;
  reads_.erase(read);
  if (dropped) {
    free_.push_back(slot);
  } else {
    pages_.Release(key);
  }
}

absl::StatusOr<bool> HostStore::PutNew(const EntryName& name, const PageMark& mark,
                                       std::span<const std::span<const std::byte>> payload,
                                       int64_t use) {
  ANNULUS_CHECK(name.payload_bytes == page_bytes_) << name.payload_bytes;
  const int64_t bytes = KnownPages::FileBytes(page_bytes_);
  Slot slot = 0;
  {
    std::lock_guard lock(mutex_);
    const auto given_up = pages_.MakeRoom(WantedFor(name, mark, use));
    if (!given_up.has_value()) {
      return absl::ResourceExhaustedError(
          "no room: all other pages are held, are being read or were used at least as recently");
    }
    for (const EntryName& page : *given_up) FreeOf(page.key);
    if (free_.empty() && never_used_ == all_slots_) {
      return absl::ResourceExhaustedError("no room: pages that were dropped are still being read");
    }
    pages_.Count(name.tenant, bytes);
    if (free_.empty()) {
      slot = never_used_++;
    } else {
      slot = free_.back();
      free_.pop_back();
    }
  }
  bool placed = false;
  bool known = false;
  const absl::Cleanup end = [&] {  // also if an allocation throws
    if (known) return;
    std::lock_guard lock(mutex_);
    if (placed) slots_.erase(name.key);
    pages_.Count(name.tenant, -bytes);
    free_.push_back(slot);
  };
  const std::span<std::byte> place = BytesOf(slot);
  WriteHeader({mark, name.payload_bytes, ChecksumOf(payload)}, place.first(kEntryHeaderBytes));
  std::span<std::byte> rest = place.subspan(kEntryHeaderBytes);
  for (const std::span<const std::byte> part : payload) {
    std::memcpy(rest.data(), part.data(), part.size());
    rest = rest.subspan(part.size());
  }
  std::lock_guard lock(mutex_);
  if (IsForgotten(mark) || pages_.Find(name.key) != nullptr) return false;
  placed = slots_.emplace(name.key, slot).second;
  pages_.Add(name, use);
  known = true;
  return true;
}

absl::StatusOr<bool> HostStore::AddDocuments(const EntryName& known, const PageMark& mark) {
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

absl::StatusOr<std::optional<double>> HostStore::Read(const EntryName& name,
                                                      const PageMark& expected,
                                                      std::span<std::byte> payload,
                                                      int64_t /*use*/) {
  if (payload.size() != page_bytes_) return absl::NotFoundError("the page has a wrong length");
  Slot slot = 0;
  {
    std::lock_guard lock(mutex_);
    const auto found = slots_.find(name.key);
    if (found == slots_.end()) return absl::NotFoundError("the page is gone");
    slot = found->second;
    BeginRead(slot, name.key);
  }
  const absl::Cleanup end = [&] {
    std::lock_guard lock(mutex_);
    EndRead(slot, name.key);
  };
  const std::span<const std::byte> bytes = BytesOf(slot);
  ANNULUS_ASSIGN_OR_RETURN(const EntryHeader header, ReadHeader(bytes.first(kEntryHeaderBytes)));
  if (header.payload_bytes != payload.size() || !SamePage(header.mark, expected)) {
    return absl::DataLossError("the slot holds a different page than was stored");
  }
  std::memcpy(payload.data(), bytes.data() + kEntryHeaderBytes, payload.size());
  if (ChecksumOf(std::span<const std::byte>(payload)) != header.payload) {
    return absl::DataLossError("the page's checksum is wrong");
  }
  return header.mark.coverage;
}

bool HostStore::OnDropped(const EntryName& name) {
  FreeOf(name.key);
  return false;
}

absl::Status HostStore::RemoveForgotten(const EntryName& /*page*/) {
  return absl::OkStatus();  // OnDropped has freed the slot already
}

}  // namespace annulus
