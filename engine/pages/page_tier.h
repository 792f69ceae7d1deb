#ifndef ANNULUS_ENGINE_PAGES_PAGE_TIER_H_
#define ANNULUS_ENGINE_PAGES_PAGE_TIER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/api/options.h"
#include "engine/base/clock.h"
#include "engine/pages/lingering_pages.h"
#include "engine/pages/page_checker.h"
#include "engine/pages/page_levels.h"
#include "engine/pages/page_marks.h"
#include "engine/pages/page_restorer.h"
#include "engine/pages/page_writes.h"
#include "engine/pages/prefix_reuse.h"
#include "engine/pages/prompt_saver.h"
#include "engine/pages/restore_verdicts.h"
#include "engine/pages/restores.h"
#include "engine/pages/tier_lookup.h"
#include "engine/runner/rank_port.h"
#include "engine/tiers/page_comparer.h"

namespace annulus {

// Saves the pages of prompts in the stores below the ranks' memory (the levels), and restores them
// for requests whose prompts begin with them. See engine/tiers/README.md. This class owns the parts
// that do so, and gives them their turns:
//
// - lookup(): what the levels have of a prompt;
// - saver(): offers pages of running prompts, which PageWrites writes in the background;
// - verdicts(): whether a waiting request waits for pages to be read back;
// - restorer(): reads them, and has them checked.
//
// No call waits for a disk; PageRestorer::EndCheck may wait for a device. While pages are copied,
// owners of kind kTier hold them in the book. Used by the coordinator's thread alone.
class PageTier {
 public:
  struct Options {
    std::string identity;  // CoordinatorOptions::identity
    // HashOf of other identities, under which the levels may have pages of earlier daemons.
    std::vector<ContentHash> other_identities;
    KvVerify verify = KvVerify::kOff;
    PageComparer* comparer = nullptr;  // not null for KvVerify::kSample; must outlive the tier
    // Called on the levels' threads; must make the coordinator call Turn soon.
    std::function<void()> wake;
  };
  // All references must outlive the tier.
  PageTier(std::vector<PageLevels::Level> levels, Options options, const PlanLimits& limits,
           const RankPort& ranks, const Clock& clock, PageBook& book, PrefixReuse& prefixes);
  // Waits for the copies under way, and releases the pages that the tier holds.
  ~PageTier();
  PageTier(const PageTier&) = delete;
  PageTier& operator=(const PageTier&) = delete;

  const TierLookup& lookup() const { return lookup_; }
  PromptSaver& saver() { return saver_; }
  RestoreVerdicts& verdicts() { return verdicts_; }
  const RestoreVerdicts& verdicts() const { return verdicts_; }
  PageRestorer& restorer() { return restorer_; }
  // How many tokens of a restored prefix are computed again before it is used.
  int32_t checked_tokens() const { return checker_.checked_tokens(); }

  // Stops holding pages in memory that wait to be written, so that a slow disk never keeps a
  // request from beginning. They are written later if they are still cached then. Returns false if
  // it held none.
  bool LetGoOfWrites() { return writes_.LetGo(); }
  // Whether the tier holds pages that will become evictable or free without any request ending:
  // pages of restores, and pages that a device still copies though nobody needs them.
  bool will_free_pages() const { return restores_.size() > 0 || lingering_.any(); }

  // Call when the request has ended or was preempted. Cancels its reads.
  void Forget(RequestId id);

  // The contents of the pages on these ranks are lost, and what levels kept beside them. Never
  // throws: if memory runs out, nothing of them is used either, but all levels may be off then.
  void ForgetRanks(std::span<const int32_t> ranks);

  // Handles finished copies, starts new ones and ends waits that are over. Returns whether waiting
  // requests should be considered again: a restore has ended, or pages have become free that a
  // device was copying. If memory runs out, the rest is left to a later call.
  bool Turn();
  // When Turn must be called next even if no copy ends, because a wait is over then.
  SteadyTime NextDue() const;

  // Heap bytes of bookkeeping.
  int64_t bytes() const;

 private:
  PageLevels::Options LevelOptions(std::vector<PageLevels::Level> levels, KvVerify verify,
                                   std::function<void()> wake);
  void TakeDone(int level);
  void CarryOn();

  const PlanLimits limits_;
  const RankPort& ranks_;
  const Clock& clock_;
  // Made in advance, as making it allocates.
  const absl::Status no_memory_ = absl::ResourceExhaustedError("out of memory");
  std::atomic<bool> woken_{false};  // Options::wake was called since the last Turn
  PageLevels levels_;
  const PageMarks marks_;
  const TierLookup lookup_;
  LingeringPages lingering_;
  PageWrites writes_;
  PromptSaver saver_;
  Restores restores_;
  PageChecker checker_;
  RestoreVerdicts verdicts_;
  PageRestorer restorer_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_PAGES_PAGE_TIER_H_
