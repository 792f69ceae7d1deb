#ifndef ANNULUS_ENGINE_WORKERS_WORKER_BOARD_H_
#define ANNULUS_ENGINE_WORKERS_WORKER_BOARD_H_

#include <mutex>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "engine/api/workers.h"
#include "engine/base/clock.h"

namespace annulus {

// What a worker says of itself: ServeRanks writes it, anybody may read it. Thread-safe.
class WorkerBoard {
 public:
  // Times are those of `clock`, which must outlive the board.
  explicit WorkerBoard(const Clock& clock) : clock_(clock) {}

  WorkerStatus Read() const {
    std::lock_guard lock(mutex_);
    WorkerStatus status = status_;
    if (waits_since_.has_value()) {
      status.waited_seconds += SecondsBetween(*waits_since_, clock_.Now());
    }
    return status;
  }

  // Calls `change` with the status, to be written.
  template <typename Change>
  void Update(const Change& change) {
    std::lock_guard lock(mutex_);
    change(status_);
  }

  // The ranks have nothing to do until the coordinator sends something, or do not wait any more.
  void Wait() {
    std::lock_guard lock(mutex_);
    waits_since_ = clock_.Now();
  }
  void GoOn() {
    std::lock_guard lock(mutex_);
    if (!waits_since_.has_value()) return;
    status_.waited_seconds += SecondsBetween(*waits_since_, clock_.Now());
    waits_since_.reset();
  }

 private:
  const Clock& clock_;
  mutable std::mutex mutex_;
  WorkerStatus status_ ABSL_GUARDED_BY(mutex_);
  std::optional<SteadyTime> waits_since_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_WORKERS_WORKER_BOARD_H_
