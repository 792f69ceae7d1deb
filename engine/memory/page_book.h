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

namespace annulus {

// A page of keys and values: where its bytes lie. The book gives ids out; a rank's pool has the
// bytes.
struct PageId {
  int32_t rank = 0;
  int32_t page = 0;

  friend bool operator==(const PageId&, const PageId&) = default;
  friend auto operator<=>(const PageId&, const PageId&) = default;
};

// What is known of a page's bytes.
enum class PageState : uint8_t {
  kFree,      // nobody owns it
  kReserved,  // a request owns it; nothing in it is of use
  kPartial,   // a step writes it, or has written some of its rows
  kComplete,  // every row is written; it will never change while it is owned
  kCached,    // complete, and look-ups find it
  kLoading,   // its bytes are on their way here from a lower tier; nobody may read it yet
  kSpilled,   // cached, and a lower tier has the same bytes: it can be given back without loss
};
inline constexpr int kPageStates = 7;

absl::string_view PageStateName(PageState state);

// Whether a page may go from one state to the other in one transition. Those that this allows:
//
//   free -> reserved, loading          reserved -> partial, free        partial -> complete, free
//   complete -> cached, reserved, free                                  loading -> cached, free
//   cached -> complete, spilled, free                                   spilled -> cached, free
bool MayBecome(PageState from, PageState to);

// What a request's page is for. A page is of no use to anybody (kNone) while it is free or waits in
// reserve; it then serves any group.
enum class PageUse : uint8_t { kNone, kFull, kWindow, kSummary };

// Pages of one rank by what they are for. The parts add up to its page count.
struct PageCounts {
  int64_t full = 0;       // full groups of running requests
  int64_t window = 0;     // window groups of running requests
  int64_t reserved = 0;   // taken at admission, not written yet or not needed any more
  int64_t summaries = 0;  // of running requests' pages, taken at admission
  int64_t cached = 0;     // kept for reuse, whether or not a running request reads them too
  int64_t free = 0;

  // These hold keys and values of running requests that are not kept for others too. A reserve is
  // not in use: nothing stands in it.
  int64_t in_use() const { return full + window + summaries; }
  // In use or promised: nobody else gets these before a request ends.
  int64_t held() const { return in_use() + reserved; }
  int64_t total() const { return held() + cached + free; }
  friend bool operator==(const PageCounts&, const PageCounts&) = default;
};

// Whom pages are held for: an opaque number of the caller's.
using PageOwner = uint64_t;

// SHA-256 over all that a page's bytes follow from: see PrefixIndex.
using ContentHash = std::array<unsigned char, 32>;

// The one table of every rank's pages: state, owners, tenant, and for complete ones what they hold.
// All ids come from here, and every change of a page is a transition that is checked: a caller that
// asks for another one has a bug, and the process ends with the page's entry in the message.
//
// A page has holders (requests: Reserve, Hold) and keepers (the prefix index: Keep, as often as it
// likes). It is free again when the last of either has gone. A page that a running step still
// touches must keep its holder until that step has ended on every rank.
//
// Every call is constant in time per page, and all counts are kept as pages change. Not
// thread-safe: the coordinator's.
class PageBook {
 public:
  // Called while a page is taken from the free ones, and after one went back (`generation` already
  // counts that): pools poison freed pages with it. Must not call the book.
  struct Event {
    PageId id;
    PageOwner owner = 0;      // the latest to reserve it
    uint32_t generation = 0;  // how often the page has been freed
  };
  struct Hooks {
    std::function<void(const Event&)> on_take;
    std::function<void(const Event&)> on_free;
  };

  // `pages`: [rank]; `group_windows`: per cache group 0 for full, else the window in tokens.
  PageBook(const std::vector<int32_t>& pages, std::vector<int32_t> group_windows, Hooks hooks = {});
  // Every page must be free.
  ~PageBook();
  PageBook(const PageBook&) = delete;
  PageBook& operator=(const PageBook&) = delete;

  // ---- holders

  // `owner`, new, may hold pages from now on. Its pages are `tenant`'s alone.
  void Open(PageOwner owner, const TenantId& tenant);
  bool IsOpen(PageOwner owner) const { return holdings_.contains(owner); }

  // free -> reserved. `count` must be free there. The page freed last is taken first, while it is
  // still warm. The ids wait in reserve(owner, rank).
  void Reserve(PageOwner owner, int32_t rank, int32_t count);
  // The same for summaries, which ranks write as they see fit: their pages stay reserved, outside
  // the reserve. Returns their ids.
  std::vector<int32_t> ReserveSummaries(PageOwner owner, int32_t rank, int32_t count);
  // free -> loading: the page's bytes are on their way to it. It is the owner's, outside of the
  // reserve; Keep makes it cached.
  PageId Load(PageOwner owner, int32_t rank, int group);
  // Ids that wait for BeginWrite; the last is next.
  std::span<const int32_t> reserve(PageOwner owner, int32_t rank) const;

  // One more holder of a cached page of the owner's tenant. At most once for an owner and a page.
  void Hold(PageOwner owner, PageId id);

  // reserved -> partial: a step is about to write rows of `group` into the page, which must be the
  // next of its owner's reserve.
  void BeginWrite(PageOwner owner, PageId id, int group);
  // partial -> complete: all rows are written, by steps that succeeded on every rank.
  void Complete(PageId id);
  // complete -> reserved: nobody will read the page again, so it waits for BeginWrite once more.
  // False, and no change, if others hold or keep it too.
  bool Recycle(PageOwner owner, PageId id);

  // The owner holds nothing any more. Pages that nobody else holds or keeps are free, whatever was
  // written: a page of a step that failed can never be found.
  void Release(PageOwner owner);

  // ---- keepers

  // complete or loading -> cached, or one keeper more of a cached page. `coverage`: the share of
  // attention with which it was computed; absent: exactly. What the first keeper says of a page
  // stands until it is written again: later ones keep the same bytes.
  void Keep(PageId id, const ContentHash& hash, std::optional<double> coverage);
  // One keeper less. At the last: cached -> complete if somebody holds it, else free.
  void Unkeep(PageId id);

  // ---- what stands in it

  struct Page {
    PageState state = PageState::kFree;
    PageUse use = PageUse::kNone;
    int group = -1;           // cache group; -1: of no group
    PageOwner owner = 0;      // the latest to reserve it
    uint32_t generation = 0;  // how often it has been freed
    int32_t holders = 0;
    int32_t keepers = 0;
    const TenantId* tenant = nullptr;  // null: free
    ContentHash hash{};                // once it was kept; with `group`, names the bytes
    std::optional<double> coverage;    // once it was kept
  };
  Page page(PageId id) const;
  int32_t holders(PageId id) const { return At(id).holders; }

  int ranks() const { return static_cast<int>(ranks_.size()); }
  const PageCounts& counts(int32_t rank) const { return ranks_[rank].counts; }
  int64_t pages_in(int32_t rank, PageState state) const {
    return ranks_[rank].states[static_cast<size_t>(state)];
  }
  int32_t free_count(int32_t rank) const { return static_cast<int32_t>(ranks_[rank].free.size()); }
  // Cached pages that no request holds: so many come free where everything is evicted.
  int32_t unheld_count(int32_t rank) const { return ranks_[rank].unheld; }
  // Most pages ever not free at once. Freed pages are taken again before others, so no more than
  // these have ever been written.
  int32_t high_water(int32_t rank) const { return ranks_[rank].high_water; }

  // Bytes of the heap that a holder's list takes for each page that it reserves.
  static constexpr int64_t kBytesPerHeldPage = sizeof(PageId) + sizeof(int32_t);

 private:
  struct Record {
    ContentHash hash{};
    PageOwner owner = 0;
    double coverage = -1;  // below 0: exactly
    uint32_t generation = 0;
    int32_t holders = 0;
    int32_t keepers = 0;
    int32_t tenant = -1;  // index into tenants_
    int16_t group = -1;
    bool known = false;  // hash and coverage are set
    PageState state = PageState::kFree;
    PageUse use = PageUse::kNone;
  };
  struct Rank {
    std::vector<Record> records;
    std::vector<int32_t> free;  // a stack; room for every page, so releasing never allocates
    PageCounts counts;
    std::array<int64_t, kPageStates> states{};
    int32_t unheld = 0;
    int32_t high_water = 0;
  };
  struct Holding {
    int32_t tenant = 0;
    std::vector<PageId> pages;                                  // each once
    std::unordered_map<int32_t, std::vector<int32_t>> reserve;  // by rank
  };

  Record& At(PageId id);
  const Record& At(PageId id) const;
  Holding& HoldingOf(PageOwner owner);
  int32_t Intern(const TenantId& tenant);
  int32_t Take(PageOwner owner, Holding& holding, int32_t rank, PageUse use,
               PageState state = PageState::kReserved);
  // Brings the counts up to date around a change of a page's entry.
  template <typename Change>
  void Update(PageId id, const Change& change);
  void Become(PageId id, PageState state);
  void FreeIfUnowned(PageId id);
  static int64_t& CountOf(const Record& record, PageCounts& counts);
  std::string Describe(PageId id) const;

  const std::vector<int32_t> group_windows_;
  const Hooks hooks_;
  std::vector<Rank> ranks_;
  std::vector<TenantId> tenants_;  // every one that ever held a page
  std::unordered_map<PageOwner, Holding> holdings_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MEMORY_PAGE_BOOK_H_
