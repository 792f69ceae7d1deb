#ifndef ANNULUS_ENGINE_PAGES_PAGE_WRITES_H_
#define ANNULUS_ENGINE_PAGES_PAGE_WRITES_H_

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>

#include "engine/base/tenant_id.h"
#include "engine/memory/page_book.h"
#include "engine/pages/lingering_pages.h"
#include "engine/pages/page_levels.h"
#include "engine/runner/rank_port.h"
#include "engine/scheduler/placement.h"
#include "engine/tiers/document_set.h"

namespace annulus {

// Writes cached pages to the levels, whose threads do it in the background: first to level 0, then
// from each level to the next. A level holds a page until the next one has it, so the ranks' memory
// is needed only until level 0 has the page. A page for which a level has no room is written to the
// next level from where it was. While a page is copied from the ranks' memory, an owner of its own
// holds it in the book. Used by the coordinator's thread alone.
class PageWrites {
 public:
  using Counts = PageLevels::Counts;

  // A page that waits to be written to a level.
  struct Page {
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
  struct Offers {
    DocumentSet documents;  // of all offers
    int64_t count = 0;
    PageId page;  // of the latest offer
    uint32_t generation = 0;
  };

  // The references must outlive the object.
  PageWrites(const PlanLimits& limits, const RankPort& ranks, PageLevels& levels, PageBook& book,
             LingeringPages& lingering);

  // Queues the page for level 0. Throws, and changes nothing, if memory runs out.
  void Offer(Page page);
  // Whether as many pages wait as the ranks have. Offer no more then.
  bool full() const { return std::ssize(waiting_[0]) >= most_waiting_; }
  // How many pages wait for level 0.
  int64_t waiting() const { return std::ssize(waiting_[0]); }
  // The offers of the page that are not done; null: none.
  const Offers* Find(const PageKey& key) const;
  // Whether the page waits to be written, or is being written.
  bool Waits(const PageKey& key) const { return offers_.contains(key); }

  // Starts writes of pages that wait, as many as the levels should have at a time.
  void Start();
  // Handles a finished write.
  void TakeDone(const PageMover::Done& done);
  // Stops holding pages in memory that wait to be written. They are written later if they are still
  // cached then. Returns false if it held none.
  bool LetGo();
  // The same for the writes to one level.
  bool LetGoOf(int level);
  // The contents of the pages on these ranks are lost: what is being copied from them is dropped
  // from the levels, and hidden until its write has ended. Throws if memory runs out. Pages that
  // wait are not there any more once their prefixes are forgotten.
  void ForgetRanks(std::span<const int32_t> ranks);
  // Writes to the metrics how many pages wait for each level.
  void Show() const;

  // Releases the pages that writes hold. No copy must be under way, and no other call may follow.
  void ReleaseAll();

  // Heap bytes of bookkeeping.
  int64_t bytes() const;
  // Heap bytes of a mark with its tokens, and what is kept beside it.
  static int64_t BytesOfMark(int32_t page_tokens) {
    return static_cast<int64_t>(sizeof(Page)) + 200 + int64_t{page_tokens} * 4;
  }

 private:
  // A write that the level's mover has.
  struct Writing {
    Page page;
    int level = 0;
    bool held = false;  // its owner holds the page in the book
    bool lost = false;  // what is written may not be what the page held
  };

  // One offer of the page is done.
  void EndOffer(const PageMark& mark);
  int64_t WritesTo(int level) const;
  bool IsThere(const Page& page) const;
  // Whether a write of the page is lost and has not ended.
  bool IsLost(const PageKey& key) const;
  // Whether to ask the level to write the page; otherwise it goes on to the next level.
  bool Takes(int level, const Page& page) const;
  void StartWrite(int level);
  // Call when the level is done with the page, written or not: queues it for the next level, if
  // there is one.
  void PassOn(Page page, int level);

  const PlanLimits& limits_;
  const RankPort& ranks_;
  PageLevels& levels_;
  PageBook& book_;
  LingeringPages& lingering_;
  const int64_t most_writes_;                                      // to each level at a time
  const int64_t most_waiting_;                                     // for level 0
  std::array<std::deque<Page>, PageLevels::kMostLevels> waiting_;  // [level]
  std::unordered_map<PageKey, Offers, PageKeyHash> offers_;
  std::map<PageOwner, Writing> writes_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_PAGES_PAGE_WRITES_H_
