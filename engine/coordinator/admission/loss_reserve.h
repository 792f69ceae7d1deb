#ifndef ANNULUS_ENGINE_COORDINATOR_ADMISSION_LOSS_RESERVE_H_
#define ANNULUS_ENGINE_COORDINATOR_ADMISSION_LOSS_RESERVE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "engine/api/request.h"
#include "engine/coordinator/admission/page_needs.h"
#include "engine/coordinator/coordinator_options.h"
#include "engine/coordinator/ledger.h"
#include "engine/memory/page_book.h"
#include "engine/memory/prefix_index.h"
#include "engine/scheduler/placement.h"
#include "engine/scheduler/trial_ring.h"

namespace annulus {

// Keeps room for the loss of ranks (CoordinatorOptions::tolerated_ranks, 0: for none): a request
// begins only if it, all that runs and all pinned documents would fit together on an empty ring
// without that many of the ranks.
//
// - What runs is placed there anew, by the rule by which it was admitted, in the order of
//   admission. After a loss, requests with no page on a lost rank stay where they are, so another
//   may have to wait for one of them to end. It never ends for want of room: each fits on the
//   smaller ring alone, beside the pinned documents.
// - A beginning that several share counts once, and cached pages that nobody holds not at all.
// - Pinned documents count as spread evenly over the ranks that are left.
// - A request that reserves only the pages that it is expected to need counts with those.
// - Nothing is kept once so many ranks are lost: then what is left is for use.
//
// Used by the coordinator's thread alone.
class LossReserve {
 public:
  // The references must outlive the object.
  LossReserve(const CoordinatorOptions& options, const Ledger& ledger, const PageNeeds& needs)
      : options_(options), ledger_(ledger), needs_(needs) {}

  // A request that does not run yet.
  struct Newcomer {
    const PageDemand& demand;               // if nothing of it is cached
    const PrefixIndex::Hit* hit = nullptr;  // what it would reuse; null: nothing
  };

  // Call before the first of the calls below, and again whenever other requests run or other pages
  // are pinned, except for those of which NoteBegun was told. The next call then takes time linear
  // in what runs; those after it do not.
  void BeginPass() { placed_.reset(); }
  // Whether the newcomer may begin.
  bool Fits(const Newcomer& newcomer);
  // Call when it begins.
  void NoteBegun(const Newcomer& newcomer);

  // Whether a request of the demand `large` will fit on the smaller ring, if the newcomer begins,
  // once all that runs has ended except those for which `stays` returns true.
  bool LeavesRoom(const PageDemand& large, const std::function<bool(RequestId)>& stays,
                  const Newcomer& newcomer) const;
  // Whether all that runs will fit if these pages are pinned too. Counts pages twice that a request
  // uses and that were not pinned before.
  bool FitsPin(const PrefixIndex::Hit& pin) const;

  // How many pages pinned documents leave of the smaller ring. Nothing: no room is kept.
  std::optional<int64_t> PagesBesidePins() const;

 private:
  using Chosen = std::function<bool(RequestId)>;
  struct Placed {
    TrialRing ring;
    bool fits = true;  // all that was to be placed
    // The last pages of cached beginnings that were counted for a request which reuses them.
    std::set<PageId> beginnings = {};
  };

  bool is_kept() const;
  std::vector<int32_t> Rooms(int64_t more_pins) const;
  Placed Place(const Chosen& chosen, int64_t more_pins) const;
  bool IsCounted(const PrefixPage& last, const Chosen& chosen, const Placed& placed) const;
  PageDemand DemandOf(const Newcomer& newcomer, const Chosen& chosen, const Placed& placed) const;
  void LeaveOut(int32_t cached, PageDemand& demand) const;

  const CoordinatorOptions& options_;
  const Ledger& ledger_;
  const PageNeeds& needs_;
  std::optional<Placed> placed_;  // all that runs
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_COORDINATOR_ADMISSION_LOSS_RESERVE_H_
