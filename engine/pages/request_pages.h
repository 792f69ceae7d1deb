#ifndef ANNULUS_ENGINE_PAGES_REQUEST_PAGES_H_
#define ANNULUS_ENGINE_PAGES_REQUEST_PAGES_H_

#include "engine/memory/page_book.h"
#include "engine/memory/prefix_index.h"
#include "engine/pages/pinned_documents.h"
#include "engine/scheduler/placement.h"
#include "engine/state/sequence.h"

// The pages of a request at its admission. Used by the coordinator's thread alone.

namespace annulus {

// Writes to the demand what is cached of it. Pages of the full groups for the same positions lie on
// the same ranks, so one group is counted.
void CountCached(const PrefixIndex::Hit& hit, const PlanLimits& limits, PageDemand& demand);

// Takes the pages of the hit, which the request will hold itself, from PageDemand::alone. Pinned
// ones are not counted there anyway.
void LeaveHeld(const PrefixIndex::Hit& hit, const PinnedDocuments& pins, PageDemand& demand);

// Makes `owner`, which is open, a holder of all pages of the hit.
void HoldPages(const PrefixIndex::Hit& hit, PageOwner owner, PageBook& book);

// Reserves the pages of the choice, with those of the sequence's summaries. sequence.id is
// set and open in the book, and enough pages must be free there: see ChooseRing.
void ReservePages(const RingChoice& choice, const PlanLimits& limits, PageBook& book,
                  Sequence& sequence);

// Puts the pages of the hit, which the sequence holds, into its tables.
void MapCached(const PrefixIndex::Hit& hit, Sequence& sequence);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_PAGES_REQUEST_PAGES_H_
