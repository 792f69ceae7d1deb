#ifndef ANNULUS_ENGINE_SCHEDULER_GROWTH_H_
#define ANNULUS_ENGINE_SCHEDULER_GROWTH_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/scheduler/placement.h"
#include "engine/state/step_plan.h"

namespace annulus {

// [ring index] How many more pages a sequence needs that has pages for the positions below `from`
// and is to have pages for those below `to` >= from. `demand`: the sequence's at admission.
std::vector<int32_t> PagesToGrow(const PageDemand& demand, int64_t from, int64_t to, int degree,
                                 const PlanLimits& limits);

// What GrowSequences can ask of the owner of the pages.
class GrowthHost {
 public:
  virtual ~GrowthHost() = default;
  // Takes the pages that the sequence needs for its next row, and possibly more. If too few are
  // free, even after evicting cached pages that nobody holds, returns false and takes none.
  virtual bool Grow(SequenceId id) = 0;
  // Whether `id`, which Grow refused, lacks pages on a rank where `victim` would free some.
  virtual bool Helps(SequenceId victim, SequenceId id) = 0;
  // The victim gives up its pages and waits again.
  virtual void Preempt(SequenceId victim) = 0;
};

// A running sequence.
struct Grower {
  SequenceId id = 0;
  bool grows = false;      // needs pages before its next rows
  bool may_yield = false;  // may be preempted
  bool is_parked = false;  // its reader is slow; it does not grow meanwhile
};

// Orders the running sequences for GrowSequences: first the eldest, which is the earliest submitted
// one that is not parked; then the others in serving order; last the parked ones. `order`: indices
// into `running`, see ServingOrder.
std::vector<Grower> GrowthOrder(std::span<const Grower> running, std::span<const size_t> order);

// Gives pages to the sequences that grow, in the given order (GrowthOrder). If one finds too few,
// preempts later sequences that may yield and help, the last one first. If that is not enough,
// preempts the one that grows. The first sequence, and those that may not yield, are never
// preempted: they keep their pages and wait. Returns whether one waits; no request must begin then.
//
// Livelock-free: the first can take pages from all that may yield, and those that may not yield end
// without growing. So it gets what it needs if it would fit alone. The eldest stays the eldest
// until it ends, is parked, or an older request begins, of which there are finitely many. So every
// request's turn comes. Pure.
bool GrowSequences(std::span<const Grower> order, GrowthHost& host);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SCHEDULER_GROWTH_H_
