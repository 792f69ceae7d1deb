#ifndef ANNULUS_ENGINE_PAGES_PAGE_RESTORER_H_
#define ANNULUS_ENGINE_PAGES_PAGE_RESTORER_H_

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "engine/base/clock.h"
#include "engine/memory/prefix_index.h"
#include "engine/pages/lingering_pages.h"
#include "engine/pages/page_checker.h"
#include "engine/pages/page_levels.h"
#include "engine/pages/prefix_reuse.h"
#include "engine/pages/restore_verdicts.h"
#include "engine/pages/restores.h"
#include "engine/request/request.h"
#include "engine/runner/rank_port.h"

namespace annulus {

// Reads pages back from the levels and makes them a cached prefix like any other. Each page is read
// from the first level that has it. Under KvVerify::kSample a restored prefix becomes known only
// after one of its pages was computed again with the same bits: NextCheck, BeginCheck, EndCheck.
// Used by the coordinator's thread alone.
class PageRestorer {
 public:
  // What the restorer works with. All of it must outlive the restorer.
  struct Parts {
    const PlanLimits& limits;
    const PageMarks& marks;
    const RankPort& ranks;
    const Clock& clock;
    PageBook& book;
    PrefixReuse& prefixes;
    PageLevels& levels;
    LingeringPages& lingering;
    PageChecker& checker;
    Restores& restores;
    RestoreVerdicts& verdicts;
  };
  explicit PageRestorer(const Parts& parts) : use_(parts) {}

  // An owner for Begin.
  PageOwner NewOwner() { return use_.levels.NewOwner(); }
  // Starts to read the pages of `beginning` that come after those of `from`. `from`: full groups'
  // pages in memory, at most TierLookup::MostBefore tokens, which `owner` must hold already; null:
  // reads all pages. `owner`: from NewOwner, open in the book. `ring` must have free pages for what
  // is read. Once the pages have come, the prefix becomes known.
  void Begin(const Request& request, SavedBeginning beginning, const PrefixIndex::Hit* from,
             std::vector<int32_t> ring, PageOwner owner);
  // Call if Begin, or work before it, ran out of memory. Releases what the owner holds and settles
  // the request.
  void Abort(RequestId id, PageOwner owner);
  // Call when the request has ended or was preempted. Stops its reads; what has come is used.
  void Forget(RequestId id);

  // The contents of the pages on these ranks are lost: ends the restores that read into them, and
  // nothing of theirs becomes known. Those that are being checked end with their checks.
  void ForgetRanks(std::span<const int32_t> ranks);

  // Handles a finished read from a level.
  void TakeDone(const PageMover::Done& done, int level);
  // Ends the restores that read from the level, which is off: what has come is used.
  void StopReadingFrom(int level);
  // Ends restores that are overdue: their requests go on with the pages that have come.
  void EndOverdue();
  // When EndOverdue must be called next even if no read ends.
  SteadyTime NextDue() const;

  // ---- checks, only under KvVerify::kSample

  // What a sequence needs to compute the sampled page of a restore again.
  struct Check {
    PageOwner restore;      // the restore, and the owner that holds its pages
    RequestId request = 0;  // the request that waits for it
    TenantId tenant;
    std::optional<AttentionAssignment> policy;  // absent: dense
    int64_t rope_length = 0;
    std::vector<int32_t> tokens;  // of the prompt, up to the sampled page's end
    std::vector<int32_t> ring;
    PrefixIndex::Hit before;  // the pages before the sampled one
  };
  // The next restore to be checked; nothing if none waits. A restore that waits longer than a
  // second is given up.
  std::optional<Check> NextCheck() const;
  // Call when a sequence begins to compute the page. The restore stays until EndCheck, even if the
  // request that waits for it ends.
  void BeginCheck(PageOwner restore);
  // Ends the check and the restore. `computed`: the sequence whose last page is compared with the
  // sampled one; null if it could not be computed. See PageChecker::Compare. If the page differs,
  // or could not be compared, no restored page becomes known.
  void EndCheck(PageOwner restore, const Sequence* computed);

  // Releases the pages of all restores. No copy must be under way, and no other call may follow.
  void ReleaseAll();
  // Heap bytes of bookkeeping.
  int64_t bytes() const;

 private:
  // Where a page that is being read belongs.
  struct Arriving {
    PageOwner restore;
    int group = 0;
    int32_t first_position = 0;
  };

  SteadyTime DueOf(const Restore& restore) const;
  void StartRead(PageOwner owner, Restore& restore, int group, int32_t first);
  void ReadFrom(int level, PageOwner owner, Restore& restore, int group, int32_t first);
  // Ends reading: the restore is to be checked, or ends.
  void StopReading(PageOwner owner);
  void KeepRestored(const Restore& restore, int32_t to);
  void EndRestore(PageOwner owner);

  const Parts use_;
  std::unordered_map<uint64_t, Arriving> arriving_;  // by ticket
  SteadyTime last_arrival_{};                        // when a page came last, for any restore
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_PAGES_PAGE_RESTORER_H_
