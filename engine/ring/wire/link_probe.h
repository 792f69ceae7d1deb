#ifndef ANNULUS_ENGINE_RING_WIRE_LINK_PROBE_H_
#define ANNULUS_ENGINE_RING_WIRE_LINK_PROBE_H_

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/steady_time.h"
#include "engine/ring/wire/wire_ring.h"

namespace annulus {

// The ranks that take part in an epoch: those with an address, which WireRingSetup::exchange
// returns.
std::vector<int> RanksWithAddresses(std::span<const std::string> addresses);

// Times messages over the wires of the ranks that a process hosts. All processes of a ring probe at
// once, so links are as busy as in a step. Call it only while no step runs.
class LinkProbe {
 public:
  // Of one message.
  static constexpr size_t kMostBytes = size_t{4} << 20;

  // `ring` is used by Time alone; `local`: its ranks here. Destroy the probe after the ring, for
  // which Join must have been called: a transfer that was given up may still write to the probe's
  // memory.
  LinkProbe(WireRing& ring, std::vector<int> local);
  ~LinkProbe() { Join(); }

  // Typical seconds of a pass, of the slowest rank here. In a pass every rank sends one message of
  // `bytes` (1 to kMostBytes) to each other rank and receives one of each, one after the other, as
  // ring attention does. `hosted`: the ranks that take part, ascending, at least two, with those
  // here. All processes must call this with the same arguments. Errors of Wire; DEADLINE_EXCEEDED
  // if `deadline`, of the ring's clock, passes; RESOURCE_EXHAUSTED if there is no memory, or no
  // thread for a rank. After an error the ring is of no use until it is reset.
  //
  // Returns even if a carrier hangs: after the deadline it waits as long again as it had until
  // then, and a second at least, and then returns stuck().
  absl::StatusOr<double> Time(std::span<const int> hosted, size_t bytes, SteadyTime deadline);
  // OK, or DEADLINE_EXCEEDED naming the rank whose wire did not return. It may use the ring until
  // Join, so the ring can neither be used nor reset; Time only returns this.
  const absl::Status& stuck() const { return stuck_; }
  // Waits for the threads of ranks that are stuck, without a bound.
  void Join();

 private:
  // Of a rank here.
  struct Timing {
    std::vector<std::byte> memory;  // what it sends, then what it receives
    absl::StatusOr<double> seconds = 0.0;
    bool runs = false;  // guarded by mutex_; `seconds` is its thread's until then
    std::thread thread;
  };

  void Begin(size_t index, size_t bytes, SteadyTime deadline);
  void Run(size_t index, size_t bytes, SteadyTime deadline);
  absl::Status AwaitThreads(SteadyTime until);
  absl::StatusOr<double> TimeRank(int rank, size_t bytes, std::byte* memory, SteadyTime deadline);

  WireRing& ring_;
  const std::vector<int> local_;
  const absl::Status no_memory_;  // made while there is some
  const absl::Status no_thread_;  // likewise
  std::vector<int> hosted_;       // as Time was told
  std::vector<Timing> timings_;   // [index in local_]
  absl::Status stuck_;
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_WIRE_LINK_PROBE_H_
