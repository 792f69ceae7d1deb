#ifndef ANNULUS_ENGINE_RING_EVENT_POOL_H_
#define ANNULUS_ENGINE_RING_EVENT_POOL_H_

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/base/status_macros.h"

namespace annulus {

// Reuses the events of one device: an event returns to the pool when its last owner goes. The pool
// lives until all have returned. Thread-safe.
class EventPool : public std::enable_shared_from_this<EventPool> {
 public:
  explicit EventPool(Backend& device) : device_(device) {}

  absl::StatusOr<std::shared_ptr<Event>> Take() {
    std::unique_ptr<Event> event;
    {
      std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        event = std::move(idle_.back());
        idle_.pop_back();
      }
    }
    if (event == nullptr) {
      ANNULUS_ASSIGN_OR_RETURN(event, device_.CreateEvent(/*timed=*/false));
    }
    return std::shared_ptr<Event>(event.release(), [pool = shared_from_this()](Event* back) {
      std::lock_guard lock(pool->mutex_);
      pool->idle_.emplace_back(back);
    });
  }

 private:
  Backend& device_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Event>> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_EVENT_POOL_H_
