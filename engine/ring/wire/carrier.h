#ifndef ANNULUS_ENGINE_RING_WIRE_CARRIER_H_
#define ANNULUS_ENGINE_RING_WIRE_CARRIER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/ring/channel.h"
#include "engine/ring/wire/frame.h"

namespace annulus {

// A run of memory that arriving bytes are written to.
struct RingPlace {
  std::byte* data = nullptr;
  size_t bytes = 0;
};

// What a carrier tells its owner. Calls come one at a time, from any thread, and may call the
// carrier.
class CarrierSink {
 public:
  virtual ~CarrierSink() = default;

  // A frame has come; anybody may have sent it. `header` is valid during the call. `bytes`: what
  // follows the header. `memory`: how many bytes the carrier keeps for it here; 0 if they are still
  // with the sender. The owner passes `frame` once to Receive or Drop, in this call or later.
  virtual void OnFrame(std::span<const std::byte> header, size_t bytes, size_t memory,
                       uint64_t frame) = 0;

  // The link to `peer` has failed. May be reported more than once.
  virtual void OnLost(int peer, const absl::Status& why) = 0;
};

// Moves frames between processes: what a Wire needs of a library. It knows nothing of epochs, order
// and checksums. Thread-safe; no call waits for a peer.
class Carrier {
 public:
  using Done = std::function<void(const absl::Status&)>;

  // Ends all transfers, of which some are never done. Afterwards the sink is not called, and the
  // memory that transfers were about is not touched.
  virtual ~Carrier() = default;

  // Reports to `sink` from now on; called once, before everything else. The sink must outlive the
  // carrier.
  virtual void Start(CarrierSink& sink) = 0;

  // What others pass to their Connect: bytes without a meaning elsewhere.
  virtual const std::string& address() const = 0;

  // Begins to connect with the others, [rank]; the entry of `own` is ignored, and an empty one is
  // that of a rank which the ring goes on without. A peer that cannot be
  // reached is reported as lost. INVALID_ARGUMENT, naming the rank, if an address is none.
  virtual absl::Status Connect(int own, std::span<const std::string> addresses) = 0;

  // Sends a frame to a rank that was connected. `parts` must stay valid until `done` is called, on
  // any thread, perhaps within this call: the memory may then be written. An OK status does not
  // mean that the peer has the frame.
  virtual void Send(int peer, const FrameHeaderBytes& header, const RingParts& parts,
                    Done done) = 0;

  // Writes what follows the frame's header to `places`, which have its size together, and calls
  // `done` as above.
  virtual void Receive(uint64_t frame, std::vector<RingPlace> places, Done done) = 0;

  // Forgets the frame.
  virtual void Drop(uint64_t frame) = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_WIRE_CARRIER_H_
