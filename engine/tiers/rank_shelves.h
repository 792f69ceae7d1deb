#ifndef ANNULUS_ENGINE_TIERS_RANK_SHELVES_H_
#define ANNULUS_ENGINE_TIERS_RANK_SHELVES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/tiers/page_entry.h"

namespace annulus {

// Host memory for pages beside each rank: a shelf of equal slots, in the process that has the rank,
// wherever that is. Whoever calls decides which slot has which page (ShelfStore); a shelf has the
// bytes, and checks them. Pages are copied only between a rank and its own shelf.
//
// A shelf is lost with its process. One that comes in its place is empty: its slots have no keys,
// so what was saved before is never mistaken for what they hold.
//
// Calls block until the copy has ended or its process is lost, and each has a bound. The caller
// makes sure that nobody writes the page or the slot meanwhile. Thread-safe otherwise. Errors of
// all calls: UNAVAILABLE: the process that has the rank is lost, or was not there;
// INVALID_ARGUMENT: there is no such page or slot; RESOURCE_EXHAUSTED: no memory.
class RankShelves {
 public:
  virtual ~RankShelves() = default;

  // Copies a page of its rank to a slot, which has this key then.
  virtual absl::Status Save(PageId page, int32_t slot, const PageKey& key) = 0;
  // Copies a slot to a page of its rank. DATA_LOSS, leaving the page as it was, if the slot has not
  // got the key, or not the bytes that were saved.
  virtual absl::Status Load(PageId page, int32_t slot, const PageKey& key) = 0;
  // Whether two pages of one rank have the same bytes.
  virtual absl::StatusOr<bool> Same(PageId one, PageId other) = 0;

  // Ends the calls that wait for another process, and later ones at once, with CANCELLED: threads
  // that call can be joined then. Calls that only copy end as always.
  virtual void Stop() {}

  // Host memory that the shelves of this process have taken so far.
  virtual int64_t resident_bytes() const = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TIERS_RANK_SHELVES_H_
