#include "engine/ring/wire/link_probe.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <exception>
#include <thread>

#include "absl/strings/str_cat.h"
#include "engine/base/clock.h"
#include "engine/base/field_error.h"
#include "engine/memory/align.h"
#include "kernels/base/check.h"
#include "kernels/base/guarded.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// What else a machine does only adds time, but the quickest pass may have been lucky: the second of
// five. The first also opens connections and touches memory.
constexpr int kPasses = 5;
constexpr int kTypical = 1;

}  // namespace

std::vector<int> RanksWithAddresses(std::span<const std::string> addresses) {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < addresses.size(); ++rank) {
    if (!addresses[rank].empty()) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

absl::StatusOr<double> LinkProbe::Time(std::span<const int> hosted, size_t bytes,
                                       SteadyTime deadline) {
  ANNULUS_CHECK(hosted.size() > 1 && !local_.empty()) << "there are no links";
  if (bytes == 0 || bytes > kMostBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "messages of ", bytes, " bytes are to be timed; allowed are 1 to ", kMostBytes));
  }
  memory_.assign(local_.size(), std::vector<std::byte>(2 * AlignUp(bytes)));
  std::vector<absl::StatusOr<double>> seconds(local_.size(), 0.0);
  const auto time = [&](size_t i) {
    const auto work = [&]() -> absl::Status {
      seconds[i] = TimeRank(local_[i], hosted, bytes, memory_[i].data(), deadline);
      return seconds[i].status();
    };
    const absl::Status timed = Guarded(work, NoMemoryError);
    if (timed.ok()) return;
    seconds[i] = timed;
    ring_.channel(local_[i]).Abort(timed);  // the others here would wait for it
  };
  {
    std::vector<std::jthread> others;  // all have ended at the end of this block
    others.reserve(local_.size() - 1);
    try {
      for (size_t i = 1; i < local_.size(); ++i) others.emplace_back(time, i);
      time(0);
    } catch (const std::exception& error) {
      seconds[0] = absl::ResourceExhaustedError(absl::StrCat(
          "cannot start ", local_.size() - 1, " threads to time links: ", error.what()));
      ring_.channel(local_[0]).Abort(seconds[0].status());
    }
  }
  double slowest = 0;
  for (const absl::StatusOr<double>& each : seconds) {
    ANNULUS_RETURN_IF_ERROR(each.status());
    slowest = std::max(slowest, *each);
  }
  memory_.clear();
  return slowest;
}

absl::StatusOr<double> LinkProbe::TimeRank(int rank, std::span<const int> hosted, size_t bytes,
                                           std::byte* memory, SteadyTime deadline) {
  Wire& wire = ring_.wire(rank);
  const std::array<size_t, 1> part_bytes = {bytes};
  const RingParts sent = {{memory, bytes}};
  const size_t ranks = hosted.size();
  const auto own =
      static_cast<size_t>(std::find(hosted.begin(), hosted.end(), rank) - hosted.begin());
  std::vector<double> seconds;
  uint64_t tag = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const SteadyTime start = std::chrono::steady_clock::now();
    for (size_t step = 1; step < ranks; ++step, ++tag) {
      const int from = hosted[(own + ranks - step) % ranks];
      ANNULUS_RETURN_IF_ERROR(wire.Expect(from, tag, part_bytes, memory + AlignUp(bytes)));
      ANNULUS_RETURN_IF_ERROR(wire.Send(hosted[(own + step) % ranks], tag, sent));
      ANNULUS_RETURN_IF_ERROR(wire.Receive(from, tag, part_bytes, deadline).status());
    }
    seconds.push_back(SecondsBetween(start, std::chrono::steady_clock::now()));
  }
  ANNULUS_RETURN_IF_ERROR(wire.Flush(deadline));
  std::sort(seconds.begin(), seconds.end());
  return seconds[kTypical];
}

}  // namespace annulus
