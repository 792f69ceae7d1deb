#include "tests/support/cuda/guarded_memory.h"

#include <sys/mman.h>

#include <cstring>
#include <iterator>

#include "kernels/base/check.h"

namespace annulus::cuda {
namespace {

constexpr size_t kGuardAlignment = 256;

size_t Rounded(size_t bytes) {
  return (bytes + kGuardAlignment - 1) / kGuardAlignment * kGuardAlignment;
}

}  // namespace

GuardedMemory::GuardedMemory(size_t capacity) : capacity_(capacity) {
  void* const memory =
      mmap(nullptr, capacity, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ANNULUS_CHECK(memory != MAP_FAILED) << "mapping " << capacity << " bytes";
  base_ = static_cast<std::byte*>(memory);
}

GuardedMemory::~GuardedMemory() { munmap(base_, capacity_); }

std::byte* GuardedMemory::Allocate(size_t bytes) {
  size_t offset = 0;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [begin, held] : blocks_) {
      if (begin - offset >= Rounded(bytes)) break;
      offset = begin + Rounded(held);
    }
    if (capacity_ - offset < Rounded(bytes)) return nullptr;
    blocks_[offset] = bytes;
  }
  const Access access(this);
  std::memset(base_ + offset, 0xff, bytes);  // NaN in every format
  return base_ + offset;
}

size_t GuardedMemory::RoomAt(const std::byte* address) {
  std::lock_guard lock(mutex_);
  const auto offset = static_cast<size_t>(address - base_);
  const auto after = blocks_.upper_bound(offset);
  if (after == blocks_.begin()) return 0;
  const auto& [begin, bytes] = *std::prev(after);
  return offset < begin + bytes ? begin + bytes - offset : 0;
}

bool GuardedMemory::HoldsBlockAt(const std::byte* address) {
  return RoomAt(address) > 0 || (address > base_ && RoomAt(address - 1) > 0);
}

size_t GuardedMemory::Free(std::byte* block) {
  const size_t room = RoomAt(block);
  {
    const Access access(this);
    std::memset(block, 0xff, room);  // who reads it now reads NaN
  }
  std::lock_guard lock(mutex_);
  const auto found = blocks_.find(static_cast<size_t>(block - base_));
  ANNULUS_CHECK(found != blocks_.end()) << "not the start of a block";
  const size_t bytes = found->second;
  blocks_.erase(found);
  return bytes;
}

void GuardedMemory::Enter() {
  std::lock_guard lock(mutex_);
  ++users_;
  if (open_ || blocks_.empty()) return;  // where there are no blocks, nothing may be touched
  ANNULUS_CHECK(mprotect(base_, capacity_, PROT_READ | PROT_WRITE) == 0);
  open_ = true;
}

void GuardedMemory::Leave() {
  std::lock_guard lock(mutex_);
  if (--users_ > 0 || !open_) return;
  ANNULUS_CHECK(mprotect(base_, capacity_, PROT_NONE) == 0);
  open_ = false;
}

}  // namespace annulus::cuda
