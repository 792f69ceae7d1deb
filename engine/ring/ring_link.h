#ifndef ANNULUS_ENGINE_RING_RING_LINK_H_
#define ANNULUS_ENGINE_RING_RING_LINK_H_

#include <chrono>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/base/heartbeat.h"
#include "engine/ring/channel.h"
#include "engine/state/step_plan.h"
#include "kernels/backend.h"

namespace annulus {

// A rank's channel with the ring's timeout rule: a peer may have much to compute, so a wait fails
// only if no rank has made progress for `timeout`, by the heartbeat's clock. Only for the rank's
// thread.
class RingLink {
 public:
  // `stream`: the rank's stream, on which sent parts are written and received ones are read. The
  // channel, stream and heartbeat must outlive the link.
  RingLink(RingChannel& channel, Stream& stream, std::chrono::milliseconds timeout,
           Heartbeat* heartbeat)
      : channel_(channel), stream_(stream), timeout_(timeout), heartbeat_(heartbeat) {}

  int rank() const { return channel_.rank(); }
  int size() const { return channel_.size(); }
  void Beat() { heartbeat_->Beat(); }

  // Whether messages are copied: see RingChannel.
  bool copies() const { return channel_.copies(); }

  // Posts one round, in which every message and expectation has parts; nothing if there are none.
  absl::Status Post(std::span<const RingMessage> sent, std::span<const RingExpectation> expected);
  // Returns the next message from `peer`: see RingChannel::Receive. DEADLINE_EXCEEDED by the rule
  // above.
  absl::StatusOr<RingParts> Receive(int peer, uint64_t tag, std::span<const size_t> part_bytes);
  // Waits until the memory of what was posted may be freed: see RingChannel::Flush.
  // DEADLINE_EXCEEDED by the rule above.
  absl::Status Flush();

  // Adds the time that the stream was blocked on messages to counters().wait_seconds. Call only
  // while the stream is idle.
  absl::Status CountStreamWaits();

  // One message to every peer and one from every peer, both without parts if there is nothing to
  // say. Parts lie in host memory that the ops of every device here can read: see
  // RingMessage::host. Both sides must agree on which messages are empty.
  struct Round {
    uint64_t tag = 0;
    // Appends the parts to send to the peer.
    absl::FunctionRef<void(int peer, std::vector<RingPart>& parts)> give;
    // Appends the size in bytes of each part that the peer sends.
    absl::FunctionRef<void(int peer, std::vector<size_t>& part_bytes)> expect;
    // Returns such memory for a message to arrive in, which must stay until its parts are not used
    // any more. Called only if the channel copies such messages.
    absl::FunctionRef<absl::StatusOr<std::byte*>(size_t bytes)> place;
    // Uses the parts that came. Called in the order of ranks; not for empty messages.
    absl::FunctionRef<absl::Status(int peer, const RingParts& parts)> take;
  };
  // Exchanges one round and returns the number of bytes sent.
  absl::StatusOr<int64_t> Exchange(const Round& round);

  // Counters of this rank. Post and Receive add their time to them.
  RingCounters& counters() { return counters_; }

 private:
  SteadyTime Now() const { return heartbeat_->clock().Now(); }
  // Repeats `wait` by the timeout rule; counts its time.
  absl::Status Wait(absl::FunctionRef<absl::Status(SteadyTime deadline)> wait);

  RingChannel& channel_;
  Stream& stream_;
  const std::chrono::milliseconds timeout_;
  Heartbeat* const heartbeat_;
  RingCounters counters_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_RING_LINK_H_
