#ifndef ANNULUS_ENGINE_BASE_BOUNDED_QUEUE_H_
#define ANNULUS_ENGINE_BASE_BOUNDED_QUEUE_H_

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "engine/base/clock.h"

namespace annulus {

// A first-in, first-out queue between threads of at most `capacity` items. Any number of producers
// and consumers; every method is thread-safe.
template <typename T>
class BoundedQueue {
 public:
  // `clock` must outlive the queue; deadlines are its times.
  explicit BoundedQueue(size_t capacity, const Clock& clock = Clock::Real())
      : capacity_(capacity), clock_(clock) {}
  BoundedQueue(const BoundedQueue&) = delete;
  BoundedQueue& operator=(const BoundedQueue&) = delete;

  // Returns false, and drops the item, if the queue is full or closed. Never waits for room.
  bool TryPush(T item) {
    {
      std::lock_guard lock(mutex_);
      if (closed_ || items_.size() >= capacity_) return false;
      items_.push_back(std::move(item));
    }
    arrived_.notify_one();
    return true;
  }

  // Takes the oldest item, waiting for one until `deadline`. Nothing if none came, or if the queue
  // is closed and empty. With a deadline in the past, does not wait.
  std::optional<T> Pop(SteadyTime deadline) {
    std::unique_lock lock(mutex_);
    clock_.WaitUntil(deadline, lock, arrived_, [this] { return closed_ || !items_.empty(); });
    if (items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    return item;
  }

  // Moves all items to the end of `out`, in order, without waiting. Returns their number.
  size_t DrainInto(std::vector<T>& out) {
    std::deque<T> taken;
    {
      std::lock_guard lock(mutex_);
      taken.swap(items_);
    }
    for (T& item : taken) out.push_back(std::move(item));
    return taken.size();
  }

  // Refuses all later pushes and wakes all waiters. Items in the queue can still be taken.
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
  const size_t capacity_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<T> items_;
  bool closed_ = false;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_BASE_BOUNDED_QUEUE_H_
