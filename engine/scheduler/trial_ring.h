#ifndef ANNULUS_ENGINE_SCHEDULER_TRIAL_RING_H_
#define ANNULUS_ENGINE_SCHEDULER_TRIAL_RING_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/scheduler/placement.h"

namespace annulus {

// An empty ring on which sequences are placed on trial, by the rule by which they are admitted
// (ChooseRing), to see whether all of them fit. Takes no pages. It may have fewer ranks than the
// engine, so it says what fits once some are lost. Not thread-safe.
class TrialRing {
 public:
  // `rooms`: how many pages sequences may have on each of its ranks: at least one rank, and at most
  // limits.ranks. `limits` must outlive the object.
  TrialRing(const PlanLimits& limits, std::vector<int32_t> rooms);

  // Whether the sequence fits beside those that were placed. One that reserves only a part of its
  // tokens must also fit with all of them if it were alone; `demand` need not say how much room
  // there is then, nor over how many ranks it may be spread.
  bool Fits(const PageDemand& demand) const { return Choose(demand).has_value(); }
  // Places the sequence. If it does not fit, changes nothing and returns false.
  bool Place(const PageDemand& demand);
  // The most tokens with which a sequence that is otherwise like `demand` fits, up to 2^31 - 1. 0:
  // it fits with none.
  int64_t LongestFit(PageDemand demand) const;

 private:
  std::optional<RingChoice> Choose(PageDemand demand) const;

  const PlanLimits& limits_;
  int32_t ranks_;
  std::vector<int32_t> rooms_;  // [rank of the engine] below 0: it is not one of the ring's
  std::vector<int32_t> free_;   // [rank of the engine] `rooms_` without what was placed
};

// The `count` smallest of `rooms`, ascending. `count` must be at most their number.
std::vector<int32_t> SmallestRooms(std::vector<int32_t> rooms, int count);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SCHEDULER_TRIAL_RING_H_
