#ifndef ANNULUS_KERNELS_DEVICE_LINK_H_
#define ANNULUS_KERNELS_DEVICE_LINK_H_

// How bytes travel between devices of one process beside their work. Backend makes all of these.

#include <chrono>
#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace annulus {

// A mark in a stream's work: recorded by one stream, waited for by others. Recording again moves
// the mark and leaves earlier waits as they are. Not thread-safe.
class Event {
 public:
  virtual ~Event() = default;
};

// Parts of a message lie in the receiver's memory each at the next multiple of so many bytes behind
// the one before.
inline constexpr size_t kPartAlignment = 64;

struct DeviceCopy {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  size_t bytes = 0;
};

// kPeer: straight from memory to memory, where devices reach each other. kStaged: through pinned
// memory of the host, always possible and slower.
enum class LinkKind { kPeer, kStaged };

// Copies from one device's memory to another's, on streams of its own. One thread at a time.
class DeviceLink {
 public:
  virtual ~DeviceLink() = default;

  // Enqueues the copies behind those of earlier calls. They begin once all events of `after` have
  // been reached, and `arrived`, an event of the receiving device, is recorded behind them. Does
  // not wait. Targets lie in one allocation, and where one comes less than kPartAlignment bytes
  // behind the end of the one before, what lies between may be written to as well: the two can
  // travel as one.
  virtual absl::Status Copy(std::span<const DeviceCopy> copies, std::span<const Event* const> after,
                            Event& arrived) = 0;

  // Waits until nothing is on its way.
  virtual absl::Status Drain() = 0;
};

// One rank's member of a group of ranks, each on a device of its own, that exchange through a
// library with streams of its own. Used by the rank's thread alone, but for Abort.
class Communicator {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  struct Part {
    std::byte* data = nullptr;  // of this rank's device; only read where it is sent
    size_t bytes = 0;           // more than 0
  };
  // To or from one peer. Where it is received parts lie as kPartAlignment says, and what is between
  // them may be written to as well.
  struct Message {
    int peer = 0;
    std::vector<Part> parts;
  };

  virtual ~Communicator() = default;

  // One round. Enqueues all of it; it begins once `after` has been reached, and `done` is recorded
  // behind it. What one rank sends in its n-th round to another, that one receives in a round of
  // its own that needs no later one of the first: then no two wait for each other. Between two
  // ranks messages meet in order.
  //
  // `area`: memory of this rank's device, of the same size for all members, kPartAlignment bytes or
  // more for each peer; the member's alone until all rounds have ended. Messages of many parts are
  // put together there and travel as one, as much at a time as it has room for.
  //
  // May wait for peers to open a connection. DEADLINE_EXCEEDED names this rank where they do not;
  // UNAVAILABLE where the library reports a failure, with what to do; ABORTED after Abort.
  virtual absl::Status Exchange(std::span<const Message> sends, std::span<const Message> receives,
                                std::span<std::byte> area, const Event& after, Event& done,
                                Deadline deadline) = 0;

  // Whether the round behind which `done` was recorded has ended. UNAVAILABLE and ABORTED as above.
  virtual absl::StatusOr<bool> Ended(const Event& done) = 0;

  // Ends everything that is under way, here and for whoever waits for it. Any thread, any number of
  // times; the member is of no use afterwards.
  virtual void Abort() = 0;
};

}  // namespace annulus

#endif  // ANNULUS_KERNELS_DEVICE_LINK_H_
