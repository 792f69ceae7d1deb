#ifndef ANNULUS_ENGINE_PAGES_RING_OF_PAGES_H_
#define ANNULUS_ENGINE_PAGES_RING_OF_PAGES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/scheduler/placement.h"

namespace annulus {

// A beginning of a text that one ring has.
struct RingPages {
  size_t pages = 0;
  std::vector<int32_t> ring;  // ascending ranks; empty if no page is on any
};

// The longest beginning of a text whose pages all are where a ring would have them (PlaceOnRing).
// `pages`: [page of the text] a bit for each rank that has it. `usable`: a bit for each rank that a
// ring may have: of a short text not every rank has a page. Of rings that have as much, one of the
// smallest degree, with the first ranks. Of models whose ranks are at most 64.
RingPages LongestOnOneRing(std::span<const uint64_t> pages, uint64_t usable, int page_tokens,
                           const PlanLimits& limits);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_PAGES_RING_OF_PAGES_H_
