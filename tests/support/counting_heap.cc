#include "tests/support/counting_heap.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace annulus::testing {
namespace {

std::atomic<int64_t> held{0};
std::atomic<int64_t> most{0};
std::atomic<int64_t> allocations{0};

std::atomic<size_t> fail_from{SIZE_MAX};
std::atomic<int64_t> fail_after{0};
std::atomic<bool> has_failed{false};
thread_local bool spared = false;    // asked for the failure of others
thread_local int64_t own_left = -1;  // before its own fails; negative: none does

bool Fails(size_t bytes) {
  if (bytes > 0 && own_left >= 0 && own_left-- == 0) {
    has_failed = true;
    return true;
  }
  if (bytes < fail_from.load(std::memory_order_relaxed) || spared) return false;
  if (fail_after.fetch_sub(1) != 0) return false;
  has_failed = true;
  return true;
}

void* Count(size_t bytes, void* block) {
  if (Fails(bytes)) {
    std::free(block);
    throw std::bad_alloc();
  }
  if (block == nullptr) throw std::bad_alloc();
  allocations.fetch_add(1, std::memory_order_relaxed);
  const int64_t now = held.fetch_add(static_cast<int64_t>(malloc_usable_size(block))) +
                      static_cast<int64_t>(malloc_usable_size(block));
  int64_t seen = most.load();
  while (seen < now && !most.compare_exchange_weak(seen, now)) {
  }
  return block;
}

void Release(void* block) {
  held.fetch_sub(static_cast<int64_t>(malloc_usable_size(block)));
  std::free(block);
}

}  // namespace

int64_t HeapBytes() { return held; }

int64_t HeapAllocations() { return allocations; }

int64_t TakeHeapBytesMost() { return most.exchange(held); }

void FailAllocation(size_t least_bytes, int64_t nth) {
  spared = true;
  has_failed = false;
  fail_after = nth;
  fail_from = least_bytes;
}

void FailOwnAllocation(int64_t nth) {
  has_failed = false;
  own_left = nth;
}

bool TakeAllocationFailed() {
  fail_from = SIZE_MAX;
  return has_failed;
}

}  // namespace annulus::testing

// The forms for arrays end up here by default; under the address sanitizer they and their deletes
// are its own.
void* operator new(size_t bytes) { return annulus::testing::Count(bytes, std::malloc(bytes)); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  const auto unit = static_cast<size_t>(alignment);
  return annulus::testing::Count(bytes, std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit));
}
// The address sanitizer has this form of its own as well, which a plain delete would not match.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  void* const block = std::malloc(bytes);
  // What may fail without a word is not made to: its callers do without.
  return block == nullptr ? nullptr : annulus::testing::Count(0, block);
}
void operator delete(void* block) noexcept { annulus::testing::Release(block); }
void operator delete(void* block, size_t) noexcept { annulus::testing::Release(block); }
void operator delete(void* block, std::align_val_t) noexcept { annulus::testing::Release(block); }
void operator delete(void* block, size_t, std::align_val_t) noexcept {
  annulus::testing::Release(block);
}
