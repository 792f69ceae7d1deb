#ifndef ANNULUS_ENGINE_RING_CHANNEL_H_
#define ANNULUS_ENGINE_RING_CHANNEL_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/steady_time.h"
#include "kernels/backend.h"

namespace annulus {

// A run of bytes: one piece of a message.
struct RingPart {
  const std::byte* data = nullptr;
  size_t bytes = 0;
};

// What a rank sends to a peer. `host`: its parts lie in memory that the host reads, and ops of
// every device too, so they are handed over where they lie; what was enqueued to write them has
// ended. Else they lie in memory of the sender's device.
struct RingMessage {
  int peer = 0;
  uint64_t tag = 0;
  std::vector<RingPart> parts;
  bool host = false;
};

// What a rank awaits of a peer. `into`: memory of the own device for the parts, each at the next
// multiple of kMemoryAlignment behind the one before. Null: a message of host parts, or the channel
// does not copy.
struct RingExpectation {
  int peer = 0;
  uint64_t tag = 0;
  std::vector<size_t> part_bytes;
  std::byte* into = nullptr;
};

// One rank's end of the links to all others.
//
// Ranks exchange by rounds: what one sends in a round, the peer expects in the round of the same
// place in the order of rounds that the plan fixes for all; a rank that has nothing to do in a
// round leaves it out. Between two ranks messages arrive in the order sent. Both sides derive
// order and sizes from the plan, so a tag or size that differs from what the receiver expects is an
// INTERNAL error, never guessed around.
//
// After Abort every call of every rank returns that status until the group is reset. Each end is
// used by its rank's thread alone; Abort may be called from any thread.
class RingChannel {
 public:
  virtual ~RingChannel() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Whether parts of the sender's device arrive as copies, and expectations need `into`.
  virtual bool copies() const = 0;

  // Bytes of the rank's device in which the channel puts together what it sends, the same for all
  // ranks; 0: none.
  virtual size_t send_bytes() const { return 0; }
  // Gives them, before the first Post; they are the channel's as long as the group lives.
  virtual void UseSendArea(std::span<std::byte> /*area*/) {}

  // One round. What is sent is written, and what lies in `into` is read, by work that `stream` has
  // so far: transfers, or where nothing is copied the receivers' streams, wait for it, and run
  // beside what is enqueued later. Does not block, but where a peer must take part first: then
  // until `deadline` at most.
  //
  // Parts must stay valid and unchanged until the receiver is known to have read them, in the
  // stream's order. It is known by what Receive promises: work behind a message that came back
  // comes behind what its sender had read until it posted it. So RingAttention keeps queries until
  // the layer's states have come back, states until the next request of the same peer, and pages,
  // which nobody answers, until the step has ended on all ranks.
  virtual absl::Status Post(Stream& stream, std::vector<RingMessage> sent,
                            std::vector<RingExpectation> expected, SteadyTime deadline) = 0;

  // The next message of `peer`, expected by an earlier Post: `part_bytes` long part by part. Work
  // of `stream` from now on may read it, and of host parts the host too. But for a message of host
  // parts it begins once all work has ended that the sender's stream had when the message was
  // posted. A wait that passes its deadline is DEADLINE_EXCEEDED, names the peer, and may be
  // repeated. Parts stay valid as long as the sender's do, copies as long as `into`.
  virtual absl::StatusOr<std::vector<RingPart>> Receive(Stream& stream, int peer, uint64_t tag,
                                                        std::span<const size_t> part_bytes,
                                                        SteadyTime deadline) = 0;

  // Seconds for which streams given to Receive stood still until messages had been written or
  // copied, since the last call. Only while those streams are idle. What the calling thread waited
  // is not in it.
  virtual absl::StatusOr<double> TakeStreamWaits() = 0;

  // Ends the epoch for all ranks. The first status wins; it must not be OK.
  virtual void Abort(const absl::Status& status) = 0;
};

// All ends of a ring.
class RingGroup {
 public:
  virtual ~RingGroup() = default;

  // The end of `rank`; lives as long as the group.
  virtual RingChannel& channel(int rank) = 0;

  // Forgets all messages and an abort, once nothing is on its way. Only while no rank is in a call.
  // An error leaves the group aborted with it.
  virtual absl::Status Reset() = 0;

  // How messages travel, for people.
  virtual std::string description() const = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_CHANNEL_H_
