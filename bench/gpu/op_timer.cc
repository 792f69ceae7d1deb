#include "bench/gpu/op_timer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "bench/report/statistics.h"
#include "kernels/base/status_macros.h"

namespace annulus::bench {
namespace {

using Clock = std::chrono::steady_clock;

// Ops that take longer are timed one by one: the ends of a measurement are nothing beside them.
constexpr double kLongSeconds = 0.01;
// In a row at most. More could outgrow what a stream has queued before it waits for the device.
constexpr int kMostRuns = 16;
// Before ops in a row at most: that time counts for nothing.
constexpr int kMostCopies = 16;
constexpr size_t kLeastRounds = 3;
constexpr size_t kMostRounds = 1000;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

absl::StatusOr<OpTimer> OpTimer::Create(Backend& backend, Stream& stream, double enough_seconds,
                                        size_t copied_bytes) {
  OpTimer timer(backend, stream, enough_seconds);
  ANNULUS_ASSIGN_OR_RETURN(timer.begin_, backend.CreateEvent(/*timed=*/true));
  ANNULUS_ASSIGN_OR_RETURN(timer.end_, backend.CreateEvent(/*timed=*/true));
  if (copied_bytes == 0) return timer;
  ANNULUS_ASSIGN_OR_RETURN(timer.from_, backend.Allocate(copied_bytes));
  ANNULUS_ASSIGN_OR_RETURN(timer.to_, backend.Allocate(copied_bytes));
  ANNULUS_RETURN_IF_ERROR(timer.FillCopied());
  ANNULUS_RETURN_IF_ERROR(timer.TimeCopy());
  return timer;
}

absl::Status OpTimer::TimeCopy() {
  ANNULUS_ASSIGN_OR_RETURN(copy_, TimeAlone([this] { return Copy(); }));
  return absl::OkStatus();
}

// Random bytes: zeros may travel faster.
absl::Status OpTimer::FillCopied() {
  std::mt19937 random(1);
  std::vector<uint32_t> drawn(std::min(from_.size(), size_t{1} << 22) / sizeof(uint32_t));
  for (uint32_t& word : drawn) word = static_cast<uint32_t>(random());
  const size_t bytes = drawn.size() * sizeof(uint32_t);
  for (size_t at = 0; at + bytes <= from_.size() && bytes > 0; at += bytes) {
    ANNULUS_RETURN_IF_ERROR(backend_.Copy(stream_, from_.data() + at, drawn.data(), bytes));
  }
  return stream_.Synchronize();
}

absl::Status OpTimer::Copy() {
  return backend_.Copy(stream_, to_.data(), from_.data(), from_.size());
}

absl::StatusOr<OpSeconds> OpTimer::Time(const std::function<absl::Status()>& op) {
  ANNULUS_ASSIGN_OR_RETURN(const std::vector<OpSeconds> seconds,
                           Measure({&op, 1}, /*in_a_row=*/true));
  return seconds.front();
}

absl::StatusOr<OpSeconds> OpTimer::TimeAlone(const std::function<absl::Status()>& op) {
  ANNULUS_ASSIGN_OR_RETURN(const std::vector<OpSeconds> seconds,
                           Measure({&op, 1}, /*in_a_row=*/false));
  return seconds.front();
}

absl::StatusOr<std::vector<OpSeconds>> OpTimer::TimeInTurn(
    std::span<const std::function<absl::Status()>> ops) {
  return Measure(ops, /*in_a_row=*/true);
}

absl::StatusOr<OpTimer::Series> OpTimer::Begin(const std::function<absl::Status()>& op,
                                               bool in_a_row) {
  Series series;
  series.op = &op;
  double enqueue = 0;
  ANNULUS_RETURN_IF_ERROR(HostSeconds(op, &enqueue).status());  // does not count
  ANNULUS_ASSIGN_OR_RETURN(const double once, HostSeconds(op, &enqueue));
  if (in_a_row && once < kLongSeconds) {
    series.runs = std::clamp(static_cast<int>(kLongSeconds / once), 1, kMostRuns);
    // Half as long again as enqueuing takes, which may be slower at another time.
    const double wanted = copy_.device > 0 ? 1.5 * series.runs * enqueue / copy_.device : 0;
    series.copies = static_cast<int>(std::min<double>(kMostCopies, std::ceil(wanted)));
  }
  return series;
}

absl::Status OpTimer::RunRound(Series& series) {
  double enqueue = 0;
  ANNULUS_ASSIGN_OR_RETURN(series.host.emplace_back(), HostSeconds(*series.op, &enqueue));
  series.enqueue.push_back(enqueue);
  ANNULUS_ASSIGN_OR_RETURN(series.device.emplace_back(),
                           DeviceSeconds(*series.op, series.runs, series.copies));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<OpSeconds>> OpTimer::Measure(
    std::span<const std::function<absl::Status()>> ops, bool in_a_row) {
  std::vector<Series> all;
  for (const std::function<absl::Status()>& op : ops) {
    ANNULUS_ASSIGN_OR_RETURN(Series series, Begin(op, in_a_row));
    all.push_back(std::move(series));
  }
  const double enough = enough_seconds_ * static_cast<double>(ops.size());
  const Clock::time_point start = Clock::now();
  for (size_t rounds = 0;
       rounds < kLeastRounds || (SecondsSince(start) < enough && rounds < kMostRounds); ++rounds) {
    for (Series& series : all) ANNULUS_RETURN_IF_ERROR(RunRound(series));
  }
  std::vector<OpSeconds> seconds;
  for (Series& series : all) {
    seconds.push_back({Median(std::move(series.device)), Median(std::move(series.host)),
                       Median(std::move(series.enqueue)), series.runs});
  }
  return seconds;
}

absl::StatusOr<double> OpTimer::HostSeconds(const std::function<absl::Status()>& op,
                                            double* enqueue) {
  const Clock::time_point start = Clock::now();
  ANNULUS_RETURN_IF_ERROR(op());
  *enqueue = SecondsSince(start);
  ANNULUS_RETURN_IF_ERROR(stream_.Synchronize());
  return SecondsSince(start);
}

// Of one of `runs`.
absl::StatusOr<double> OpTimer::DeviceSeconds(const std::function<absl::Status()>& op, int runs,
                                              int copies) {
  for (int i = 0; i < copies; ++i) ANNULUS_RETURN_IF_ERROR(Copy());
  ANNULUS_RETURN_IF_ERROR(stream_.Record(*begin_));
  for (int i = 0; i < runs; ++i) ANNULUS_RETURN_IF_ERROR(op());
  ANNULUS_RETURN_IF_ERROR(stream_.Record(*end_));
  ANNULUS_RETURN_IF_ERROR(stream_.Synchronize());
  ANNULUS_ASSIGN_OR_RETURN(const double seconds, backend_.SecondsBetween(*begin_, *end_));
  return seconds / runs;
}

}  // namespace annulus::bench
