#ifndef ANNULUS_ENGINE_BASE_WORK_METER_H_
#define ANNULUS_ENGINE_BASE_WORK_METER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

// How long work takes that depends on a client's data is not known beforehand. So such work counts
// its steps while it runs: a limit on steps bounds it, and a flag that another thread sets ends it
// early.
//
//   CancelFlag shutdown;                      // one for the daemon
//   CancelFlag call(&shutdown);               // one for each call
//   engine.Tokenize(text, true, call);        // on a worker thread
//   call.Cancel();                            // on the thread that hears of the cancellation
//
// Tokenize then returns CANCELLED within about a millisecond.

namespace annulus {

// Asks work to end. Set once and never reset. Thread-safe and lock-free.
class CancelFlag {
 public:
  CancelFlag() = default;
  // A flag that also counts as set when `parent` is set. `parent` must outlive it.
  explicit CancelFlag(const CancelFlag* parent) : parent_(parent) {}
  virtual ~CancelFlag() = default;
  CancelFlag(const CancelFlag&) = delete;
  CancelFlag& operator=(const CancelFlag&) = delete;

  void Cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const {
    return cancelled_.load(std::memory_order_relaxed) ||
           (parent_ != nullptr && parent_->cancelled());
  }

  // The work calls this whenever it looks at the flag, about once a millisecond at most, on its own
  // thread and without holding a lock. An owner whose clients share threads may override it to let
  // other work run first.
  virtual void MayPause() const {}

  // Calls `wait`, which blocks without using a processor, for example on a disk, and must return
  // soon after the flag is set. An owner whose clients share threads may override it to let other
  // work run meanwhile.
  virtual void WaitAside(const std::function<void()>& wait) const { wait(); }

  // A flag that is never set, for work that no client waits for.
  static const CancelFlag& Never();

 private:
  std::atomic<bool> cancelled_{false};
  const CancelFlag* const parent_ = nullptr;
};

// Steps for plain work on `bytes` bytes, such as copying them or searching them in linear time.
inline constexpr int64_t StepsFor(size_t bytes) { return 1 + static_cast<int64_t>(bytes / 64); }

// Counts the steps of one piece of work. Not thread-safe; only the flag may be set by others.
//
// A step is a bounded amount of work, up to a few hundred nanoseconds. Code that works on client
// data counts steps right before or after the work: 1 for work of fixed size, StepsFor(n) for
// reading, writing or comparing n bytes. Work between two counts may grow with the data only if it
// is known to be short, such as one pass over a slice of 64 KiB.
class WorkMeter {
 public:
  // At most this many steps pass between two looks at the flag.
  static constexpr int64_t kStepsBetweenChecks = 1024;

  // `what` names the work in the message for too many steps ("the template"); it and `cancel` must
  // outlive the meter.
  WorkMeter(absl::string_view what, int64_t limit, const CancelFlag& cancel)
      : what_(what), cancel_(cancel), limit_(limit) {}

  // Counts `n` steps. CANCELLED if the flag is set, INVALID_ARGUMENT with the limit if it is
  // exceeded; the work must then end, and every later call returns an error too.
  absl::Status Step(int64_t n = 1) {
    if (__builtin_add_overflow(steps_, n, &steps_)) steps_ = std::numeric_limits<int64_t>::max();
    return steps_ < next_check_ ? absl::OkStatus() : Check();
  }

  // Raises the limit by `n`, for data that comes in parts.
  void Allow(int64_t n) { limit_ += n; }

  int64_t steps() const { return steps_; }
  int64_t limit() const { return limit_; }

 private:
  absl::Status Check();

  const absl::string_view what_;
  const CancelFlag& cancel_;
  int64_t limit_;
  int64_t steps_ = 0;
  int64_t next_check_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_BASE_WORK_METER_H_
