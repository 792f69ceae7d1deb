#ifndef ANNULUS_ENGINE_RING_WIRE_LINK_PROBE_H_
#define ANNULUS_ENGINE_RING_WIRE_LINK_PROBE_H_

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

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

  // `ring` is used by Time alone; `local`: its ranks here. Destroy the probe after the ring: a
  // transfer that was given up may still write to the probe's memory.
  LinkProbe(WireRing& ring, std::vector<int> local) : ring_(ring), local_(std::move(local)) {}

  // Typical seconds of a pass, of the slowest rank here. In a pass every rank sends one message of
  // `bytes` (1 to kMostBytes) to each other rank and receives one of each, one after the other, as
  // ring attention does. `hosted`: the ranks that take part, ascending, at least two, with those
  // here. All processes must call this with the same arguments. Errors of Wire; DEADLINE_EXCEEDED
  // if `deadline` passes; RESOURCE_EXHAUSTED if there is no memory, or no thread for a rank. After
  // an error the ring is of no use until it is reset.
  absl::StatusOr<double> Time(std::span<const int> hosted, size_t bytes, SteadyTime deadline);

 private:
  absl::StatusOr<double> TimeRank(int rank, std::span<const int> hosted, size_t bytes,
                                  std::byte* memory, SteadyTime deadline);

  WireRing& ring_;
  const std::vector<int> local_;
  std::vector<std::vector<std::byte>>
      memory_;  // of each rank: what it sends, then what it receives
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_WIRE_LINK_PROBE_H_
