#ifndef ANNULUS_KERNELS_DEVICE_LINK_H_
#define ANNULUS_KERNELS_DEVICE_LINK_H_

// How bytes travel between devices of one process beside their work. Backend makes all of these.

#include <chrono>
#include <cstddef>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace annulus {

// A mark in a stream's work: recorded by one stream, waited for by others. Recording again moves
// the mark and leaves earlier waits as they are. Not thread-safe.
class Event {
 public:
  virtual ~Event() = default;
};

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
  // not wait.
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
  struct Transfer {
    int peer = 0;
    std::byte* data = nullptr;  // of this rank's device; only read where it is sent
    size_t bytes = 0;           // more than 0
  };

  virtual ~Communicator() = default;

  // Enqueues all of them as one group, which begins once `after` has been reached; `done` is
  // recorded behind it. What one rank sends in its n-th group to another, that one receives in a
  // group of its own that needs no later group of the first: then no two wait for each other.
  // Between two ranks transfers meet in order. May wait for peers to open a connection.
  // DEADLINE_EXCEEDED names this rank where they do not; UNAVAILABLE where the library reports a
  // failure, with what to do; ABORTED after Abort.
  virtual absl::Status Exchange(std::span<const Transfer> sends, std::span<const Transfer> receives,
                                const Event& after, Event& done, Deadline deadline) = 0;

  // Whether the group behind which `done` was recorded has ended. UNAVAILABLE and ABORTED as above.
  virtual absl::StatusOr<bool> Ended(const Event& done) = 0;

  // Ends everything that is under way, here and for whoever waits for it. Any thread, any number of
  // times; the member is of no use afterwards.
  virtual void Abort() = 0;
};

}  // namespace annulus

#endif  // ANNULUS_KERNELS_DEVICE_LINK_H_
