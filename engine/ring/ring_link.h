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

// A rank's channel with the ring's rule of waiting: a peer may have much to compute, so only
// silence of all ranks for `timeout` ends a wait. Used by the rank's thread alone.
class RingLink {
 public:
  // `stream`: of the ops that write what is sent and read what is received.
  RingLink(RingChannel& channel, Stream& stream, std::chrono::milliseconds timeout,
           Heartbeat* heartbeat)
      : channel_(channel), stream_(stream), timeout_(timeout), heartbeat_(heartbeat) {}

  int rank() const { return channel_.rank(); }
  int size() const { return channel_.size(); }
  void Beat() { heartbeat_->Beat(); }

  // Whether messages arrive as copies: see RingChannel.
  bool copies() const { return channel_.copies(); }

  // One round; messages and expectations without parts are left out.
  absl::Status Post(std::vector<RingMessage> sent, std::vector<RingExpectation> expected);
  absl::StatusOr<std::vector<RingPart>> Receive(int peer, uint64_t tag,
                                                std::span<const size_t> part_bytes);

  // Adds what the stream waited for messages to counters().wait_seconds. Only while the stream is
  // idle.
  absl::Status CountStreamWaits();

  // One message to every peer and one from every peer, all in the host's memory where they would
  // else be copied; both sides know which are empty.
  struct Round {
    uint64_t tag = 0;
    absl::FunctionRef<void(int peer, std::vector<RingPart>& parts)> give;
    absl::FunctionRef<void(int peer, std::vector<size_t>& part_bytes)> expect;
    absl::FunctionRef<absl::Status(int peer, std::span<const RingPart> parts)> take;
  };
  // Returns the bytes that were sent.
  absl::StatusOr<int64_t> Exchange(const Round& round);

  // Seconds of Post and Receive are added to these.
  RingCounters& counters() { return counters_; }

 private:
  RingChannel& channel_;
  Stream& stream_;
  const std::chrono::milliseconds timeout_;
  Heartbeat* const heartbeat_;
  RingCounters counters_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_RING_LINK_H_
