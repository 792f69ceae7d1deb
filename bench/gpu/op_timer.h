#ifndef ANNULUS_BENCH_GPU_OP_TIMER_H_
#define ANNULUS_BENCH_GPU_OP_TIMER_H_

#include <cstddef>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace annulus {

// Seconds of one run of an op, each a median.
struct OpSeconds {
  double device = 0;   // between two events around `runs` of them, over their number
  double host = 0;     // from the call until the host knows that it is done
  double enqueue = 0;  // of the call alone, with nothing before it
  int runs = 1;        // enqueued one behind the other between two events
};

// Times ops of a device that works on while the host goes on. Not thread-safe; the stream outlives
// it and does nothing else meanwhile.
class OpTimer {
 public:
  // `enough_seconds`: of one measurement. `copied_bytes` > 0: of the copy inside the device that
  // the device is kept busy with while the host enqueues short ops behind it, so that it never
  // waits for the next of them; twice as much memory is held for it.
  static absl::StatusOr<OpTimer> Create(Backend& backend, Stream& stream, double enough_seconds,
                                        size_t copied_bytes);

  // The op, which only enqueues, some times in a row behind such copies; the first run of all does
  // not count. Where the device had to wait for the host all the same, as the op waits for the
  // device itself, `enqueue` is about as long as `device`.
  absl::StatusOr<OpSeconds> Time(const std::function<absl::Status()>& op);

  // The op alone, `runs` = 1, between events that are set right before and after the call: with
  // what the device waits for the host within it.
  absl::StatusOr<OpSeconds> TimeAlone(const std::function<absl::Status()>& op);

  // Measures the copy again.
  absl::Status TimeCopy();
  // Bytes read and written by one copy, and its seconds.
  double copied_bytes() const { return 2 * static_cast<double>(from_.size()); }
  double copy_seconds() const { return copy_.device; }
  double copy_host_seconds() const { return copy_.host; }

 private:
  OpTimer(Backend& backend, Stream& stream, double enough_seconds)
      : backend_(backend), stream_(stream), enough_seconds_(enough_seconds) {}
  absl::Status FillCopied();
  absl::Status Copy();
  absl::StatusOr<double> HostSeconds(const std::function<absl::Status()>& op, double* enqueue);
  absl::StatusOr<double> DeviceSeconds(const std::function<absl::Status()>& op, int runs,
                                       int copies);
  absl::StatusOr<OpSeconds> Measure(const std::function<absl::Status()>& op, bool in_a_row);

  Backend& backend_;
  Stream& stream_;
  const double enough_seconds_;
  DeviceBuffer from_, to_;
  std::unique_ptr<Event> begin_, end_;
  OpSeconds copy_;
};

}  // namespace annulus

#endif  // ANNULUS_BENCH_GPU_OP_TIMER_H_
