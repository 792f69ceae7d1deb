#ifndef ANNULUS_ENGINE_PAGES_RESTORE_VERDICTS_H_
#define ANNULUS_ENGINE_PAGES_RESTORE_VERDICTS_H_

#include <cstdint>
#include <map>
#include <optional>

#include "engine/api/options.h"
#include "engine/api/result.h"
#include "engine/base/clock.h"
#include "engine/pages/page_levels.h"
#include "engine/pages/restores.h"
#include "engine/pages/tier_lookup.h"

namespace annulus {

// Decides for each waiting request whether it waits for the levels, and remembers why. A request
// waits at most as long as computing the pages would take, or one second if that is more. Then it
// uses what has come and computes the rest. Used by the coordinator's thread alone.
class RestoreVerdicts {
 public:
  enum class Verdict {
    kUnknown,  // call Judge
    kWanting,  // the levels have more than memory, but too many restores are under way: it waits
    kReady,    // the levels have more than memory: begin a restore, or call NoRoom
    kComing,   // pages are being read for it, or for another request that begins alike: it waits
    kSettled,  // it does not wait
  };
  static bool IsWait(Verdict verdict) {
    return verdict == Verdict::kComing || verdict == Verdict::kWanting;
  }

  // `checked_tokens`: how many restored tokens are computed again before they are used. The
  // references must outlive the object.
  RestoreVerdicts(KvVerify verify, int32_t checked_tokens, const TierLookup& lookup,
                  const PageLevels& levels, const Restores& restores, const Clock& clock)
      : verify_(verify),
        checked_tokens_(checked_tokens),
        lookup_(lookup),
        levels_(levels),
        restores_(restores),
        clock_(clock) {}

  // The verdict so far. Ends a wait that is over.
  Verdict Of(RequestId id);
  // How many tokens of a beginning memory has.
  struct InMemory {
    int32_t usable = 0;  // the request could begin with them now
    int32_t before = 0;  // a restore would read the pages after them: see TierLookup::MostBefore
  };
  // Judges a request; never returns kUnknown. `beginning`: the result of TierLookup::Find.
  // `computed`: predicted seconds to compute the tokens that memory lacks; 0: not known.
  Verdict Judge(RequestId id, const TenantId& tenant, const SavedBeginning& beginning,
                InMemory in_memory, double computed);
  // Predicted seconds to read the tokens of the beginning from `from` on, behind what is being read
  // now; nothing if nothing is restored, or not all rates are known.
  std::optional<double> SecondsToRead(const SavedBeginning& beginning, int32_t from) const;
  // Call if there is no room for the pages of a request that is kReady, and before it is judged for
  // another place. It becomes kUnknown.
  void NoRoom(RequestId id) { standings_.erase(id); }
  // Call when the request has ended or was preempted.
  void Forget(RequestId id) { standings_.erase(id); }

  // When the request no longer waits; nothing if no verdict is known.
  std::optional<SteadyTime> DueOf(RequestId id) const;
  // When the first wait is over.
  SteadyTime NextDue(SteadyTime now) const;

  // ---- for PageRestorer

  // A restore has begun for the request, which waits for it.
  void Begin(RequestId id, PageOwner restore) { standings_[id].restore = restore; }
  // The request's restore was given up. No-op if no verdict is known.
  void Settle(RequestId id);
  // The restore has ended; its pages [restore.from, to) are known now. Settles its request; others
  // that waited for it are judged again. `came`: [level] tokens that the level gave of these.
  void End(PageOwner owner, const Restore& restore, int32_t to, const PageLevels::Counts& came);

  // ---- reports

  // How many of the `cached` tokens that an admitted request reuses were restored for it.
  TokensByTier Restored(RequestId id, int64_t cached) const;
  // The first position of the page that was compared for the request; nothing if none was.
  std::optional<int64_t> Checked(RequestId id) const;
  // Why no more was restored for the request; nothing if the levels had no more.
  std::optional<CacheMiss> WhyNoMore(RequestId id) const;

  // Heap bytes of bookkeeping.
  int64_t bytes() const;

 private:
  // What is known of a waiting request.
  struct Standing {
    bool settled = false;
    std::optional<PageOwner> restore;  // that it waits for: its own, or another request's
    SteadyTime since;                  // when it began to wait
    SteadyTime asked;                  // when Of was called last
    bool unmeasured = false;           // how long reading `awaited` takes is not known
    PageLevels::Counts awaited{};      // [level] pages that are read until its own have come
    double most_seconds = 0;           // how long it may wait
    int64_t pages = 0;                 // pages that the levels have and memory lacks
    int32_t from = 0;                  // tokens [from, to) were restored for it
    int32_t to = 0;
    PageLevels::Counts came{};       // [level] of [from, to): tokens that the level gave
    std::optional<int32_t> checked;  // Restore::checked
    int32_t in_memory = 0;           // InMemory::usable when it was judged last
    std::optional<CacheMiss> miss;   // why no more was restored
  };

  static SteadyTime DueOf(const Standing& standing);
  bool ReadsForItself(RequestId id, const Standing& standing) const;
  // It does not wait for the levels, which are too slow.
  Verdict Overtake(Standing& standing);

  const KvVerify verify_;
  const int32_t checked_tokens_;
  const TierLookup& lookup_;
  const PageLevels& levels_;
  const Restores& restores_;
  const Clock& clock_;
  std::map<RequestId, Standing> standings_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_PAGES_RESTORE_VERDICTS_H_
