#ifndef ANNULUS_ENGINE_PAGES_REQUEST_PAGES_H_
#define ANNULUS_ENGINE_PAGES_REQUEST_PAGES_H_

#include "engine/memory/page_book.h"
#include "engine/memory/prefix_index.h"
#include "engine/scheduler/placement.h"
#include "engine/state/sequence.h"

// The pages of a request at its admission. Used by the coordinator's thread alone.

namespace annulus {

// Sets PageDemand::cached and cached_on for a request that begins with the hit. Counts one full
// group only: the pages of all full groups for the same positions are on the same rank.
void CountCached(const PrefixIndex::Hit& hit, const PlanLimits& limits, PageDemand& demand);

// Subtracts the pages of the hit from PageDemand::alone, the new pages that the request could have:
// it will hold them itself. Does not subtract pinned pages, which `alone` never includes.
void LeaveHeld(const PrefixIndex::Hit& hit, const PageBook& book, PageDemand& demand);

// Makes `owner` a holder of all pages of the hit. It must be open in the book.
void HoldPages(const PrefixIndex::Hit& hit, PageOwner owner, PageBook& book);

// Reserves the pages of the choice for the sequence, and its summary pages, and sets
// sequence.groups and sequence.summaries. sequence.owner must be open in the book, and the pages
// that `choice` names must be free there.
void ReservePages(const RingChoice& choice, const PlanLimits& limits, PageBook& book,
                  Sequence& sequence);

// Appends the pages of the hit to the sequence's page tables, which must be empty. The sequence
// must hold the pages.
void MapCached(const PrefixIndex::Hit& hit, Sequence& sequence);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_PAGES_REQUEST_PAGES_H_
