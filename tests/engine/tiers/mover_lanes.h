#ifndef ANNULUS_TESTS_ENGINE_TIERS_MOVER_LANES_H_
#define ANNULUS_TESTS_ENGINE_TIERS_MOVER_LANES_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "engine/tiers/page_lane.h"

namespace annulus::testing {

// Lanes for the threads of a PageMover, for pages of rank 0 on that device.
class MoverLanes {
 public:
  MoverLanes(Backend& device, size_t page_bytes, int threads) {
    Backend* const devices[] = {&device};
    for (int thread = 0; thread < threads; ++thread) {
      lanes_.push_back(PageLane::Open(devices, page_bytes).value());
    }
  }

  std::vector<PageLane*> all() const {
    std::vector<PageLane*> pointers;
    for (const std::unique_ptr<PageLane>& lane : lanes_) pointers.push_back(lane.get());
    return pointers;
  }

 private:
  std::vector<std::unique_ptr<PageLane>> lanes_;
};

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_ENGINE_TIERS_MOVER_LANES_H_
