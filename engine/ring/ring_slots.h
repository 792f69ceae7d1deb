#ifndef ANNULUS_ENGINE_RING_RING_SLOTS_H_
#define ANNULUS_ENGINE_RING_RING_SLOTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/ops/attention.h"

namespace annulus {

// What the slots of one rank are made for.
struct RingSlotPlan {
  int ranks = 1;
  int64_t rows = 0;   // most rows of any rank in a step
  int states = 1;     // most states of a row that come from a peer
  int64_t pages = 0;  // most pages of one layer that come from peers in a ring step
  int heads = 1;
  KvPageShape shape;
  size_t layer_page_bytes = 0;
};

// Memory of a rank's device for what peers copy there. Two slots of each kind that comes with every
// ring step, so that the next is filled while one is read: ring step s has slot s mod 2.
struct RingSlots {
  std::span<std::byte> queries;                // of all peers, for a whole layer
  std::array<std::span<std::byte>, 2> pages;   // of a ring step
  std::array<std::span<std::byte>, 2> states;  // that come back in a ring step

  // Bytes that Cut needs for a plan.
  static size_t BytesFor(const RingSlotPlan& plan);
  // `memory`: BytesFor(plan) bytes.
  static RingSlots Cut(std::byte* memory, const RingSlotPlan& plan);
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_RING_SLOTS_H_
