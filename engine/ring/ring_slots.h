#ifndef ANNULUS_ENGINE_RING_RING_SLOTS_H_
#define ANNULUS_ENGINE_RING_RING_SLOTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/ring/ring_shape.h"

namespace annulus {

// The sizes that a rank's slots must accommodate.
struct RingSlotPlan {
  int ranks = 1;
  int64_t rows = 0;               // most rows of any rank in a step
  int states = 1;                 // most states per row that a peer returns: see MostStates
  int64_t pages = 0;              // most pages of one layer from all peers in a ring step
  std::vector<RingShape> shapes;  // each that a layer may have
};

// Memory on a rank's device that peers copy into. Whatever arrives in every ring step has two
// slots, so that one can be filled while the other is read: ring step s uses slot s mod 2.
struct RingSlots {
  std::span<std::byte> queries;                // from all peers, for a whole layer
  std::array<std::span<std::byte>, 2> pages;   // of one ring step
  std::array<std::span<std::byte>, 2> states;  // returned in one ring step

  // How many bytes Cut needs.
  static size_t BytesFor(const RingSlotPlan& plan);
  // Divides `memory`, BytesFor(plan) bytes, into slots.
  static RingSlots Cut(std::byte* memory, const RingSlotPlan& plan);
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_RING_SLOTS_H_
