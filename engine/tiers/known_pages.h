#ifndef ANNULUS_ENGINE_TIERS_KNOWN_PAGES_H_
#define ANNULUS_ENGINE_TIERS_KNOWN_PAGES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "engine/tiers/disk_folder.h"
#include "engine/tiers/page_entry.h"

namespace annulus {

// A store's list of pages: whose they are, when they were used last, and how many bytes they take.
// Does not access files. Not thread-safe: the store's lock guards it.
//
// Pages beside one rank (PageKey::rank) do not make room for those beside another.
class KnownPages {
 public:
  // Bytes that a page with this payload counts for: those of its file, rounded up to disk blocks.
  static int64_t FileBytes(uint64_t payload_bytes);

  struct Page {
    EntryName name;
    int64_t use = 0;
    int holds = 0;  // above 0: MakeRoom does not give it up
  };
  // Null if unknown. Valid until the page is dropped.
  const Page* Find(const PageKey& key) const;
  int64_t size() const { return static_cast<int64_t>(pages_.size()); }

  // The caller must have added the bytes of its file with Count.
  void Add(const EntryName& name, int64_t use);
  void Touch(const PageKey& key, int64_t use);
  // Returns false if the page is not known.
  bool Hold(const PageKey& key);
  void Release(const PageKey& key);
  void SetDocuments(const PageKey& key, const DocumentSet& documents);
  // Forgets the page and subtracts its bytes. Returns nothing if it was not known.
  std::optional<EntryName> Drop(const PageKey& key);
  // Forgets all pages beside the rank, and returns their names.
  std::vector<EntryName> DropBeside(int32_t rank);
  // Adds to the tenant's bytes beside the rank (subtracts if negative). For files of pages that are
  // not known: those being written, and those of forgotten pages that are not removed yet.
  void Count(uint64_t tenant, int64_t bytes, int32_t rank = PageKey::kAnyRank);

  int64_t bytes() const { return bytes_; }
  int64_t bytes_of(uint64_t tenant, int32_t rank = PageKey::kAnyRank) const;

  // What room is needed for, and the limits beside its rank.
  struct Wanted {
    uint64_t tenant = 0;
    int64_t bytes = 0;
    int64_t use = 0;             // only pages with an earlier use are given up
    int64_t most_of_tenant = 0;  // the tenant's limit
    int64_t most = 0;            // the limit of all tenants together
    int32_t rank = PageKey::kAnyRank;
  };
  // Gives up pages beside its rank until `wanted` fits, and returns their names: first the tenant's
  // own until its limit is kept, then those of any tenant, the least recently used first and within
  // one text the later ones first. Held pages stay. If that does not make enough room, returns
  // nothing and gives up no page.
  std::optional<std::vector<EntryName>> MakeRoom(const Wanted& wanted);
  bool HasRoom(const Wanted& wanted) const { return Choose(wanted).has_value(); }

  // The order in which pages beside a rank are given up.
  struct Order {
    int64_t use = 0;
    int32_t first_position = 0;
    PageKey key;
    bool operator<(const Order& other) const;
  };
  // Calls `visit` for at most `most` of the tenant's pages that come after `done` (absent: from the
  // first), and updates `done`. `visit` may drop the page it is given. Returns whether more pages
  // follow.
  template <typename Visit>
  bool VisitSome(uint64_t tenant, int most, std::optional<Order>& done, const Visit& visit) const {
    const auto own = tenants_.find(tenant);
    if (own == tenants_.end()) return false;
    const std::set<Order>& order = own->second.order;
    auto next = done.has_value() ? order.upper_bound(*done) : order.begin();
    for (int visited = 0; visited < most && next != order.end(); ++visited) {
      done = *next++;
      visit(pages_.at(done->key));
    }
    return next != order.end();
  }

 private:
  struct Tenant {
    std::map<int32_t, int64_t> bytes;  // by rank
    std::set<Order> order;             // beside all ranks
  };
  static Order OrderOf(const Page& page);
  // The pages that MakeRoom gives up.
  std::optional<std::vector<PageKey>> Choose(const Wanted& wanted) const;

  std::unordered_map<PageKey, Page, PageKeyHash> pages_;
  std::map<uint64_t, Tenant> tenants_;  // every tenant that ever had a page
  int64_t bytes_ = 0;
  std::map<int32_t, int64_t> bytes_beside_;  // of these, by rank
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TIERS_KNOWN_PAGES_H_
