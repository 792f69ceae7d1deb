#ifndef ANNULUS_ENGINE_RING_WIRE_WIRE_RING_H_
#define ANNULUS_ENGINE_RING_WIRE_WIRE_RING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/clock.h"
#include "engine/ring/channel.h"
#include "engine/ring/open_ring.h"
#include "engine/ring/wire/carrier.h"
#include "engine/ring/wire/wire.h"

namespace annulus {

// What it needs of each rank's device.
inline constexpr RingNeeds kWireRingNeeds = {.copies = true};

// How the ranks of a process take part in a ring that several processes make.
struct WireRingSetup {
  int ranks = 1;           // of the ring
  std::vector<int> local;  // those of this process, ascending
  // Opens the carrier of one rank.
  std::function<absl::StatusOr<std::unique_ptr<Carrier>>()> open;
  // Hands the addresses of the local ranks to the other processes and returns those of all, [rank].
  // Called by the constructing thread or by Reset, once an epoch unless it fails: then the epoch
  // has not begun, and the next Reset asks for the same. All ranks must have theirs before any
  // sends.
  std::function<absl::StatusOr<std::vector<std::string>>(uint64_t epoch,
                                                         std::vector<std::string> own)>
      exchange;
  uint64_t first_epoch = 1;  // of the ring when this process takes part in it
};

// Channels over wires: a wire for each local rank, by which it reaches all others, in this process
// or not. For ranks whose memory the host reads and writes, and whose ops have ended when they
// return (BackendCapabilities::host_accessible): both kinds of memory are one, and every message is
// copied. Post refuses expectations without `into` with INVALID_ARGUMENT.
//
// An abort ends the calls of the local ranks; whoever joins the processes tells the others. What a
// peer did wrong, or that it is lost, ends the epoch of one wire: see Wire. Thread-safe.
class WireRing final : public RingGroup {
 public:
  // The ring in its first epoch. Returns the errors of `open` and `exchange`, and those of
  // Wire::Connect; RESOURCE_EXHAUSTED without memory or threads for them. Deadlines are times of
  // `clock`, which must outlive the ring.
  static absl::StatusOr<std::unique_ptr<WireRing>> Create(WireRingSetup setup, const Clock& clock);
  ~WireRing() override;

  // Of a local rank.
  RingChannel& channel(int rank) override;
  // Opens new wires for the next epoch. A peer that has left already ends the new epoch, as it does
  // later.
  absl::Status Reset() override;
  std::string description() const override { return "wires"; }

  // Of all deadlines.
  const Clock& clock() const { return clock_; }
  // The wire of a local rank; valid until Reset.
  Wire& wire(int rank);

 private:
  class End;

  WireRing(WireRingSetup setup, const Clock& clock);
  absl::Status Form();
  void Abort(const absl::Status& status);

  const WireRingSetup setup_;
  const Clock& clock_;
  const absl::Status no_memory_;              // made while there is some
  uint64_t epoch_;                            // the last that began here
  absl::Status unformed_;                     // why the ring has no wires; else OK
  std::vector<std::unique_ptr<Wire>> wires_;  // [rank]; null where it is not local
  std::vector<std::unique_ptr<End>> ends_;    // likewise
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_WIRE_WIRE_RING_H_
