#ifndef ANNULUS_ENGINE_RING_WIRE_UCX_CARRIER_H_
#define ANNULUS_ENGINE_RING_WIRE_UCX_CARRIER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/ring/wire/carrier.h"

namespace annulus {

// A carrier over UCX, by TCP: one thread that sleeps on UCX's event descriptor. Calls use its
// worker in between, one at a time: a short frame leaves within Send. Frames with kMostEagerBytes
// or more stay with the sender until they are received; shorter ones are sent at once. A peer whose
// process ends is reported as soon as its sockets close. If this process stands still for more than
// 1.5 s within 10 s of Connect, all peers are reported as lost. Not encrypted, and whoever reaches
// the port can send frames; UCX reads what comes before we do.
//
// `devices`: the network devices to use, with commas ("lo", "eth0,eth1"); empty: all. Variables of
// the environment (UCX_...) set what is not said here.
//
// FAILED_PRECONDITION if the library cannot be loaded, with the package to install: see LoadUcx.
// UNAVAILABLE with UCX's reason if it refuses the devices.
absl::StatusOr<std::unique_ptr<Carrier>> OpenUcxCarrier(const std::string& devices);

// Larger: fewer round trips, as a frame that stays costs one more. Smaller: less memory for frames
// that come early.
inline constexpr size_t kMostEagerBytes = size_t{64} << 10;

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_WIRE_UCX_CARRIER_H_
