#ifndef ANNULUS_ENGINE_RING_CHANNEL_H_
#define ANNULUS_ENGINE_RING_CHANNEL_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/api.h"

namespace annulus {

// A run of bytes in device memory: one piece of a message.
struct RingPart {
  const std::byte* data = nullptr;
  size_t bytes = 0;
};

// One rank's end of the links to all others. Messages between two ranks arrive in the order sent;
// both sides derive their order and sizes from the plan, so a tag or size that differs from what
// the receiver expects is an INTERNAL error, never guessed around. Send does not block. A Receive
// that passes its deadline is DEADLINE_EXCEEDED and names the peer. After Abort every call of every
// rank returns that status until the group is reset. Each end is used by its rank's thread alone;
// Abort may be called from any thread.
class RingChannel {
 public:
  virtual ~RingChannel() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // The parts must stay valid and unchanged until the receiver is known to have read them.
  // RingAttention keeps pages and queries until the layer's states have come back, and states until
  // the next request of the same peer.
  virtual absl::Status Send(int peer, uint64_t tag, std::vector<RingPart> parts) = 0;

  // The next message of `peer`, `part_bytes` long part by part. The parts stay valid as long as the
  // sender's do; a transport that copies keeps them until a tag differs above its low 16 bits.
  virtual absl::StatusOr<std::vector<RingPart>> Receive(int peer, uint64_t tag,
                                                        std::span<const size_t> part_bytes,
                                                        SteadyTime deadline) = 0;

  // Ends the epoch for all ranks. The first status wins; it must not be OK.
  virtual void Abort(const absl::Status& status) = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_CHANNEL_H_
