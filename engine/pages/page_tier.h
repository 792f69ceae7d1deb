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

// Saves the pages of prompts in the stores below the ranks' memory (the levels), and restores them
// for requests whose prompts begin with them. See engine/tiers/README.md.
//
// Saving: Offer queues complete pages, and the levels' threads write them in the background: first
// to level 0, then from each level to the next. A level holds a page until the next one has it, so
// the ranks' memory is needed only until level 0 has the page. A page for which a level has no room
// is written to the next level from where it was.
//
// Restoring: Find says what the levels have of a prompt, StandingOf and Look decide whether the
// request waits for it, Begin reads the pages, and Turn makes them a cached prefix like any other.
// Each page is read from the first level that has it. Under KvVerify::kSample, a restored prefix
// becomes known only after one of its pages was computed again with the same bits: NextCheck,
// BeginCheck, EndCheck.
//
// No call waits for a disk; EndCheck may wait for a device. While pages are copied, owners that the
// tier creates hold them in the book. A page that a device is copying stays held until that copy
// has ended, even if nobody needs it any more. Used by the coordinator's thread alone.
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

  // ---- saving

  // Offers the complete pages of a prompt to the levels. Call after each step. `checkpoints`:
  // prefix lengths whose window pages have just been made known: see PrefixReuse::Keep. Under
  // KvVerify::kAll, newly computed pages that a level has already are compared with its copies.
  // Tries again at the next call if memory runs out.
  void Offer(const Sequence& sequence, Request& request, const std::vector<int32_t>& checkpoints);

  // Whether the prompt's next chunk must wait until the disk has earlier ones: see SavePace. Always
  // false if there is no disk, or it is off.
  bool HoldsBack(RequestId id);

  // Stops holding pages in memory that wait to be written, so that a slow disk never keeps a
  // request from beginning. They are written later if they are still cached then. Returns false if
  // it held none.
  bool LetGoOfWrites();

  // ---- restoring

  // A beginning of a prompt that the levels have.
  struct Beginning {
    int32_t tokens = 0;                         // whole pages; 0: nothing
    std::optional<AttentionAssignment> policy;  // that its pages were computed under; absent: dense
    int64_t rope_length = 0;
    std::vector<PageMark> marks;  // [page] with group 0
  };
  // Returns the longest beginning of the prompt that the levels have, dense or under `policy`
  // (null: dense). Never includes the prompt's last token, except for RequestSpec::prefill_only.
  // `rope`: PrefixReuse::RopeLengthOf.
  Beginning Find(const RequestSpec& spec, const AttentionAssignment* policy, int64_t rope) const;
  // Whether the levels have the prompt's page after its first `known` tokens, a whole number of
  // pages, and all before it, under another identity: so another model, build or setting wrote
  // them. Looks for dense pages and those of `policy`. Never includes the prompt's last token.
  // Hashes no page after the first one that is missing, and no more than 16,384: false beyond.
  // Always false under KvVerify::kAll, where nothing that the levels have is used.
  bool HasUnderAnotherIdentity(const RequestSpec& spec, const AttentionAssignment* policy,
                               int64_t rope, int32_t known) const;
  // Numbers of tokens by tier.
  struct ByTier {
    int64_t host = 0;
    int64_t disk = 0;
    int64_t all() const { return host + disk; }
  };
  // The tiers that the beginning would be read from. If a position's groups are in several, the
  // slowest counts.
  ByTier Where(const Beginning& beginning) const;
  // The most tokens of the beginning that a restore may leave to memory. For these, memory needs
  // the pages of full groups only. The rest includes all window pages that the row after the
  // beginning sees, and at least one page of every group; all of them are read.
  int32_t MostBefore(const Beginning& beginning) const;

  // Whether a waiting request waits for the tier. It waits at most as long as computing the pages
  // would take, or one second if that is more. Then it uses what has come and computes the rest.
  enum class Standing {
    kUnknown,  // call Look
    kWanting,  // the levels have more than memory, but too many restores are under way: it waits
    kReady,    // the levels have more than memory: call Begin or NoRoom
    kComing,   // pages are being read for it, or for another request that begins alike: it waits
    kSettled,  // it does not wait
  };
  Standing StandingOf(RequestId id);
  // How many tokens of a beginning memory has.
  struct InMemory {
    int32_t usable = 0;  // the request could begin with them now
    int32_t before = 0;  // a restore would read the pages after them: see MostBefore
  };
  // Decides whether the request waits; never returns kUnknown. `beginning`: the result of Find.
  // `computed`: predicted seconds to compute the tokens that memory lacks; 0: not known.
  Standing Look(RequestId id, const TenantId& tenant, const Beginning& beginning,
                InMemory in_memory, double computed);
  // Call if there is no room for the pages of a request that is kReady. It becomes kUnknown, so
  // Look is called again when room may have come.
  void NoRoom(RequestId id) { standings_.erase(id); }
  // Whether the tier holds pages that will become evictable or free without any request ending:
  // pages of restores, and pages that a device still copies though nobody needs them.
  bool will_free_pages() const { return !restores_.empty() || !lingering_.empty(); }

  // Starts to read the pages of `beginning` that come after those of `from`. `from`: full groups'
  // pages in memory, at most MostBefore tokens, which `owner` must hold already; null: reads all
  // pages. `owner`: from NewOwner, open in the book. `ring` must have free pages for what is read.
  // Once the pages have come, the prefix becomes known.
  PageOwner NewOwner() { return {PageOwner::Kind::kTier, next_ticket_++}; }
  void Begin(const Request& request, Beginning beginning, const PrefixIndex::Hit* from,
             std::vector<int32_t> ring, PageOwner owner);
  // Call if Begin, or work before it, ran out of memory. Releases what the owner holds and settles
  // the request.
  void Abort(RequestId id, PageOwner owner);

  // How many of the `cached` tokens that an admitted request reuses were restored for it.
  ByTier Restored(RequestId id, int64_t cached) const;
  // Why no more was restored for the request; nothing if the levels had no more.
  std::optional<CacheMiss> WhyNoMore(RequestId id) const;
  // Call when the request has ended or was preempted. Cancels its reads.
  void Forget(RequestId id);

  // ---- checks, only under KvVerify::kSample

  // How many tokens of a restored prefix are computed again before it is used: one page, or 0 under
  // another KvVerify.
  int32_t checked_tokens() const { return samples() ? limits_.page_tokens : 0; }
  // Chooses which of `pages` >= 1 restored pages is computed again, at random by the request's seed
  // and id. Every other time it is the last page: its keys and values depend on every page before
  // it, in all layers but the last. Otherwise it is any page, since an error in the last layer
  // shows only in the page itself. Not used for models with windows, which always check the last
  // page.
  static int32_t SampledPage(uint64_t seed, RequestId id, int32_t pages);
  // The first position of the page that was compared for the request; nothing if none was.
  std::optional<int64_t> Checked(RequestId id) const;
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
  // sampled one; null if it could not be computed. If they differ, the levels drop the restored
  // pages, and none becomes known. Blocks at most a second for each group if the pages are on a
  // device. If the device takes longer, no restored page becomes known, but the levels keep them.
  void EndCheck(PageOwner restore, const Sequence* computed);

  // Handles finished copies, starts new ones and ends waits that are over. Returns whether waiting
  // requests should be looked at again: a restore has ended, or pages have become free that a
  // device was copying. If memory runs out, the rest is left to a later call.
  bool Turn();
  // When Turn must be called next even if no copy ends, because a wait is over then.
  SteadyTime NextDue() const;

  // Heap bytes of bookkeeping.
  int64_t bytes() const;

 private:
  struct PlacedKey {
    PageKey key;
    int32_t first_position = 0;
  };
  // A checkpoint at the end of a chunk, for models with windows. It keeps the window pages cached
  // until they are written, so that the prompt can continue from there after a restart. Then it is
  // dropped, and the pages return to the sequence's reserve. A sequence has at most one at a time,
  // since only that much more is reserved (PlanLimits::passing_checkpoints).
  struct Passing {
    struct Lent {
      int group = 0;
      PrefixPage page;
    };
    std::vector<Lent> lent;  // window pages not yet back in the reserve; empty: no checkpoint
    ContentHash end{};       // PrefixIndex::Mark::digest
    bool is_known = false;   // the prefix index has the checkpoint because of this
    bool is_stuck = false;   // all pages are written, but others use some of them
    // Window pages in the levels that no other checkpoint needs. `written`: those of the latest
    // passing checkpoint. `stale`: those of earlier ones, dropped once the latest is written.
    std::vector<PlacedKey> written;
    std::vector<PageKey> stale;
  };
  // How far the prompt of a running request was offered.
  struct Offered {
    bool never = false;      // its pages are never offered: see OfferNow
    int32_t tokens = 0;      // pages of full groups were offered up to here
    int64_t use = 0;         // PageStore::NextUse, one for all its pages
    PrefixIndex::Mark kept;  // of the longest prefix that the tier has made known
    int32_t saved = 0;       // no page below this position waits to be written
    int32_t reached = 0;     // models with windows: the end of the last chunk
    SavePace pace;
    Passing passing;
    PageMark last;                   // of the page that ends at `tokens`
    std::vector<ContentHash> chain;  // [page] up to `tokens`
    // For each document of the prompt, ascending: its first position, and the set of all documents
    // that begin no later.
    std::vector<std::pair<int32_t, DocumentSet>> documents;
  };
  using Counts = PageLevels::Counts;

  // A page that waits to be written to a level.
  struct Leaving {
    PageMark mark;
    // Where it is in memory. If the book's generation or hash differ, memory has it no more.
    PageId page;
    uint32_t generation = 0;
    ContentHash hash{};
    TenantId tenant;
    Counts tenant_bytes{};  // [level] PageMark::tenant_bytes
    int64_t use = 0;
    bool compare = false;  // see PageMover::Page
    // The store to read it from, which holds it until this pointer goes. Null: memory.
    std::shared_ptr<PageStore> from;
  };
  // The offers of one page that are not done. A page is offered again by each request that knows of
  // more documents in it.
  struct Waiting {
    DocumentSet documents;  // of all offers
    int64_t offers = 0;
    PageId page;  // of the latest offer
    uint32_t generation = 0;
  };
  // A write that the level's mover has.
  struct Writing {
    Leaving page;
    int level = 0;
    bool held = false;  // its owner holds the page in the book
  };
  enum class Phase : uint8_t {
    kReading,
    kUnchecked,  // reading has ended; waits for NextCheck
    kChecking,   // between BeginCheck and EndCheck
    kKnown,      // its pages may be used
  };
  struct Restore {
    Phase phase = Phase::kReading;
    RequestId request = 0;
    uint64_t seed = 0;  // the request's
    TenantId tenant;
    Beginning beginning;
    std::vector<int32_t> tokens;
    TaggedDocuments documents;
    SteadyTime asked;  // Request::documents_found
    std::vector<int32_t> ring;
    PrefixPages pages;                                        // [group], ascending
    int32_t from = 0;                                         // tokens left to memory: see Begin
    int32_t good_to = 0;                                      // no page below is missing
    bool whole = true;                                        // no page is missing
    CacheMiss::Reason missing = CacheMiss::Reason::kEvicted;  // why a page is missing
    int64_t use = 0;                                          // PageStore::NextUse
    int64_t all = 0;                                          // pages to read
    int64_t left = 0;                                         // pages that have not come yet
    Counts left_on{};  // [level] of `left`: pages that this level is asked for
    // [page after `from`] the slowest level that gave one of the groups' pages.
    std::vector<uint8_t> came_from;
    int32_t sampled = 0;               // first position of the page to be computed again
    std::optional<int32_t> checked{};  // first position of the page that was compared
    std::optional<double> coverage;    // lowest of the pages that came; absent: all are exact
    SteadyTime begun;
    SteadyTime arrived;  // when reading ended
  };
  // Where a page that is being read belongs.
  struct Arriving {
    PageOwner restore;
    int group = 0;
    int32_t first_position = 0;
  };
  // What is known of a waiting request: see Standing.
  struct StandingState {
    bool settled = false;
    std::optional<PageOwner> restore;  // that it waits for: its own, or another request's
    SteadyTime since;                  // when it began to wait
    SteadyTime asked;                  // when StandingOf was called last
    bool unmeasured = false;           // how long reading `awaited` takes is not known
    Counts awaited{};                  // [level] pages that are read until its own have come
    double most_seconds = 0;           // how long it may wait
    int64_t pages = 0;                 // pages that the levels have and memory lacks
    int32_t from = 0;                  // tokens [from, to) were restored for it
    int32_t to = 0;
    Counts came{};                   // [level] of [from, to): tokens that the level gave
    std::optional<int32_t> checked;  // Restore::checked
    int32_t in_memory = 0;           // InMemory::usable at the last Look
    std::optional<CacheMiss> miss;   // why no more was restored
  };
  // Whether the model has windows. A restore is then used whole or not at all.
  bool has_windows() const;
  PageLevels::Options LevelOptions(std::vector<PageLevels::Level> levels,
                                   std::function<void()> wake);
  PageMark MarkFor(const TenantId& tenant, const AttentionAssignment* policy, int64_t rope) const;
  // Turns the mark of a page into that of the next page, which has these tokens.
  static void Advance(std::span<const int32_t> tokens, PageMark& mark);
  bool HasPage(const ContentHash& chain, bool windows) const;
  int32_t LengthWithWindows(const std::vector<PageMark>& marks) const;
  void OfferNow(const Sequence& sequence, Request& request,
                const std::vector<int32_t>& checkpoints);
  // Models with windows: offers the end of a chunk, by a passing checkpoint.
  void OfferChunk(const Sequence& sequence, Request& request, Offered& state);
  // Whether one of the request's own checkpoints, up to `computed`, needs the group's window page
  // that begins at `first`.
  bool IsAtCheckpoint(const RequestSpec& spec, int32_t computed, int group, int32_t first) const;
  // Calls each(group, key, first position) for every window page that the row at `length` sees. The
  // prompt must have been offered up to there.
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
  // Updates Passing::written and stale after a passing checkpoint at `length` was offered.
  void NoteWritten(const RequestSpec& spec, int32_t length, Offered& state) const;
  // Drops stale pages from the levels if the disk has the latest passing checkpoint.
  void DropStale(Offered& state);
  // Drops the passing checkpoint if its pages are written. Returns whether there is none now.
  bool EndPassing(const Sequence& sequence, const RequestSpec& spec, Offered& state);
  // Returns a page of a dropped checkpoint to the sequence's reserve, unless it is still in a page
  // table. False if others use the page, so the reserve still lacks it.
  bool TakeBack(const Sequence& sequence, const RequestSpec& spec, const Passing::Lent& lent);
  void OfferPages(const Sequence& sequence, const Request& request, int32_t length, Offered& state);
  void OfferPage(const Sequence& sequence, const Request& request, int group, PageMark mark,
                 const Offered& state);
  Counts TenantBytes(const TenantRoom& room) const;
  // Whether a page of any group waits to be written, or is being written.
  bool WaitsToBeWritten(const ContentHash& chain) const;
  void ShowWaiting();
  int64_t WritesTo(int level) const;
  // One offer of the page is done.
  void EndOffer(const PageMark& mark);
  void StartWrites();
  bool IsThere(const Leaving& page) const;
  // Whether to ask the level to write the page; otherwise it goes on to the next level.
  bool Takes(int level, const Leaving& page) const;
  void StartWrite(int level);
  void TakeWritten(const PageMover::Done& done);
  // Call when the level is done with the page, written or not: queues it for the next level, if
  // there is one.
  void PassOn(Leaving page, int level);
  bool LetGoOfWritesTo(int level);
  // These release what an owner holds in the book. Pages that a device is copying are released
  // later (lingering_). The owner of a write holds one page.
  void ReleaseWrite(PageOwner owner);
  void ReleaseRestore(PageOwner owner);
  // Releases lingering pages that are no longer being copied. Allocates nothing.
  void ReleaseLingering();
  void StopCarrying(int level);
  void CarryOn();
  // Calls each(group, first position) for every page that a restore of [from, to) reads: all pages
  // of full groups, and the window pages that the row at `to` sees.
  template <typename Each>
  void ForEachPage(int32_t from, int32_t to, const Each& each) const {
    const int32_t page = limits_.page_tokens;
    for (size_t g = 0; g < limits_.group_windows.size(); ++g) {
      const int32_t window = limits_.group_windows[g];
      int32_t first = window > 0 ? std::max(0, to - window + 1) / page * page : from;
      for (; first < to; first += page) each(static_cast<int>(g), first);
    }
  }
  // [level] How many of those pages are on each level, with to = beginning.tokens.
  Counts CountPages(const Beginning& beginning, int32_t from) const;
  bool samples() const { return verify_ == KvVerify::kSample; }
  // Whether one more restore, of so many pages, may begin.
  bool HasPlace(int64_t pages) const;
  // [level] Pages of running restores that are read before those of a restore of so many pages.
  Counts PagesAhead(int64_t pages) const;
  std::optional<PageOwner> RestoreLike(const TenantId& tenant, const Beginning& beginning,
                                       int32_t in_memory) const;
  SteadyTime DueOf(const StandingState& standing) const;
  SteadyTime DueOf(const Restore& restore) const;
  bool ReadsForItself(RequestId id, const StandingState& standing) const;
  void StartRead(PageOwner owner, Restore& restore, int group, int32_t first);
  void ReadFrom(int level, PageOwner owner, Restore& restore, int group, int32_t first);
  void TakeRead(const PageMover::Done& done, int level);
  // The restore's page of the group at that position; it must exist.
  static PageId PageAt(const Restore& restore, int group, int32_t first);
  // Ends reading: the restore is to be checked, or ends.
  void StopReading(PageOwner owner);
  void KeepRestored(const Restore& restore, int32_t to);
  // [level] Tokens of [from, to) that the level gave.
  Counts CameBack(const Restore& restore, int32_t to) const;
  ByTier TierTokens(const Counts& tokens) const;
  void EndRestore(PageOwner owner);
  // Whether the sampled page and the sequence's last page have the same bits. Errors of
  // PageComparer::Same.
  absl::StatusOr<bool> SameBits(const Restore& restore, const Sequence& computed) const;
  // Drops the restore's pages from all levels.
  void Distrust(Restore& restore);
  void EndOverdue();
  PagePieces PiecesOf(PageId id) const;
  double page_bytes() const { return static_cast<double>(page_bytes_); }

  const ContentHash identity_;
  const std::vector<ContentHash> other_identities_;
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

  uint64_t next_ticket_ = 1;  // tickets, and ids of owners
  std::map<RequestId, Offered> offered_;
  std::array<std::deque<Leaving>, PageLevels::kMostLevels> leaving_;  // [level]
  std::unordered_map<PageKey, Waiting, PageKeyHash> waiting_;         // by page; not yet written
  std::map<PageOwner, Writing> writes_;
  std::map<PageOwner, Restore> restores_;
  // An owner of pages that a device still copies though nobody needs them.
  struct Lingering {
    PageOwner owner;
    std::optional<uint64_t> ticket;  // of the copy; absent: all copies of this restore
  };
  std::vector<Lingering> lingering_;  // has capacity for more than there are copies at once
  bool has_room_again_ = false;       // lingering pages were released since Turn last returned
  std::unordered_map<uint64_t, Arriving> arriving_;  // by ticket
  std::map<RequestId, StandingState> standings_;
  SteadyTime last_arrival_{};  // when a page came last, for any restore
  // When the first wait ends that HoldsBack has begun since the last Turn.
  SteadyTime held_until_ = SteadyTime::max();
  std::atomic<bool> woken_{false};  // Options::wake was called since the last Turn
  PageLevels levels_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_PAGES_PAGE_TIER_H_
