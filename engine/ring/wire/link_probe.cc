#include "engine/ring/wire/link_probe.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <exception>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/clock.h"
#include "engine/base/field_error.h"
#include "engine/base/try_to.h"
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

// What ranks get at least after a deadline to come back: a busy machine may hold their threads up.
constexpr std::chrono::milliseconds kLeastGrace{1'000};

}  // namespace

std::vector<int> RanksWithAddresses(std::span<const std::string> addresses) {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < addresses.size(); ++rank) {
    if (!addresses[rank].empty()) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

LinkProbe::LinkProbe(WireRing& ring, std::vector<int> local)
    : ring_(ring),
      local_(std::move(local)),
      no_memory_(NoMemoryError()),
      no_thread_(absl::ResourceExhaustedError(
          absl::StrCat("cannot start ", local_.size(), " threads to time links"))) {}

absl::StatusOr<double> LinkProbe::Time(std::span<const int> hosted, size_t bytes,
                                       SteadyTime deadline) {
  ANNULUS_CHECK(hosted.size() > 1 && !local_.empty()) << "there are no links";
  if (bytes == 0 || bytes > kMostBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "messages of ", bytes, " bytes are to be timed; allowed are 1 to ", kMostBytes));
  }
  ANNULUS_RETURN_IF_ERROR(stuck_);
  const SteadyTime::duration grace =
      std::max<SteadyTime::duration>(deadline - ring_.clock().Now(), kLeastGrace);
  const auto prepare = [&] {
    hosted_.assign(hosted.begin(), hosted.end());
    timings_ = std::vector<Timing>(local_.size());
    for (Timing& timing : timings_) timing.memory.resize(2 * AlignUp(bytes));
    return absl::OkStatus();
  };
  ANNULUS_RETURN_IF_ERROR(Guarded(prepare, [this] { return no_memory_; }));
  for (size_t index = 0; index < local_.size(); ++index) Begin(index, bytes, deadline);
  ANNULUS_RETURN_IF_ERROR(AwaitThreads(deadline + grace));
  double slowest = 0;
  for (const Timing& timing : timings_) {
    ANNULUS_RETURN_IF_ERROR(timing.seconds.status());
    slowest = std::max(slowest, *timing.seconds);
  }
  timings_.clear();
  return slowest;
}

// Allocates nothing but the thread: others run already.
void LinkProbe::Begin(size_t index, size_t bytes, SteadyTime deadline) {
  Timing& timing = timings_[index];
  timing.runs = true;
  try {
    timing.thread = std::thread([this, index, bytes, deadline] { Run(index, bytes, deadline); });
  } catch (const std::exception&) {
    timing.runs = false;
    timing.seconds = no_thread_;
    ring_.channel(local_[index]).Abort(no_thread_);
  }
}

// On a thread of its own.
void LinkProbe::Run(size_t index, size_t bytes, SteadyTime deadline) {
  Timing& timing = timings_[index];
  const auto work = [&]() -> absl::Status {
    timing.seconds = TimeRank(local_[index], bytes, timing.memory.data(), deadline);
    return timing.seconds.status();
  };
  if (const absl::Status timed = Guarded(work, [this] { return no_memory_; }); !timed.ok()) {
    timing.seconds = timed;
    ring_.channel(local_[index]).Abort(timed);  // the others here would wait for it
  }
  std::lock_guard lock(mutex_);
  timing.runs = false;
  changed_.notify_all();
}

absl::Status LinkProbe::AwaitThreads(SteadyTime until) {
  const auto first = [this] {
    return std::find_if(timings_.begin(), timings_.end(),
                        [](const Timing& timing) { return timing.runs; });
  };
  {
    std::unique_lock lock(mutex_);
    ring_.clock().WaitUntil(until, lock, changed_, [&] { return first() == timings_.end(); });
    if (const auto hangs = first(); hangs != timings_.end()) {
      stuck_ = absl::Status(absl::StatusCode::kDeadlineExceeded, "");  // needs no memory
      const int rank = local_[static_cast<size_t>(hangs - timings_.begin())];
      TryTo([&] {
        stuck_ = absl::DeadlineExceededError(absl::StrCat(
            "the wire of rank ", rank, " hangs in a probe of its links; restart the process"));
      });
      return stuck_;
    }
  }
  Join();
  return absl::OkStatus();
}

void LinkProbe::Join() {
  for (Timing& timing : timings_) {
    if (timing.thread.joinable()) timing.thread.join();
  }
}

absl::StatusOr<double> LinkProbe::TimeRank(int rank, size_t bytes, std::byte* memory,
                                           SteadyTime deadline) {
  Wire& wire = ring_.wire(rank);
  const std::array<size_t, 1> part_bytes = {bytes};
  const RingParts sent = {{memory, bytes}};
  const size_t ranks = hosted_.size();
  const auto own =
      static_cast<size_t>(std::find(hosted_.begin(), hosted_.end(), rank) - hosted_.begin());
  std::vector<double> seconds;
  uint64_t tag = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const SteadyTime start = std::chrono::steady_clock::now();
    for (size_t step = 1; step < ranks; ++step, ++tag) {
      const int from = hosted_[(own + ranks - step) % ranks];
      ANNULUS_RETURN_IF_ERROR(wire.Expect(from, tag, part_bytes, memory + AlignUp(bytes)));
      ANNULUS_RETURN_IF_ERROR(wire.Send(hosted_[(own + step) % ranks], tag, sent));
      ANNULUS_RETURN_IF_ERROR(wire.Receive(from, tag, part_bytes, deadline).status());
    }
    seconds.push_back(SecondsBetween(start, std::chrono::steady_clock::now()));
  }
  ANNULUS_RETURN_IF_ERROR(wire.Flush(deadline));
  std::sort(seconds.begin(), seconds.end());
  return seconds[kTypical];
}

}  // namespace annulus
