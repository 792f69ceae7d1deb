#ifndef ANNULUS_ENGINE_RING_WORK_TIMER_H_
#define ANNULUS_ENGINE_RING_WORK_TIMER_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace annulus {

// Measures how long ops take without waiting for them: by the host's clock if ops are done when
// they return, else by events around them. Not thread-safe.
class WorkTimer {
 public:
  // Ops of a backend with host-accessible memory are done when they return.
  explicit WorkTimer(Backend& backend)
      : backend_(backend), by_events_(!backend.capabilities().host_accessible) {}

  // Calls `ops`, which enqueues work on `stream`, and returns its status.
  absl::Status Time(Stream& stream, absl::FunctionRef<absl::Status()> ops);

  // Blocks until the device has finished all timed calls except the last kAhead, ignoring those
  // recorded into a graph that was not launched. A caller that does this regularly knows that the
  // device makes progress.
  absl::Status Follow();
  static constexpr size_t kAhead = 2;

  // Seconds of all timed calls since the last Take or Forget. Call only while their streams are
  // idle.
  absl::StatusOr<double> Take();
  void Forget();

 private:
  absl::Status Mark(Stream& stream);

  Backend& backend_;
  const bool by_events_;
  double seconds_ = 0;  // by the host's clock
  // Before and after each call; the first used_ are in use.
  std::vector<std::unique_ptr<Event>> events_;
  size_t used_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_WORK_TIMER_H_
