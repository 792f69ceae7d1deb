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

// Which pages a store has, whose they are, when they were used last, and how many bytes that is;
// knows no file. Not thread-safe: the store's lock guards it.
class KnownPages {
 public:
  // What such a page counts for: whole blocks, as a file takes them of the disk.
  static int64_t FileBytes(uint64_t payload_bytes);

  struct Page {
    EntryName name;
    int64_t use = 0;
    int holds = 0;  // above 0: it makes no room for others
  };
  // Null: unknown. Valid until the page goes.
  const Page* Find(const PageKey& key) const;
  int64_t size() const { return static_cast<int64_t>(pages_.size()); }

  // The bytes of its file are counted already.
  void Add(const EntryName& name, int64_t use);
  void Touch(const PageKey& key, int64_t use);
  // False: it is not known.
  bool Hold(const PageKey& key);
  void Release(const PageKey& key);
  void SetDocuments(const PageKey& key, const DocumentSet& documents);
  // The page is not known any more, and its bytes do not count. Nothing: it was not known.
  std::optional<EntryName> Drop(const PageKey& key);
  // Adds bytes of files that belong to no known page: a file that is being written, or the
  // remaining file of a forgotten page. Negative: they do not count any more.
  void Count(uint64_t tenant, int64_t bytes);

  int64_t bytes() const { return bytes_; }
  int64_t bytes_of(uint64_t tenant) const;

  // Whose bytes are to be made room for, and how much there may be.
  struct Wanted {
    uint64_t tenant = 0;
    int64_t bytes = 0;
    int64_t use = 0;  // only pages that were used before make room
    int64_t most_of_tenant = 0;
    int64_t most = 0;  // of all tenants
  };
  // Gives up pages until so many bytes more fit, and returns their names: first the tenant's own,
  // as far as it may not have more, then whosever were used least recently; of one text, the later
  // pages before the earlier ones; none that is held. Nothing, and none is given up, if that is not
  // enough.
  std::optional<std::vector<EntryName>> MakeRoom(const Wanted& wanted);
  bool HasRoom(const Wanted& wanted) const { return Choose(wanted).has_value(); }

  // Pages to be given up first come first.
  struct Order {
    int64_t use = 0;
    int32_t first_position = 0;
    PageKey key;
    bool operator<(const Order& other) const;
  };
  // Looks at the tenant's pages behind `done` (absent: at all), at most `most` of them, and moves
  // `done` on. `look` may drop the page that it is shown. False: they were the last.
  template <typename Look>
  bool LookAtSome(uint64_t tenant, int most, std::optional<Order>& done, const Look& look) const {
    const auto own = tenants_.find(tenant);
    if (own == tenants_.end()) return false;
    const std::set<Order>& order = own->second.order;
    auto next = done.has_value() ? order.upper_bound(*done) : order.begin();
    for (int looked = 0; looked < most && next != order.end(); ++looked) {
      done = *next++;
      look(pages_.at(done->key));
    }
    return next != order.end();
  }

 private:
  struct Tenant {
    int64_t bytes = 0;
    std::set<Order> order;
  };
  static Order OrderOf(const Page& page);
  // The pages that MakeRoom gives up.
  std::optional<std::vector<PageKey>> Choose(const Wanted& wanted) const;

  std::unordered_map<PageKey, Page, PageKeyHash> pages_;
  std::map<uint64_t, Tenant> tenants_;  // all that ever had a page here
  int64_t bytes_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TIERS_KNOWN_PAGES_H_
