#ifndef ANNULUS_ENGINE_BASE_BOUNDED_QUEUE_H_
#define ANNULUS_ENGINE_BASE_BOUNDED_QUEUE_H_

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "engine/base/steady_time.h"

namespace annulus {

// A first-in, first-out queue between threads that never grows beyond `capacity` items, plus
// `reserved` more that only TryPushReserved may use. So cancels find room when the queue is full of
// work: where each piece of work is cancelled at most once, `reserved` as large as the most work
// alive makes every cancel fit. Many producers, many consumers; every method is thread-safe.
//
// Waiting uses std::condition_variable, which waits on the steady clock itself; absl::Mutex turns a
// timeout into wall-clock time, and a jump of that clock would lengthen the wait.
template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity, size_t reserved = 0)
      : capacity_(capacity), reserved_(reserved) {}
  BoundedQueue(const BoundedQueue&) = delete;
  BoundedQueue& operator=(const BoundedQueue&) = delete;

  // False when the queue is full or closed; the item is then dropped. Never waits for room.
  bool TryPush(T item) { return Push(std::move(item), capacity_); }

  // The same with the reserved room.
  bool TryPushReserved(T item) { return Push(std::move(item), capacity_ + reserved_); }

  // The oldest item. Waits until `deadline` for one; nothing when none came, or when the queue is
  // closed and empty. A deadline in the past takes what is there.
  std::optional<T> Pop(SteadyTime deadline) {
    std::unique_lock lock(mutex_);
    arrived_.wait_until(lock, deadline, [this] { return closed_ || !items_.empty(); });
    if (items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    return item;
  }

  // Appends everything that is there, in order, without waiting; returns how many.
  size_t DrainInto(std::vector<T>& out) {
    std::deque<T> taken;
    {
      std::lock_guard lock(mutex_);
      taken.swap(items_);
    }
    for (T& item : taken) out.push_back(std::move(item));
    return taken.size();
  }

  // Refuses all later pushes and wakes all waiters. What is in the queue can still be taken.
  void Close() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    arrived_.notify_all();
  }

  bool closed() const {
    std::lock_guard lock(mutex_);
    return closed_;
  }
  size_t size() const {
    std::lock_guard lock(mutex_);
    return items_.size();
  }

 private:
  bool Push(T item, size_t limit) {
    {
      std::lock_guard lock(mutex_);
      if (closed_ || items_.size() >= limit) return false;
      items_.push_back(std::move(item));
    }
    arrived_.notify_one();
    return true;
  }

  const size_t capacity_;
  const size_t reserved_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<T> items_;
  bool closed_ = false;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_BASE_BOUNDED_QUEUE_H_
