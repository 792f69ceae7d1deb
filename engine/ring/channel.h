#ifndef ANNULUS_ENGINE_RING_CHANNEL_H_
#define ANNULUS_ENGINE_RING_CHANNEL_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/steady_time.h"
#include "engine/memory/align.h"
#include "kernels/backend.h"

namespace annulus {

// One part of a message: a run of bytes.
struct RingPart {
  const std::byte* data = nullptr;
  size_t bytes = 0;
};

// The parts of a message. Copies of this object share one list, which never changes: the layers of
// a step send the same parts, each layer so many bytes further on, without a list of their own.
class RingParts {
 public:
  RingParts() = default;
  RingParts(std::vector<RingPart> parts) {
    if (parts.empty()) return;
    list_ = std::make_shared<const std::vector<RingPart>>(std::move(parts));
  }
  RingParts(std::initializer_list<RingPart> parts) : RingParts(std::vector<RingPart>(parts)) {}

  size_t size() const { return list_ == nullptr ? 0 : list_->size(); }
  bool empty() const { return list_ == nullptr; }
  RingPart operator[](size_t i) const {
    const RingPart& part = (*list_)[i];
    return {part.data + offset_, part.bytes};
  }

  // The same parts, each `bytes` further on.
  RingParts After(size_t bytes) const {
    RingParts moved = *this;
    moved.offset_ += bytes;
    return moved;
  }
  // These parts once they have been copied to `into`: see RingExpectation.
  RingParts CopiedTo(const std::byte* into) const {
    std::vector<RingPart> copies(size());
    for (size_t i = 0; i < size(); ++i) {
      copies[i] = {into, (*list_)[i].bytes};
      into += AlignUp(copies[i].bytes);
    }
    return copies;
  }

 private:
  std::shared_ptr<const std::vector<RingPart>> list_;  // null: no parts
  size_t offset_ = 0;
};

// A message to a peer. `tag` identifies it; the receiver must expect the same. If `host` is true,
// the parts are in host memory that the ops of every device here can read, and all work that writes
// them must have ended. Otherwise they are in the memory of the sender's device.
struct RingMessage {
  int peer = 0;
  uint64_t tag = 0;
  RingParts parts;
  bool host = false;
};

// A message this rank expects from `peer`. `into` is the destination, on this rank's device or, if
// `host`, in host memory that its ops can read; parts are laid out in order, each aligned to
// kMemoryAlignment. Null where the channel passes addresses of such memory instead of copying. If
// it copies neither, it needs no expectations.
struct RingExpectation {
  int peer = 0;
  uint64_t tag = 0;
  std::vector<size_t> part_bytes;
  std::byte* into = nullptr;
  bool host = false;  // see RingMessage
};

// One rank's end of its links to all other ranks.
//
// Ranks exchange data in rounds. The plan fixes the order of rounds for all ranks: what one rank
// sends in a round, its peer expects in the same round. A rank with nothing to exchange skips the
// round. Messages from one rank to another arrive in the order sent. Both sides derive order and
// sizes from the plan, so a message with an unexpected tag or size is an INTERNAL error.
//
// After Abort, every call on every rank returns the abort's status until the group is reset. Each
// end belongs to its rank's thread, except that any thread may call Abort.
class RingChannel {
 public:
  virtual ~RingChannel() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Whether the channel copies parts in device memory, so that their expectations need `into`.
  virtual bool copies() const = 0;
  // Likewise parts in host memory.
  virtual bool copies_host() const { return false; }

  // Bytes that the channel needs on the rank's device to assemble outgoing messages; the same for
  // all ranks. 0: none.
  virtual size_t send_bytes() const { return 0; }
  // Provides send_bytes() bytes. Call before the first Post. The channel uses them for the lifetime
  // of the group.
  virtual void UseSendArea(std::span<std::byte> /*area*/) {}

  // Starts one exchange round. The transfers are ordered after everything already enqueued on
  // `stream`, which must produce the outgoing parts and finish reading the `into` buffers. Work
  // enqueued later runs concurrently. Returns immediately, except if a peer must join first; then
  // it blocks until `deadline` at most.
  //
  // Parts must stay valid and unchanged until the receiver has read them. A sender learns this from
  // a later message of the receiver: work enqueued after Receive runs after everything that the
  // peer's stream had when it posted that message. Therefore RingAttention keeps queries until the
  // layer's states have come back, states until the same peer's next request, and pages, which have
  // no answer, until the step has ended on all ranks.
  virtual absl::Status Post(Stream& stream, std::span<const RingMessage> sent,
                            std::span<const RingExpectation> expected, SteadyTime deadline) = 0;

  // Returns the next message from `peer`, which an earlier Post must have expected. `part_bytes`:
  // the expected size of each part. Work enqueued on `stream` from now on may read the message. If
  // the parts are in host memory, the host may read them too. Otherwise that work starts only after
  // all work that the sender's stream had when it posted the message. DEADLINE_EXCEEDED, naming the
  // peer, if `deadline` passes; the call may then be repeated. Parts stay valid as long as the
  // sender's do; copies, as long as `into`.
  virtual absl::StatusOr<RingParts> Receive(Stream& stream, int peer, uint64_t tag,
                                            std::span<const size_t> part_bytes,
                                            SteadyTime deadline) = 0;

  // Waits until nothing reads the parts of what this rank has posted: their memory may be freed
  // once the peers have received them and this has returned. DEADLINE_EXCEEDED if `deadline`
  // passes. Channels that leave copies to the streams have nothing to wait for.
  virtual absl::Status Flush(SteadyTime /*deadline*/) { return absl::OkStatus(); }

  // Returns the seconds for which streams passed to Receive were blocked waiting for messages,
  // since the previous call. Does not include the time that the calling thread waited. Call only
  // while those streams are idle.
  virtual absl::StatusOr<double> TakeStreamWaits() = 0;

  // Makes all calls of all ranks fail until Reset. The first status wins; it must not be OK.
  virtual void Abort(const absl::Status& status) = 0;
};

// All ends of a ring.
class RingGroup {
 public:
  virtual ~RingGroup() = default;

  // The end for `rank`; valid as long as the group.
  virtual RingChannel& channel(int rank) = 0;

  // Discards all messages and any abort, after all transfers have ended. No rank may be in a call.
  // After an error the group stays aborted with that error.
  virtual absl::Status Reset() = 0;

  // How messages travel, for people.
  virtual std::string description() const = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_CHANNEL_H_
