#include "tests/support/counting_heap.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace annulus::testing {
namespace {

std::atomic<int64_t> held{0};
std::atomic<int64_t> most{0};

void* Count(void* block) {
  if (block == nullptr) throw std::bad_alloc();
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

int64_t TakeHeapBytesMost() { return most.exchange(held); }

}  // namespace annulus::testing

// The forms for arrays end up here by default; under the address sanitizer they and their deletes
// are its own.
void* operator new(size_t bytes) { return annulus::testing::Count(std::malloc(bytes)); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  const auto unit = static_cast<size_t>(alignment);
  return annulus::testing::Count(std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit));
}
// The address sanitizer has this form of its own as well, which a plain delete would not match.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  void* const block = std::malloc(bytes);
  return block == nullptr ? nullptr : annulus::testing::Count(block);
}
void operator delete(void* block) noexcept { annulus::testing::Release(block); }
void operator delete(void* block, size_t) noexcept { annulus::testing::Release(block); }
void operator delete(void* block, std::align_val_t) noexcept { annulus::testing::Release(block); }
void operator delete(void* block, size_t, std::align_val_t) noexcept {
  annulus::testing::Release(block);
}
