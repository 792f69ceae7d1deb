#ifndef ANNULUS_KERNELS_DEVICE_LINK_H_
#define ANNULUS_KERNELS_DEVICE_LINK_H_

// How bytes travel between devices of one process while the devices compute. Backend creates all of
// these objects.

#include <chrono>
#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace annulus {

// A mark in a stream's work. One stream records it; others wait for it. Recording it again moves
// the mark but does not affect waits already enqueued. Not thread-safe.
class Event {
 public:
  virtual ~Event() = default;
};

// In the receiver's memory the parts of a message are laid out in order, each aligned to this many
// bytes.
inline constexpr size_t kPartAlignment = 64;

struct DeviceCopy {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  size_t bytes = 0;
};

// kPeer copies directly between the memories of devices that can reach each other. kStaged copies
// through pinned host memory: always possible, but slower.
enum class LinkKind { kPeer, kStaged };

// Copies from one device's memory to another's, on streams of its own. Not thread-safe: one thread
// at a time.
class DeviceLink {
 public:
  virtual ~DeviceLink() = default;

  // Enqueues the copies after those of earlier calls and returns without waiting. They begin once
  // all events of `after` have been reached. `arrived`, an event of the receiving device, is
  // recorded after them. All targets lie in one allocation. If the gap between one target and the
  // next is less than kPartAlignment bytes, the gap may be overwritten, so that the two can travel
  // as one copy.
  virtual absl::Status Copy(std::span<const DeviceCopy> copies, std::span<const Event* const> after,
                            Event& arrived) = 0;

  // Blocks until all enqueued copies have finished.
  virtual absl::Status Drain() = 0;
};

// One rank's member of a group of ranks, each with its own device, that exchange messages through a
// library (such as NCCL) on streams of its own. Only the rank's thread may use it; Abort is
// thread-safe.
class Communicator {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  struct Part {
    std::byte* data = nullptr;  // on this rank's device; only read when sent
    size_t bytes = 0;           // greater than 0
  };
  // A message to or from one peer. A receiver's parts are laid out as kPartAlignment says; the gaps
  // between them may be overwritten.
  struct Message {
    int peer = 0;
    std::vector<Part> parts;
  };

  virtual ~Communicator() = default;

  // Enqueues one exchange round. It begins once `after` has been reached; `done` is recorded at its
  // end. Between two ranks, messages match in the order in which they were enqueued. To avoid
  // deadlock, what a rank sends in its n-th round must be received by the peer in a round that does
  // not need any later round of the sender.
  //
  // `area` is scratch memory on this rank's device, of the same size on all members and at least
  // kPartAlignment bytes per peer. It belongs to the member until all rounds have ended. Messages
  // of several parts are packed there, as many bytes at a time as fit, and travel as one.
  //
  // May block until peers open a connection. DEADLINE_EXCEEDED, naming this rank, if they do not in
  // time; UNAVAILABLE, with what to do, if the library reports a failure; ABORTED after Abort.
  virtual absl::Status Exchange(std::span<const Message> sends, std::span<const Message> receives,
                                std::span<std::byte> area, const Event& after, Event& done,
                                Deadline deadline) = 0;

  // Whether the round that recorded `done` has ended. UNAVAILABLE and ABORTED as for Exchange.
  virtual absl::StatusOr<bool> Ended(const Event& done) = 0;

  // Ends all rounds under way, on this rank and for every peer that waits for it. Thread-safe and
  // idempotent. The member cannot be used afterwards.
  virtual void Abort() = 0;
};

}  // namespace annulus

#endif  // ANNULUS_KERNELS_DEVICE_LINK_H_
