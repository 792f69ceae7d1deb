#include "engine/pages/lingering_pages.h"

#include "absl/cleanup/cleanup.h"
#include "engine/base/try_to.h"

namespace annulus {

LingeringPages::LingeringPages(PageLevels& levels, PageBook& book) : levels_(levels), book_(book) {
  lingering_.reserve(static_cast<size_t>(PageLevels::kMostLevels) * 2 * PageMover::kThreads);
}

void LingeringPages::ReleaseWrite(PageOwner owner) {
  ReleaseCopied();
  if (!levels_.IsCopying(owner.id)) return book_.Release(owner);
  lingering_.push_back({owner, owner.id});
}

// A restore may have all of memory and a device copy two pages of it: each gets an owner of its
// own, and the others are free at once.
void LingeringPages::ReleaseRestore(PageOwner owner) {
  ReleaseCopied();
  const bool held = TryTo([&] {
    for (const PageMover::Copy& copy : levels_.CopiesOf(owner.id)) {
      const PageOwner own = levels_.NewOwner();
      absl::Cleanup undo = [&] {
        if (book_.IsOpen(own)) book_.Release(own);
      };
      book_.Open(own, *book_.page(copy.id).tenant);
      book_.Hold(own, copy.id);
      std::move(undo).Cancel();
      lingering_.push_back({own, copy.ticket});
    }
  });
  if (held) return book_.Release(owner);
  lingering_.push_back({owner, std::nullopt});
}

void LingeringPages::ReleaseCopied() {
  const auto released = std::erase_if(lingering_, [this](const Lingering& each) {
    const bool copying = each.ticket.has_value() ? levels_.IsCopying(*each.ticket)
                                                 : levels_.IsCopyingFor(each.owner.id);
    if (!copying) book_.Release(each.owner);
    return !copying;
  });
  if (released > 0) released_ = true;
}

void LingeringPages::ReleaseAll() {
  for (const Lingering& each : lingering_) book_.Release(each.owner);
  lingering_.clear();
}

}  // namespace annulus
