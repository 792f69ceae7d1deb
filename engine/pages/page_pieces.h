#ifndef ANNULUS_ENGINE_PAGES_PAGE_PIECES_H_
#define ANNULUS_ENGINE_PAGES_PAGE_PIECES_H_

#include "engine/runner/rank_port.h"
#include "engine/tiers/page_lane.h"

namespace annulus {

// Returns the bytes of a page: one piece for each layer of its cache group; none if the rank's
// pages are not in this process (RankPort::local_pages).
PagePieces PiecesOf(const RankPort& ranks, PageId id);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_PAGES_PAGE_PIECES_H_
