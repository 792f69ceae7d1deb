#ifndef ANNULUS_ENGINE_PAGES_PAGE_CHECKER_H_
#define ANNULUS_ENGINE_PAGES_PAGE_CHECKER_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/pages/page_levels.h"
#include "engine/pages/page_marks.h"
#include "engine/pages/restores.h"
#include "engine/runner/rank_port.h"
#include "engine/state/sequence.h"
#include "engine/tiers/page_comparer.h"

namespace annulus {

// Compares restored pages with the same pages computed again: under KvVerify::kSample one page of
// each restore, before any of it is used. Used by the coordinator's thread alone.
class PageChecker {
 public:
  // `comparer`: null: checks nothing. All that is referred to must outlive the object.
  PageChecker(PageComparer* comparer, const PageMarks& marks, const RankPort& ranks,
              PageLevels& levels)
      : comparer_(comparer), marks_(marks), ranks_(ranks), levels_(levels) {}

  bool checks() const { return comparer_ != nullptr; }
  // How many tokens of a restored prefix are computed again before it is used: one page, or 0.
  int32_t checked_tokens() const { return checks() ? marks_.page_tokens() : 0; }

  // Chooses which of `pages` >= 1 restored pages is computed again, at random by the request's seed
  // and id. Every other time it is the last page: its keys and values depend on every page before
  // it, in all layers but the last. Otherwise it is any page, since an error in the last layer
  // shows only in the page itself. Not used for models with windows, which always check the last
  // page.
  static int32_t SampledPage(uint64_t seed, RequestId id, int32_t pages);

  // Compares the restore's sampled page with the last page of `computed`. If they have the same
  // bits, the restore is kKnown then; if not, the levels drop its pages. If they could not be
  // compared, says in Restore::missing that the disk is slower, and the levels keep the pages.
  // Blocks at most a second for each cache group if the pages are on a device.
  void Compare(const Sequence& computed, Restore& restore) const;

  // Heap bytes of buffers.
  int64_t bytes() const { return checks() ? comparer_->buffer_bytes() : 0; }

 private:
  // Errors of PageComparer::Same.
  absl::StatusOr<bool> SameBits(const Restore& restore, const Sequence& computed) const;
  // Drops the restore's pages from all levels.
  void Distrust(Restore& restore) const;

  PageComparer* const comparer_;
  const PageMarks& marks_;
  const RankPort& ranks_;
  PageLevels& levels_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_PAGES_PAGE_CHECKER_H_
