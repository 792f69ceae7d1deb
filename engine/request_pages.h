#ifndef ANNULUS_ENGINE_REQUEST_PAGES_H_
#define ANNULUS_ENGINE_REQUEST_PAGES_H_

#include <optional>

#include "engine/memory/prefix_index.h"
#include "engine/request.h"
#include "engine/runner/rank_set.h"
#include "engine/scheduler/placement.h"

// The pages of a request at its admission. Used by the coordinator's thread alone.

namespace annulus {

// What the demand has of the cached pages. Full groups' pages of the same positions lie on the same
// ranks, so one group is counted.
void CountCached(const PrefixIndex::Hit& hit, const PlanLimits& limits, PageDemand& demand);

// Takes every page that a sequence can ever need, those of its summaries too, and puts them and the
// cached ones into its tables; sequence.id is set. They must be free: see ChooseRing.
Request::Pages TakePages(const RingChoice& choice, std::optional<PrefixIndex::Hit> hit,
                         const PlanLimits& limits, RankSet& ranks, Sequence& sequence);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_REQUEST_PAGES_H_
