#ifndef ANNULUS_ENGINE_PAGES_LINGERING_PAGES_H_
#define ANNULUS_ENGINE_PAGES_LINGERING_PAGES_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "engine/memory/page_book.h"
#include "engine/pages/page_levels.h"

namespace annulus {

// Releases pages that were copied to or from the levels. A page that a device is still copying
// stays held until that copy has ended, even if nobody needs it any more: it lingers. Used by the
// coordinator's thread alone.
class LingeringPages {
 public:
  // The references must outlive the object.
  LingeringPages(PageLevels& levels, PageBook& book);

  // Releases what the owner of a write, one page, holds. The owner's id is the write's ticket.
  void ReleaseWrite(PageOwner owner);
  // Releases what the owner of a restore holds. Its id is the batch of its reads.
  void ReleaseRestore(PageOwner owner);
  // Releases pages that are no longer being copied. Allocates nothing.
  void ReleaseCopied();
  // Releases all. No copy must be under way.
  void ReleaseAll();

  bool any() const { return !lingering_.empty(); }
  // Whether lingering pages were released since the last call.
  bool TakeReleased() { return std::exchange(released_, false); }

 private:
  struct Lingering {
    PageOwner owner;
    std::optional<uint64_t> ticket;  // of the copy; absent: all copies of this restore
  };

  PageLevels& levels_;
  PageBook& book_;
  std::vector<Lingering> lingering_;  // has capacity for more than there are copies at once
  bool released_ = false;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_PAGES_LINGERING_PAGES_H_
