#ifndef ANNULUS_ENGINE_RING_OPEN_RING_H_
#define ANNULUS_ENGINE_RING_OPEN_RING_H_

#include <chrono>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/api/ring.h"
#include "engine/ring/channel.h"
#include "kernels/backend.h"

namespace annulus {

// Where it is decided how ranks exchange. One rank, or ranks of one device: addresses. Several
// devices, kAuto: copies between devices where all reach each other, else NCCL where it can be
// loaded and every rank has a device of its own, else copies through the host's memory; the
// description says why it is not the one before. What is asked for by name and cannot be is
// FAILED_PRECONDITION with what to do. `timeout`: see GroupRing.
absl::StatusOr<std::unique_ptr<RingGroup>> OpenRing(RingTransport transport, Backend& backend,
                                                    int ranks, std::chrono::milliseconds timeout);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_OPEN_RING_H_
