#ifndef ANNULUS_ENGINE_PAGES_PINNED_DOCUMENTS_H_
#define ANNULUS_ENGINE_PAGES_PINNED_DOCUMENTS_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/steady_time.h"
#include "engine/base/tenant_id.h"
#include "engine/memory/page_book.h"
#include "engine/memory/prefix_index.h"

namespace annulus {

// Keeps track of pinned documents, whose pages are never evicted, and of documents with a time to
// live. A pin holds the pages of one prefix that contains the document; it is a holder in the page
// book, as a request is. Used by the coordinator's thread alone, except for StateOf.
class PinnedDocuments {
 public:
  struct Options {
    // The largest shares of all ranks' pages that all pins, and the pins of one tenant, may hold, 0
    // to 1. A page that several pins hold counts for each of them.
    double share = 0;
    double tenant_share = 0;
    int32_t page_tokens = 0;
    std::vector<int32_t> group_windows;  // as PlanLimits::group_windows
  };
  // `book` and `index` must outlive the object.
  PinnedDocuments(Options options, PageBook& book, PrefixIndex& index);
  ~PinnedDocuments() { Clear(); }
  PinnedDocuments(const PinnedDocuments&) = delete;
  PinnedDocuments& operator=(const PinnedDocuments&) = delete;

  // Checks that the tenant may pin a prompt of `tokens` tokens, a multiple of page_tokens.
  // RESOURCE_EXHAUSTED with the numbers and kLimitPayload "pinned".
  absl::Status CheckRoom(const TenantId& tenant, int64_t tokens) const;

  // Pins a known prefix for the last of `documents`, the prompt's documents (at least one).
  // A new pin in the book holds its pages. No-op if the prefix is pinned for that document
  // already. Errors of CheckRoom. Throws, and changes nothing, if memory runs out.
  absl::Status Pin(const TenantId& tenant, const TaggedDocuments& documents,
                   const PrefixIndex::Hit& hit);
  // Unpins all prefixes of the document. No-op if none is pinned.
  void Unpin(DocumentTag document);

  // Sets when the document's time to live ends. Replaces any earlier setting.
  void SetExpiry(DocumentTag document, SteadyTime at);
  // Documents whose time to live is over at `now` and for which Forget has not been called.
  std::vector<DocumentTag> Due(SteadyTime now) const;
  // When the next document expires; SteadyTime::max() if none does.
  SteadyTime NextExpiry() const;

  // Unpins every prefix that contains the document, and ends its time to live.
  void Forget(DocumentTag document);
  // Ends the pins that hold pages of these ranks, whose contents are lost. Times to live stay.
  void ForgetRanks(std::span<const int32_t> ranks);
  // Ends every pin. Times to live stay.
  void Clear();

  struct State {
    bool pinned = false;
    std::optional<SteadyTime> expires;  // absent: no time to live
  };
  // Thread-safe.
  State StateOf(DocumentTag document) const;

 private:
  struct Pinned {
    TenantId tenant;
    TaggedDocuments documents;
    ContentHash end{};
    PageOwner owner;
    int64_t pages = 0;         // that count towards the limits: PagesOf
    std::vector<PageId> held;  // what `owner` holds
  };

  int64_t PagesOf(int64_t tokens) const;
  int64_t AllPages() const;
  absl::Status CheckPages(const TenantId& tenant, int64_t pages) const;
  void EndPin(const Pinned& pin);

  const Options options_;
  PageBook& book_;
  PrefixIndex& index_;
  mutable std::mutex mutex_;  // held for changes of pins_ and expiries_, and by StateOf
  std::multimap<DocumentTag, Pinned> pins_;  // by the document that each is for
  std::map<DocumentTag, SteadyTime> expiries_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_PAGES_PINNED_DOCUMENTS_H_
