#include "server/base/memory_budget.h"

namespace annulus::server {

bool MemoryBudget::TryTake(size_t bytes) {
  size_t used = used_.load(std::memory_order_relaxed);
  do {
    if (bytes > limit_ || used > limit_ - bytes) return false;
  } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  size_t most = most_.load(std::memory_order_relaxed);
  while (most < used + bytes &&
         !most_.compare_exchange_weak(most, used + bytes, std::memory_order_relaxed)) {
  }
  return true;
}

void MemoryBudget::GiveBack(size_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }

MemoryLease::~MemoryLease() {
  if (budget_ != nullptr) budget_->GiveBack(bytes_);
}

MemoryLease::MemoryLease(MemoryLease&& other) noexcept
    : budget_(std::move(other.budget_)), bytes_(std::exchange(other.bytes_, 0)) {}

bool MemoryLease::TryResize(size_t bytes) {
  if (bytes > bytes_ && !budget_->TryTake(bytes - bytes_)) return false;
  if (bytes < bytes_) budget_->GiveBack(bytes_ - bytes);
  bytes_ = bytes;
  return true;
}

}  // namespace annulus::server
