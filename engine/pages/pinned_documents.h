#ifndef ANNULUS_ENGINE_PAGES_PINNED_DOCUMENTS_H_
#define ANNULUS_ENGINE_PAGES_PINNED_DOCUMENTS_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/steady_time.h"
#include "engine/base/tenant_id.h"
#include "engine/memory/page_book.h"
#include "engine/memory/prefix_index.h"

namespace annulus {

// The documents whose pages stay whatever room others need, and those with a time to live. A pin
// holds its pages in the book, as a request does. Used by the coordinator's thread alone, except
// for Look.
class PinnedDocuments {
 public:
  struct Options {
    // The most that all pins, and those of one tenant, may hold, as shares of all pages of all
    // ranks. A page that several pins hold counts for each.
    double share = 0;
    double tenant_share = 0;
    int32_t page_tokens = 0;
    std::vector<int32_t> group_windows;
  };
  // `book` and `index` must outlive the object.
  PinnedDocuments(Options options, PageBook& book, PrefixIndex& index);
  ~PinnedDocuments() { Clear(); }
  PinnedDocuments(const PinnedDocuments&) = delete;
  PinnedDocuments& operator=(const PinnedDocuments&) = delete;

  // Whether the tenant may pin a prompt of `tokens` tokens, which are whole pages.
  // RESOURCE_EXHAUSTED with the numbers and kLimitPayload "pinned".
  absl::Status CheckRoom(const TenantId& tenant, int64_t tokens) const;

  // Pins a known prefix for the last of its documents. `owner`, which is new, holds its pages.
  // No-op if the prefix is pinned for that document already. Errors as CheckRoom.
  absl::Status Pin(const TenantId& tenant, const TaggedDocuments& documents,
                   const PrefixIndex::Hit& hit, PageOwner owner);
  // Unpins all prefixes of the document. No-op if none is pinned.
  void Unpin(DocumentTag document);

  // Sets when the document's time to live ends, in place of any earlier time.
  void SetExpiry(DocumentTag document, SteadyTime at);
  // Documents whose time to live is over at `now` and for which Forget has not been called.
  std::vector<DocumentTag> Due(SteadyTime now) const;
  // SteadyTime::max(): nothing expires.
  SteadyTime NextExpiry() const;

  // Unpins every prefix that contains the document, and ends its time to live.
  void Forget(DocumentTag document);
  // Ends every pin; times to live go on.
  void Clear();

  bool any() const { return !pins_.empty(); }
  // Whether a pin holds the page, and how many pages of a rank pins hold, each counted once.
  bool Holds(PageId id) const { return pins_of_[id.rank][id.page] > 0; }
  int32_t pages_on(int32_t rank) const { return pages_on_[rank]; }

  struct State {
    bool pinned = false;
    std::optional<SteadyTime> expires;
  };
  // Thread-safe.
  State Look(DocumentTag document) const;

 private:
  struct Pinned {
    TenantId tenant;
    TaggedDocuments documents;
    ContentHash end{};
    PageOwner owner = 0;
    int64_t pages = 0;
    std::vector<PageId> held;
  };

  int64_t PagesOf(int64_t tokens) const;
  int64_t AllPages() const;
  absl::Status CheckPages(const TenantId& tenant, int64_t pages) const;
  void EndPin(const Pinned& pin);
  void Count(const Pinned& pin, int change);

  const Options options_;
  PageBook& book_;
  PrefixIndex& index_;
  mutable std::mutex mutex_;  // for changes, and for Look
  std::multimap<DocumentTag, Pinned> pins_;
  std::map<DocumentTag, SteadyTime> expiries_;
  std::vector<std::vector<int32_t>> pins_of_;  // [rank][page] how many pins hold it
  std::vector<int32_t> pages_on_;              // [rank] that any pin holds
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_PAGES_PINNED_DOCUMENTS_H_
