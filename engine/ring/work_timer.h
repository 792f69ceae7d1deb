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

// How long some ops take, without waiting for their end: by the host's clock where they
// are done when they return, else by events before and behind them. Not thread-safe.
class WorkTimer {
 public:
  // Ops of a backend whose memory the host reaches are done when they return.
  explicit WorkTimer(Backend& backend)
      : backend_(backend), by_events_(!backend.capabilities().host_accessible) {}

  // Calls `ops`, which enqueues them on `stream`, and returns what it does.
  absl::Status Time(Stream& stream, absl::FunctionRef<absl::Status()> ops);

  // Waits until the device has done all calls but the last kAhead, those that are held back left
  // out: who calls this now and then knows that work goes on.
  absl::Status Follow();
  static constexpr size_t kAhead = 2;

  // Seconds of all calls since the last Take or Forget. Only while their streams are idle.
  absl::StatusOr<double> Take();
  void Forget();

 private:
  absl::Status Mark(Stream& stream);

  Backend& backend_;
  const bool by_events_;
  double seconds_ = 0;                          // by the host's clock
  std::vector<std::unique_ptr<Event>> events_;  // before and behind each call, the first used_
  size_t used_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_WORK_TIMER_H_
