#ifndef ANNULUS_ENGINE_WORKERS_RING_LOSS_H_
#define ANNULUS_ENGINE_WORKERS_RING_LOSS_H_

#include <cstdint>

namespace annulus {

// What broke a ring whose ranks are in several processes.
enum class RingLoss : uint8_t {
  kClosed,   // a worker's link closed
  kSilent,   // a worker said nothing, or not in time what it had to, or its step made no progress
  kMessage,  // a worker sent what it may not, or that it cannot go on
  // Between ranks messages did not arrive, or with other bytes than were sent, and all workers are
  // there.
  kWire,
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_WORKERS_RING_LOSS_H_
