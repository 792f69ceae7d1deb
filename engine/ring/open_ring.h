#ifndef ANNULUS_ENGINE_RING_OPEN_RING_H_
#define ANNULUS_ENGINE_RING_OPEN_RING_H_

#include <chrono>
#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/api/ring.h"
#include "engine/base/clock.h"
#include "engine/ring/channel.h"
#include "kernels/backend.h"

namespace annulus {

// What a ring may need of each rank's device, as far as it is known before the ring is open.
struct RingNeeds {
  bool copies = false;    // see RingChannel
  size_t send_bytes = 0;  // at most; likewise
};

// Of what OpenRing may open for `ranks` ranks on `devices` devices.
RingNeeds NeedsOf(RingTransport transport, int devices, int ranks);

// Decides how ranks exchange data. One rank, or ranks on one device: by passing addresses. Several
// devices with kAuto: copies between devices if all can reach each other; else NCCL if its library
// can be loaded and every rank has its own device; else copies through host memory. The description
// says why the better ones were not taken. FAILED_PRECONDITION, with advice, if a transport
// requested by name is impossible. `timeout`: see GroupRing. Deadlines of the channels are times of
// `clock`; it and `backend` must outlive the ring.
absl::StatusOr<std::unique_ptr<RingGroup>> OpenRing(RingTransport transport, Backend& backend,
                                                    int ranks, std::chrono::milliseconds timeout,
                                                    const Clock& clock = Clock::Real());

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_OPEN_RING_H_
