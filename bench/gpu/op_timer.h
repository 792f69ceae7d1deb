#ifndef ANNULUS_BENCH_GPU_OP_TIMER_H_
#define ANNULUS_BENCH_GPU_OP_TIMER_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace annulus::bench {

// Seconds per run of an op; each is a median.
struct OpSeconds {
  double device = 0;   // between two events around `runs` runs, divided by `runs`
  double host = 0;     // from the call until the host knows that the op is done
  double enqueue = 0;  // of the call alone, with nothing queued before it
  int runs = 1;        // runs enqueued in a row between two events
};

// Times ops of a device that works asynchronously. Not thread-safe. The stream must outlive the
// timer and do nothing else meanwhile.
class OpTimer {
 public:
  // `enough_seconds` is the duration of one measurement. If `copied_bytes` > 0, a copy of that size
  // inside the device runs first, and keeps the device busy while the host enqueues short ops, so
  // that the device never waits for the next one. The timer holds twice as much memory for it.
  static absl::StatusOr<OpTimer> Create(Backend& backend, Stream& stream, double enough_seconds,
                                        size_t copied_bytes);

  // Times an op that only enqueues work, several runs in a row after such copies; the very first
  // run does not count. If the op itself waits for the device, the device has to wait for the host
  // in spite of the copies; `enqueue` is then about as long as `device`.
  absl::StatusOr<OpSeconds> Time(const std::function<absl::Status()>& op);

  // Times single runs (`runs` = 1) between events recorded right before and after the call.
  // Includes the time that the device waits for the host within the op.
  absl::StatusOr<OpSeconds> TimeAlone(const std::function<absl::Status()>& op);

  // Times ops like Time, with one round of each after the other: whatever changes the device's
  // speed meanwhile meets all of them. Takes `enough_seconds` for each.
  absl::StatusOr<std::vector<OpSeconds>> TimeInTurn(
      std::span<const std::function<absl::Status()>> ops);

  // Measures the copy anew.
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
  // The rounds of one op.
  struct Series {
    const std::function<absl::Status()>* op = nullptr;
    int runs = 1;    // in a row
    int copies = 0;  // before them
    std::vector<double> device, host, enqueue;
  };
  absl::StatusOr<Series> Begin(const std::function<absl::Status()>& op, bool in_a_row);
  absl::Status RunRound(Series& series);
  absl::StatusOr<std::vector<OpSeconds>> Measure(std::span<const std::function<absl::Status()>> ops,
                                                 bool in_a_row);

  Backend& backend_;
  Stream& stream_;
  const double enough_seconds_;
  DeviceBuffer from_, to_;
  std::unique_ptr<Event> begin_, end_;
  OpSeconds copy_;
};

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_GPU_OP_TIMER_H_
