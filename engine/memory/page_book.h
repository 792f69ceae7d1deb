#ifndef ANNULUS_ENGINE_MEMORY_PAGE_BOOK_H_
#define ANNULUS_ENGINE_MEMORY_PAGE_BOOK_H_

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/base/tenant_id.h"
#include "engine/memory/page_owner.h"

namespace annulus {

// Identifies a page of keys and values and where it is. The book issues ids; the rank's pool has
// the page's bytes.
struct PageId {
  int32_t rank = 0;
  int32_t page = 0;

  friend bool operator==(const PageId&, const PageId&) = default;
  friend auto operator<=>(const PageId&, const PageId&) = default;
};

// What a page's bytes are good for.
enum class PageState : uint8_t {
  kFree,      // nobody owns it
  kReserved,  // owned by a request; contains nothing useful
  kPartial,   // a step is writing it, or has written some of its rows
  kComplete,  // all rows are written; does not change while it is owned
  kCached,    // complete, and lookups can find it
  kLoading,   // its bytes are being loaded from a lower tier; not readable yet
  kLost,      // its rank has lost the bytes; not readable before its rows are computed again
};
inline constexpr int kPageStates = 7;

absl::string_view PageStateName(PageState state);

// Whether a page may go from one state to the other in a single transition. Allowed:
//
//   free     -> reserved, loading
//   reserved -> partial, free
//   partial  -> complete, lost, free
//   complete -> cached, reserved, lost, free
//   cached   -> complete, free
//   loading  -> cached, free
//   lost     -> partial, free
//
bool MayBecome(PageState from, PageState to);

// What a request uses a page for. Free and reserved pages are kNone and can be used for any group.
enum class PageUse : uint8_t { kNone, kFull, kWindow, kSummary };

// The number of a rank's pages by purpose. The parts add up to its page count.
struct PageCounts {
  int64_t full = 0;       // full groups of running requests, and pages that are being loaded
  int64_t window = 0;     // the same for window groups
  int64_t reserved = 0;   // reserved for running requests; not written yet, or no longer needed
  int64_t summaries = 0;  // summaries of running requests' pages, taken at admission
  int64_t cached = 0;     // kept for reuse, including those that running requests read
  int64_t free = 0;

  // Pages with contents that are not cached, and pages that are being loaded. Excludes reserved
  // pages, which are empty.
  int64_t in_use() const { return full + window + summaries; }
  // Pages in use or promised. Others cannot get them before a request ends.
  int64_t held() const { return in_use() + reserved; }
  int64_t total() const { return held() + cached + free; }
  friend bool operator==(const PageCounts&, const PageCounts&) = default;
};

// SHA-256 over everything that determines a page's bytes: see PrefixIndex.
using ContentHash = std::array<unsigned char, 32>;

// The single table of all ranks' pages: state, owners, tenant, and what complete pages contain. It
// issues all page ids and checks every state transition. An invalid one is a bug of the caller: the
// process terminates and prints the page's entry.
//
// A page has holders (requests: Reserve, Load, Hold) and keepers (the prefix index: Keep, any
// number of times). It becomes free when it has neither. A holder must not release a page that a
// running step may access, until the step has ended on all ranks.
//
// Every call takes constant time per page; counts are updated incrementally. Open and pages_of also
// take time linear in the number of tenants that ever held a page. Clients cannot create tenants
// (see TenantId), so the operator's list of callers bounds it. Not thread-safe: only for the
// coordinator's thread.
class PageBook {
 public:
  // Hooks are called before a free page is taken and after a page was freed. Pools use them to
  // poison freed pages. Hooks must not call the book.
  struct Event {
    PageId id;
    PageOwner owner;          // the last owner that reserved or loaded it, before this event
    uint32_t generation = 0;  // how often the page was freed, including this time
  };
  struct Hooks {
    std::function<void(const Event&)> on_take;
    std::function<void(const Event&)> on_free;
  };

  // `pages`: [rank] number of pages. `group_windows`: [cache group] 0: full attention; otherwise
  // the window in tokens.
  PageBook(const std::vector<int32_t>& pages, std::vector<int32_t> group_windows, Hooks hooks = {});
  // Requires that every page is free; otherwise the process terminates.
  ~PageBook();
  PageBook(const PageBook&) = delete;
  PageBook& operator=(const PageBook&) = delete;

  // ---- holders

  // Registers a new owner. Its pages are visible to `tenant` only.
  void Open(PageOwner owner, const TenantId& tenant);
  bool IsOpen(PageOwner owner) const { return holdings_.contains(owner); }
  // Registers a new owner of the kind kPin, for pages that must stay when no request needs them. It
  // may only Hold pages.
  PageOwner OpenPin(const TenantId& tenant);

  // free -> reserved. Requires `count` free pages on `rank`. Takes the most recently freed pages
  // first, since they may still be in the processor's cache. Adds their ids to reserve(owner,
  // rank).
  void Reserve(PageOwner owner, int32_t rank, int32_t count);
  // Like Reserve, for summary pages. They stay kReserved, since ranks write them without the book,
  // and are not part of reserve(). Returns their ids.
  std::vector<int32_t> ReserveSummaries(PageOwner owner, int32_t rank, int32_t count);
  // free -> loading: takes a page whose bytes are about to be loaded. Requires a free page on
  // `rank`. The owner holds the page; it is not part of reserve(). Keep makes it cached.
  PageId Load(PageOwner owner, int32_t rank, int group);
  // The ids available to BeginWrite; it takes the last one first.
  std::span<const int32_t> reserve(PageOwner owner, int32_t rank) const;

  // Adds the owner as a holder of a cached or loading page of the same tenant. At most once per
  // owner and page.
  void Hold(PageOwner owner, PageId id);

  // reserved -> partial: a step is about to write rows of `group` into the page. The page must be
  // the next in its owner's reserve.
  void BeginWrite(PageOwner owner, PageId id, int group);
  // partial -> complete: all rows are written, by steps that succeeded on every rank.
  void Complete(PageId id);
  // complete -> reserved: returns a page that nobody will read again to the owner's reserve.
  // Returns false and changes nothing if others hold or keep it too.
  bool Recycle(PageOwner owner, PageId id);

  // partial or complete -> lost: its rank has lost the bytes. No-op for a page that is lost. Nobody
  // may keep it, so that no lookup finds it.
  void Lose(PageId id);
  // lost -> partial: the rows that were written to it have been computed again, with the same
  // bytes, by a step that succeeded on every rank. Complete follows if that is all of them.
  void Repair(PageId id);

  // Ends all holdings of the owner. Pages that nobody else holds or keeps become free, whatever was
  // written to them; a page of a failed step can therefore never be found.
  void Release(PageOwner owner);

  // ---- keepers

  // complete or loading -> cached; adds a keeper if the page is already cached. `coverage`: the
  // attention coverage with which it was computed; absent: exact. The first keeper's hash and
  // coverage stay until the page is written again, since later keepers keep the same bytes.
  void Keep(PageId id, const ContentHash& hash, std::optional<double> coverage);
  // Removes a keeper. The last one makes the page complete if somebody holds it, otherwise free.
  void Unkeep(PageId id);

  // ---- ranks

  // Whether the rank's pages may be taken. Until then nobody gets more of them; those that are held
  // are released as always.
  void SetUsable(int32_t rank, bool usable) {
    usable_ranks_ += (usable ? 1 : 0) - (ranks_[rank].usable ? 1 : 0);
    ranks_[rank].usable = usable;
  }
  bool is_usable(int32_t rank) const { return ranks_[rank].usable; }
  int32_t usable_ranks() const { return usable_ranks_; }

  // ---- queries

  struct Page {
    PageState state = PageState::kFree;
    PageUse use = PageUse::kNone;
    int group = -1;           // cache group; -1: none
    PageOwner owner;          // the last owner that reserved or loaded it
    uint32_t generation = 0;  // how often it was freed
    int32_t holders = 0;
    int32_t keepers = 0;
    const TenantId* tenant = nullptr;  // valid until Open is called; null: the page is free
    ContentHash hash{};                // once kept; together with `group` identifies the bytes
    std::optional<double> coverage;    // once kept; absent: exact
  };
  Page page(PageId id) const;
  PageState state(PageId id) const { return At(id).state; }
  int32_t holders(PageId id) const { return At(id).holders; }

  int ranks() const { return static_cast<int>(ranks_.size()); }
  const PageCounts& counts(int32_t rank) const { return ranks_[rank].counts; }
  // A tenant's pages on all ranks.
  struct TenantPages {
    int64_t all = 0;
    int64_t unheld = 0;  // of these, cached ones that no request holds
  };
  TenantPages pages_of(const TenantId& tenant) const;
  // How many pages of the rank requests may have altogether: all, or none.
  int32_t room(int32_t rank) const {
    return is_usable(rank) ? static_cast<int32_t>(counts(rank).total()) : 0;
  }
  int32_t free_count(int32_t rank) const {
    return is_usable(rank) ? static_cast<int32_t>(ranks_[rank].free.size()) : 0;
  }
  // Cached pages without a holder: how many evicting everything would free.
  int32_t unheld_count(int32_t rank) const { return is_usable(rank) ? ranks_[rank].unheld : 0; }
  // Whether at least one pin holds the page.
  bool IsPinned(PageId id) const { return At(id).pins > 0; }
  // How many different pages of the rank pins hold.
  int32_t pinned_count(int32_t rank) const { return ranks_[rank].pinned; }
  // The most pages that were not free at one time. Freed pages are reused before those that were
  // never used, so no more pages than this have ever been written.
  int32_t high_water(int32_t rank) const { return ranks_[rank].high_water; }

  // Heap bytes that an owner's list takes per reserved page.
  static constexpr int64_t kBytesPerHeldPage = sizeof(PageId) + sizeof(int32_t);

 private:
  struct Record {
    ContentHash hash{};
    PageOwner owner;
    double coverage = -1;  // below 0: exact
    uint32_t generation = 0;
    int32_t holders = 0;
    int32_t pins = 0;  // how many of the holders are
    int32_t keepers = 0;
    int32_t tenant = -1;  // index into tenants_
    int16_t group = -1;
    bool known = false;  // hash and coverage are set
    PageState state = PageState::kFree;
    PageUse use = PageUse::kNone;
  };
  struct Rank {
    std::vector<Record> records;
    // A stack; has capacity for every page, so releasing never allocates.
    std::vector<int32_t> free;
    PageCounts counts;
    int32_t unheld = 0;
    int32_t pinned = 0;
    int32_t high_water = 0;
    bool usable = true;
  };
  struct Holding {
    int32_t tenant = 0;
    std::vector<PageId> pages;                                  // each page once
    std::unordered_map<int32_t, std::vector<int32_t>> reserve;  // [rank]
  };

  Record& At(PageId id);
  const Record& At(PageId id) const;
  Holding& HoldingOf(PageOwner owner);
  int32_t Intern(const TenantId& tenant);
  int32_t Take(PageOwner owner, Holding& holding, int32_t rank, PageUse use,
               PageState state = PageState::kReserved);
  // Changes a page's entry with `change` and adjusts the counts.
  template <typename Change>
  void Update(PageId id, const Change& change);
  void Become(PageId id, PageState state);
  void FreeIfUnowned(PageId id);
  static int64_t& CountOf(const Record& record, PageCounts& counts);
  std::string Describe(PageId id) const;

  const std::vector<int32_t> group_windows_;
  const Hooks hooks_;
  std::vector<Rank> ranks_;
  std::vector<TenantId> tenants_;        // every one that ever held a page
  std::vector<TenantPages> of_tenants_;  // [index into tenants_]
  std::unordered_map<PageOwner, Holding, PageOwnerHash> holdings_;
  int32_t usable_ranks_ = 0;
  uint64_t next_pin_ = 1;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MEMORY_PAGE_BOOK_H_
