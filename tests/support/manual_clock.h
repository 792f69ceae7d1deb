#ifndef ANNULUS_TESTS_SUPPORT_MANUAL_CLOCK_H_
#define ANNULUS_TESTS_SUPPORT_MANUAL_CLOCK_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/base/clock.h"
#include "tests/support/eventually.h"

namespace annulus::testing {

// A clock that only Advance moves. Its time has nothing to do with the machine's: a deadline must
// be made from Now().
class ManualClock final : public Clock {
 public:
  SteadyTime Now() const override {
    return SteadyTime(SteadyTime::duration(ticks_.load(std::memory_order_acquire)));
  }

  // Moves the time by `step`, >= 0, and wakes all who wait for this clock. The caller must not hold
  // a lock with which somebody waits.
  void Advance(SteadyTime::duration step) {
    std::unique_lock own(mutex_);
    ticks_.fetch_add(step.count(), std::memory_order_acq_rel);
    std::vector<const Waiter*> asleep = waiters_;
    while (true) {
      std::erase_if(asleep, [this](const Waiter* each) { return IsGone(each) || Wake(*each); });
      if (asleep.empty()) return;
      own.unlock();
      std::this_thread::yield();  // one of them holds its lock, and may need mutex_ to release it
      own.lock();
    }
  }

  // Moves the time by `step` every few milliseconds until `condition()` is true. False: it did not
  // come true within a minute of the machine's time.
  template <typename Condition>
  bool AdvanceUntil(const Condition& condition,
                    SteadyTime::duration step = std::chrono::milliseconds(100)) {
    return Eventually([&] {
      if (condition()) return true;
      Advance(step);
      return false;
    });
  }

  // Waits until at least `count` calls of WaitUntil are blocked. False: they did not come.
  bool WaitForWaiters(size_t count) const {
    std::unique_lock own(mutex_);
    return came_.wait_for(own, std::chrono::seconds(60), [&] { return waiters_.size() >= count; });
  }

 protected:
  void Wait(SteadyTime deadline, std::unique_lock<std::mutex>& lock,
            std::condition_variable& changed) const override {
    const Waiter waiter{lock.mutex(), &changed};
    {
      std::lock_guard own(mutex_);
      waiters_.push_back(&waiter);
    }
    came_.notify_all();
    // What was advanced before is seen here; who advances from now on finds the waiter.
    if (Now() < deadline) changed.wait(lock);
    std::lock_guard own(mutex_);
    std::erase(waiters_, &waiter);
  }

 private:
  struct Waiter {
    std::mutex* mutex = nullptr;
    std::condition_variable* changed = nullptr;
  };

  // These require mutex_.
  bool IsGone(const Waiter* waiter) const {
    return std::find(waiters_.begin(), waiters_.end(), waiter) == waiters_.end();
  }
  // False if the waiter is not asleep yet, or not any more: it holds its lock.
  static bool Wake(const Waiter& waiter) {
    const std::unique_lock theirs(*waiter.mutex, std::try_to_lock);
    if (!theirs.owns_lock()) return false;
    waiter.changed->notify_all();
    return true;
  }

  // Far enough from zero that times before Now() are no special ones.
  std::atomic<SteadyTime::duration::rep> ticks_{
      SteadyTime::duration(std::chrono::hours(1)).count()};
  mutable std::mutex mutex_;
  mutable std::condition_variable came_;
  mutable std::vector<const Waiter*> waiters_;
};

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_SUPPORT_MANUAL_CLOCK_H_
