#ifndef ANNULUS_ENGINE_PAGES_PAGE_TIER_H_
#define ANNULUS_ENGINE_PAGES_PAGE_TIER_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/api/options.h"
#include "engine/api/result.h"
#include "engine/base/clock.h"
#include "engine/pages/page_levels.h"
#include "engine/pages/prefix_reuse.h"
#include "engine/request/request.h"
#include "engine/runner/rank_port.h"
#include "engine/scheduler/save_pace.h"
#include "engine/tiers/document_set.h"
#include "engine/tiers/page_comparer.h"
#include "engine/tiers/page_mover.h"

namespace annulus {

// Saves the pages of prompts in the stores below the ranks' memory, and restores them for requests
// whose prompts begin with them. Complete pages are written in the background, level by level. A
// page is restored from the first level that has it, and is then a cached prefix like any other.
// The levels' threads copy the pages: no call here waits for a disk.
//
// A page that a level has is held there until the next level has it too, and is read from there to
// be written: the ranks' memory is needed only until the first level has the page. A page that a
// level has no room for goes to the next level from memory.
//
// Under KvVerify::kSample, restored pages become known only after one of them was computed again
// with the same bits: NextCheck, BeginCheck, EndCheck. SampledPage chooses that page.
//
// Pages that are being copied are held in the book by owners that the tier creates; few are at a
// time. A page that a device is copying stays held until that copy has ended, even if nobody needs
// it any more. Used by the coordinator's thread alone.
class PageTier {
 public:
  struct Options {
    std::string identity;  // of keys and values: see PrefixReuse
    KvVerify verify = KvVerify::kOff;
    PageComparer* comparer = nullptr;  // not null for KvVerify::kSample; must outlive the tier
    // Makes the coordinator call Turn. Called on any thread.
    std::function<void()> wake;
  };
  // All references must outlive the tier.
  PageTier(std::vector<PageLevels::Level> levels, Options options, const PlanLimits& limits,
           const RankPort& ranks, const Clock& clock, PageBook& book, PrefixReuse& prefixes);
  // Waits for the copies under way.
  ~PageTier();
  PageTier(const PageTier&) = delete;
  PageTier& operator=(const PageTier&) = delete;

  // ---- saving

  // Offers the complete pages of a prompt to the levels. Call after each step, with the checkpoints
  // that PrefixReuse::Keep returned. Under KvVerify::kAll, pages that a level has already are
  // compared with its copies.
  void Offer(const Sequence& sequence, Request& request, const std::vector<int32_t>& checkpoints);

  // Whether the prompt's next chunk must wait because the disk does not have those before it yet:
  // see SavePace. Always false without a disk, or if it is off.
  bool HoldsBack(RequestId id);

  // Stops holding the pages that wait to be written, so that a slow disk never keeps a request from
  // beginning. They are written later if they are still cached then. Returns false if it held none.
  bool LetGoOfWrites();

  // ---- restoring

  // What the levels have of a prompt's beginning, not counting the prompt's last token.
  struct Beginning {
    int32_t tokens = 0;
    std::optional<AttentionAssignment> policy;  // absent: dense
    int64_t rope_length = 0;
    std::vector<PageMark> marks;  // [page], of group 0
  };
  // `policy`: see PrefixReuse::Find.
  Beginning Find(const RequestSpec& spec, const AttentionAssignment* policy, int64_t rope) const;
  // Numbers of tokens, by the tier that has or had their pages.
  struct ByTier {
    int64_t host = 0;
    int64_t disk = 0;
    int64_t all() const { return host + disk; }
  };
  ByTier Where(const Beginning& beginning) const;
  // A restore of the beginning goes on from so many of its tokens at most. Those behind them have
  // pages to be read of every group: of windows, all that the row after the beginning sees.
  int32_t MostBefore(const Beginning& beginning) const;

  // Whether a waiting request waits for the tier. It waits for pages at most as long as computing
  // them would take, or one second if that is more. Then it uses what has come and computes the
  // rest.
  enum class Standing {
    kUnknown,  // call Look
    kWanting,  // the levels have more of it than memory, but too many other restores are under way
    kReady,    // the levels have more of it than memory: call Begin or NoRoom
    kComing,   // pages are being read for it, or for another request that begins the same way
    kSettled,  // it does not wait
  };
  Standing StandingOf(RequestId id);
  // What memory has of a beginning, in tokens.
  struct InMemory {
    int32_t usable = 0;  // the request could begin with them now
    int32_t before = 0;  // a restore goes on from them: PrefixReuse::FindFull
  };
  // Decides whether the request waits; never returns kUnknown. `beginning`: the result of Find.
  // `computed`: expected seconds to compute what is not usable; 0: not known.
  Standing Look(RequestId id, const TenantId& tenant, const Beginning& beginning,
                InMemory in_memory, double computed);
  // Call for a request that is kReady if there is no room for its pages. It then waits for room,
  // not for the tier.
  void NoRoom(RequestId id) { standings_.erase(id); }
  // Whether pages that nobody else holds become free soon: they are being restored, or a device
  // still copies them though nobody needs them.
  bool will_free_pages() const { return !restores_.empty() || !lingering_.empty(); }

  // Starts to read the pages of `beginning` that come after those of `from`, which `owner` holds
  // already and which has MostBefore tokens at most; null: all pages. There must be room for them
  // on `ring`. The prefix becomes known once they have come.
  PageOwner NewOwner() { return next_owner_++; }
  void Begin(const Request& request, Beginning beginning, const PrefixIndex::Hit* from,
             std::vector<int32_t> ring, PageOwner owner);
  // Call if Begin, or a step before it, failed. Releases what the owner holds; the request is
  // settled.
  void Abort(RequestId id, PageOwner owner);

  // How many of the `cached` tokens that an admitted request reuses were restored for it.
  ByTier Restored(RequestId id, int64_t cached) const;
  // Why no more was restored for it; nothing if everything was that the levels have.
  std::optional<CacheMiss> WhyNoMore(RequestId id) const;
  // Call when the request has ended. Cancels its reads.
  void Forget(RequestId id);

  // ---- checks

  // How many tokens of each beginning are computed again before it is used.
  int32_t checked_tokens() const { return samples() ? limits_.page_tokens : 0; }
  // Chooses which of `pages` restored pages (1 or more) is computed again, by the request's seed.
  // Every other time that is the last page, whose keys and values depend on those of all pages
  // before it in every layer but the last. Otherwise it is any page, which checks that page's last
  // layer too.
  static int32_t SampledPage(uint64_t seed, RequestId id, int32_t pages);
  // The position of the page that was compared for the request; nothing if none was.
  std::optional<int64_t> Checked(RequestId id) const;
  // What a sequence needs to compute the sampled page of a restore again.
  struct Check {
    PageOwner restore = 0;  // holds the pages
    RequestId request = 0;  // that waits for it
    TenantId tenant;
    std::optional<AttentionAssignment> policy;  // absent: dense
    int64_t rope_length = 0;
    std::vector<int32_t> tokens;  // up to the page's end
    std::vector<int32_t> ring;
    PrefixIndex::Hit before;  // the pages in front of it
  };
  // The next restore to be checked; nothing if none waits. A restore that waits longer than a
  // second is given up.
  std::optional<Check> NextCheck() const;
  // Call when a sequence begins to compute the page. The restore stays until EndCheck, even if its
  // request ends.
  void BeginCheck(PageOwner restore);
  // `computed`: the sequence whose last page is compared with the sampled one; null if it could not
  // be computed.
  void EndCheck(PageOwner restore, const Sequence* computed);

  // Handles finished copies and starts new ones. Returns whether a restore has ended, with or
  // without success, or pages are free again that a device was still copying: then waiting requests
  // should be looked at again. What memory does not suffice for is left to a later call.
  bool Turn();
  // When Turn must be called next even if no copy ends: a wait is over then.
  SteadyTime NextDue() const;

  // Heap bytes of bookkeeping.
  int64_t bytes() const;

 private:
  struct PlacedKey {
    PageKey key;
    int32_t first_position = 0;
  };
  // A checkpoint at the end of a chunk, for models with windows. It keeps the windows' pages cached
  // until they are written, so that the prompt can go on from there after a restart. Then it is
  // dropped, and the pages return to the sequence's reserve. A sequence has at most one, as only
  // that much more is reserved (PlanLimits::passing_checkpoints).
  struct Passing {
    struct Lent {
      int group = 0;
      PrefixPage page;
    };
    std::vector<Lent> lent;  // window pages that have not returned; empty: there is no checkpoint
    ContentHash end{};       // PrefixIndex::Mark::digest
    bool is_known = false;   // whether the index has it
    bool is_stuck = false;   // all pages are written, but others use some of them
    // Window pages that only passing checkpoints wrote: those of the latest one, and those of
    // earlier ones, which are dropped from the levels once the latest one is written.
    std::vector<PlacedKey> written;
    std::vector<PageKey> stale;
  };
  // Of a running request: how far its prompt was offered.
  struct Offered {
    bool never = false;
    int32_t tokens = 0;
    int64_t use = 0;
    PrefixIndex::Mark kept;
    int32_t saved = 0;    // no page below waits to be written
    int32_t reached = 0;  // the end of the last chunk
    SavePace pace;
    Passing passing;
    PageMark last;                   // of the last page
    std::vector<ContentHash> chain;  // [page]
    // Where each document of the prompt begins, ascending, and all up to it.
    std::vector<std::pair<int32_t, DocumentSet>> documents;
  };
  using Counts = PageLevels::Counts;

  struct Leaving {
    PageMark mark;
    PageId page;
    uint32_t generation = 0;
    ContentHash hash{};  // in the book
    TenantId tenant;
    Counts tenant_bytes{};  // PageMark::tenant_bytes
    int64_t use = 0;
    bool compare = false;  // PageMover::Page
    // The store that has the page and holds it; null: it is in memory.
    std::shared_ptr<PageStore> from;
  };
  // Of one page, offered again by each request that knows of more documents in it.
  struct Waiting {
    DocumentSet documents;  // of all its offers
    int64_t offers = 0;
    PageId page;  // of the latest offer
    uint32_t generation = 0;
  };
  struct Writing {
    Leaving page;
    int level = 0;
    bool held = false;  // in the book
  };
  enum class Phase : uint8_t {
    kReading,
    kUnchecked,  // all has come that will
    kChecking,
    kKnown,  // may be used
  };
  struct Restore {
    Phase phase = Phase::kReading;
    RequestId request = 0;
    uint64_t seed = 0;  // of its request
    TenantId tenant;
    Beginning beginning;
    std::vector<int32_t> tokens;
    TaggedDocuments documents;
    SteadyTime asked;  // for the documents
    std::vector<int32_t> ring;
    PrefixPages pages;  // [group], ascending
    int32_t from = 0;
    int32_t good_to = 0;                                      // no page below is missing
    bool whole = true;                                        // no page is missing
    CacheMiss::Reason missing = CacheMiss::Reason::kEvicted;  // why one is
    int64_t use = 0;
    int64_t all = 0;   // pages to read
    int64_t left = 0;  // of them, those that have not come
    Counts left_on{};  // where these are read
    // Behind `from`, the last of the levels that gave a page of this place: [page].
    std::vector<uint8_t> came_from;
    int32_t sampled = 0;               // position of the page to be computed again
    std::optional<int32_t> checked{};  // and of the one that was
    std::optional<double> coverage;
    SteadyTime begun;
    SteadyTime arrived;  // kUnchecked since
  };
  struct Arriving {
    PageOwner restore = 0;
    int group = 0;
    int32_t first_position = 0;
  };
  struct StandingState {
    bool settled = false;
    std::optional<PageOwner> restore;  // its own, or another's that it waits for
    SteadyTime since;                  // when it began to wait
    SteadyTime asked;                  // when StandingOf was asked last
    bool unmeasured = false;  // it waits for reads of which nobody knows how long they take
    Counts awaited{};         // pages of which that depends
    double most_seconds = 0;  // that it may wait
    int64_t pages = 0;        // that the levels have beyond memory's
    int32_t from = 0;         // what came back for it: tokens [from, to)
    int32_t to = 0;
    Counts came{};                   // of these, tokens by level
    std::optional<int32_t> checked;  // Restore::checked
    int32_t in_memory = 0;           // tokens, when it was looked at
    std::optional<CacheMiss> miss;   // why no more came back
  };
  // Whether the model has windows. What is read of a beginning is then used whole or not at all.
  bool has_windows() const;
  PageLevels::Options LevelOptions(std::vector<PageLevels::Level> levels,
                                   std::function<void()> wake);
  PageMark MarkFor(const TenantId& tenant, const AttentionAssignment* policy, int64_t rope) const;
  // The mark of the page behind `mark`'s.
  static void Advance(std::span<const int32_t> tokens, PageMark& mark);
  bool HasPage(const ContentHash& chain, bool windows) const;
  int32_t LengthWithWindows(const std::vector<PageMark>& marks) const;
  void OfferNow(const Sequence& sequence, Request& request,
                const std::vector<int32_t>& checkpoints);
  // Models with windows: offers the end of a chunk, by a passing checkpoint.
  void OfferChunk(const Sequence& sequence, Request& request, Offered& state);
  // Whether one of the request's own checkpoints, up to `computed`, needs a window's page.
  bool IsAtCheckpoint(const RequestSpec& spec, int32_t computed, int group, int32_t first) const;
  // Calls with group, key and first position of each page of windows that ends a prefix of `length`
  // tokens of the prompt. The prefix must have been offered.
  template <typename Each>
  void ForEachWindowPage(const Offered& state, int32_t length, const Each& each) const {
    for (size_t g = 0; g < limits_.group_windows.size(); ++g) {
      if (limits_.group_windows[g] == 0) continue;
      const int32_t page = limits_.page_tokens;
      const int32_t oldest = std::max(0, length - limits_.group_windows[g] + 1) / page * page;
      for (int32_t first = oldest; first < length; first += page) {
        each(static_cast<int>(g), PageKey{state.chain[first / page], static_cast<int32_t>(g)},
             first);
      }
    }
  }
  // After a passing checkpoint at `length` was offered.
  void NoteWritten(const RequestSpec& spec, int32_t length, Offered& state) const;
  // Drops stale pages from the levels if the disk has the latest passing checkpoint.
  void DropStale(Offered& state);
  // Drops the passing checkpoint if its pages are written. Returns whether none is left.
  bool EndPassing(const Sequence& sequence, const RequestSpec& spec, Offered& state);
  // Returns a page of a dropped checkpoint to the sequence's reserve, if no table has it. False if
  // others use the page, so that the reserve still lacks it.
  bool TakeBack(const Sequence& sequence, const RequestSpec& spec, const Passing::Lent& lent);
  void OfferPages(const Sequence& sequence, const Request& request, int32_t length, Offered& state);
  void OfferPage(const Sequence& sequence, const Request& request, int group, PageMark mark,
                 const Offered& state);
  Counts TenantBytes(const TenantRoom& room) const;
  // Whether a page of any group waits to be written, or is being written.
  bool WaitsToBeWritten(const ContentHash& chain) const;
  void ShowWaiting();
  int64_t WritesTo(int level) const;
  // One offer of the page waits no more.
  void EndOffer(const PageMark& mark);
  void StartWrites();
  bool IsThere(const Leaving& page) const;
  // Whether the level is to be asked to write it.
  bool Takes(int level, const Leaving& page) const;
  void StartWrite(int level);
  void TakeWritten(const PageMover::Done& done);
  // The level has done with the page: it is the next one's turn, or nobody's.
  void PassOn(Leaving page, int level);
  bool LetGoOfWritesTo(int level);
  // Release what an owner holds in the book, but for pages that a device copies: those follow once
  // it is done. The owner of a write has one page.
  void ReleaseWrite(PageOwner owner);
  void ReleaseRestore(PageOwner owner);
  // Releases what is no longer copied. Allocates nothing.
  void ReleaseLingering();
  void StopCarrying(int level);
  void CarryOn();
  // Calls with the group and the first position of each page behind the first `from` tokens of a
  // beginning of `to`.
  template <typename Each>
  void ForEachPage(int32_t from, int32_t to, const Each& each) const {
    const int32_t page = limits_.page_tokens;
    for (size_t g = 0; g < limits_.group_windows.size(); ++g) {
      const int32_t window = limits_.group_windows[g];
      int32_t first = window > 0 ? std::max(0, to - window + 1) / page * page : from;
      for (; first < to; first += page) each(static_cast<int>(g), first);
    }
  }
  // Of these, by the level that has them.
  Counts CountPages(const Beginning& beginning, int32_t from) const;
  bool samples() const { return verify_ == KvVerify::kSample; }
  bool HasPlace(int64_t pages) const;
  // Pages still to be read before a restore of so many could end.
  Counts PagesAhead(int64_t pages) const;
  std::optional<PageOwner> RestoreLike(const TenantId& tenant, const Beginning& beginning,
                                       int32_t in_memory) const;
  SteadyTime DueOf(const StandingState& standing) const;
  SteadyTime DueOf(const Restore& restore) const;
  bool ReadsForItself(RequestId id, const StandingState& standing) const;
  void StartRead(PageOwner owner, Restore& restore, int group, int32_t first);
  void ReadFrom(int level, PageOwner owner, Restore& restore, int group, int32_t first);
  void TakeRead(const PageMover::Done& done, int level);
  // The restore's page of the group; it must be there.
  static PageId PageAt(const Restore& restore, int group, int32_t first);
  // No more pages come: it is to be checked, or ends.
  void StopReading(PageOwner owner);
  void KeepRestored(const Restore& restore, int32_t to);
  // Tokens that came, up to there.
  Counts CameBack(const Restore& restore, int32_t to) const;
  ByTier TierTokens(const Counts& tokens) const;
  void EndRestore(PageOwner owner);
  // Whether the sampled page has the bits of the sequence's last. Errors of PageComparer::Same.
  absl::StatusOr<bool> SameBits(const Restore& restore, const Sequence& computed) const;
  // What the levels have of the beginning, behind what memory had, is found no more.
  void Distrust(Restore& restore);
  void EndOverdue();
  PagePieces PiecesOf(PageId id) const;
  double page_bytes() const { return static_cast<double>(page_bytes_); }

  const ContentHash identity_;
  const KvVerify verify_;
  PageComparer* const comparer_;
  const PlanLimits limits_;
  const RankPort& ranks_;
  const Clock& clock_;
  PageBook& book_;
  PrefixReuse& prefixes_;
  const size_t page_bytes_;
  const int64_t most_writes_;
  const int64_t most_leaving_;

  PageOwner next_owner_ = PageOwner{1} << 63;  // no request's
  std::map<RequestId, Offered> offered_;
  std::array<std::deque<Leaving>, PageLevels::kMostLevels> leaving_;  // [level]
  std::unordered_map<PageKey, Waiting, PageKeyHash> waiting_;  // to be written, or being written
  std::map<PageOwner, Writing> writes_;
  std::map<PageOwner, Restore> restores_;
  // Owners of pages that a device still copies though nobody needs them.
  struct Lingering {
    PageOwner owner = 0;
    std::optional<uint64_t> ticket;  // of the copy; absent: all of a restore's
  };
  std::vector<Lingering> lingering_;  // has capacity for more than there are copies at once
  bool has_room_again_ = false;       // some of it was released since Turn last said so
  std::unordered_map<uint64_t, Arriving> arriving_;  // by ticket
  std::map<RequestId, StandingState> standings_;
  SteadyTime last_arrival_{};  // of any page
  // When the first of the waits ends that HoldsBack has begun since the last Turn.
  SteadyTime held_until_ = SteadyTime::max();
  std::atomic<bool> woken_{false};
  PageLevels levels_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_PAGES_PAGE_TIER_H_
