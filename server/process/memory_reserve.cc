#include "server/process/memory_reserve.h"

#include <atomic>
#include <cstdlib>
#include <new>

#include "kernels/base/check.h"

namespace annulus::server {
namespace {

std::atomic<void*> reserve{nullptr};
std::atomic<bool> in_use{false};

// The new handler: operator new calls it when there is no memory, and tries again when it returns.
void UseReserve() {
  // If a small allocation is possible, a large one has failed: do not use the reserve for it.
  if (void* const probe = std::malloc(MemoryReserve::kSmall); probe != nullptr) {
    std::free(probe);
    throw std::bad_alloc();
  }
  void* const block = reserve.exchange(nullptr);
  if (block == nullptr) throw std::bad_alloc();
  std::free(block);
}

}  // namespace

MemoryReserve::MemoryReserve() {
  ANNULUS_CHECK(!in_use.exchange(true)) << "a process has one reserve of memory";
  Restore();
  std::set_new_handler(UseReserve);
}

MemoryReserve::~MemoryReserve() {
  std::set_new_handler(nullptr);
  std::free(reserve.exchange(nullptr));
  in_use = false;
}

bool MemoryReserve::Gone() {
  return in_use.load(std::memory_order_relaxed) &&
         reserve.load(std::memory_order_relaxed) == nullptr;
}

bool MemoryReserve::Restore() {
  if (!Gone()) return true;
  void* const block = std::malloc(kBytes);
  void* expected = nullptr;
  if (block != nullptr && !reserve.compare_exchange_strong(expected, block)) std::free(block);
  return block != nullptr;
}

}  // namespace annulus::server
