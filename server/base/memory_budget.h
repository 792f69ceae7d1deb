#ifndef ANNULUS_SERVER_BASE_MEMORY_BUDGET_H_
#define ANNULUS_SERVER_BASE_MEMORY_BUDGET_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace annulus::server {

// A number of bytes that several holders share. Thread-safe.
class MemoryBudget {
 public:
  explicit MemoryBudget(size_t limit) : limit_(limit) {}
  // Returns false, and takes nothing, if fewer bytes are available.
  bool TryTake(size_t bytes);
  void GiveBack(size_t bytes);
  size_t limit() const { return limit_; }
  size_t used() const { return used_.load(std::memory_order_relaxed); }
  // The most that was ever in use at a time.
  size_t most() const { return most_.load(std::memory_order_relaxed); }
  size_t available() const { return limit_ - used(); }  // used() never exceeds the limit

 private:
  const size_t limit_;
  std::atomic<size_t> used_{0};
  std::atomic<size_t> most_{0};
};

// A share of a budget; the destructor gives it back. Not thread-safe.
class MemoryLease {
 public:
  explicit MemoryLease(std::shared_ptr<MemoryBudget> budget) : budget_(std::move(budget)) {}
  ~MemoryLease();
  MemoryLease(MemoryLease&& other) noexcept;
  MemoryLease& operator=(MemoryLease&&) = delete;

  // Sets the size of the share. Returns false, and changes nothing, if the budget has no room.
  [[nodiscard]] bool TryResize(size_t bytes);
  const MemoryBudget& budget() const { return *budget_; }
  size_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<MemoryBudget> budget_;
  size_t bytes_ = 0;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_BASE_MEMORY_BUDGET_H_
