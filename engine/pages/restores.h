#ifndef ANNULUS_ENGINE_PAGES_RESTORES_H_
#define ANNULUS_ENGINE_PAGES_RESTORES_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "engine/api/result.h"
#include "engine/base/steady_time.h"
#include "engine/memory/page_book.h"
#include "engine/memory/prefix_index.h"
#include "engine/pages/page_levels.h"
#include "engine/pages/tier_lookup.h"

namespace annulus {

// A request may wait so many seconds for pages even if computing them would take less.
inline constexpr double kLeastWait = 1;

// The time so many seconds later.
inline SteadyTime After(SteadyTime time, double seconds) {
  return time + std::chrono::duration_cast<SteadyTime::duration>(
                    std::chrono::duration<double>(std::min(seconds, 1e6)));
}

// A prefix that is read back from the levels for a request.
struct Restore {
  enum class Phase : uint8_t {
    kReading,
    kUnchecked,  // reading has ended; waits for PageRestorer::NextCheck
    kChecking,   // between BeginCheck and EndCheck
    kKnown,      // its pages may be used
  };
  Phase phase = Phase::kReading;
  RequestId request = 0;
  uint64_t seed = 0;  // the request's
  TenantId tenant;
  SavedBeginning beginning;
  std::vector<int32_t> tokens;
  TaggedDocuments documents;
  SteadyTime asked;  // Request::documents_found
  std::vector<int32_t> ring;
  PrefixPages pages;                                        // [group], ascending
  int32_t from = 0;                                         // tokens left to memory
  int32_t good_to = 0;                                      // no page below is missing
  bool whole = true;                                        // no page is missing
  CacheMiss::Reason missing = CacheMiss::Reason::kEvicted;  // why a page is missing
  int64_t use = 0;                                          // PageStore::NextUse
  int64_t all = 0;                                          // pages to read
  int64_t left = 0;                                         // pages that have not come yet
  PageLevels::Counts left_on{};  // [level] of `left`: pages that this level is asked for
  // [page after `from`] the slowest level that gave one of the groups' pages.
  std::vector<uint8_t> came_from;
  int32_t sampled = 0;               // first position of the page to be computed again
  std::optional<int32_t> checked{};  // first position of the page that was compared
  std::optional<double> coverage;    // lowest of the pages that came; absent: all are exact
  SteadyTime begun;
  SteadyTime arrived;  // when reading ended

  // The page of the group at that position; it must be there.
  PageId PageAt(int group, int32_t first) const;
  // [level] Tokens of [from, to) that the level gave.
  PageLevels::Counts CameBack(int32_t to, int32_t page_tokens) const;
};

// The restores under way, by the owners that hold their pages in the book. An owner's id is the
// batch of its reads.
class Restores {
 public:
  using Map = std::map<PageOwner, Restore>;

  // `marks` must outlive the object.
  explicit Restores(const PageMarks& marks) : marks_(marks) {}

  Map& all() { return restores_; }
  const Map& all() const { return restores_; }
  int64_t size() const { return std::ssize(restores_); }
  Restore& at(PageOwner owner) { return restores_.at(owner); }
  const Restore& at(PageOwner owner) const { return restores_.at(owner); }

  // Whether one more restore, of so many pages, may begin.
  bool MayBegin(int64_t pages) const;
  // [level] Pages that are read before those of a restore of so many pages: movers read short
  // batches first.
  PageLevels::Counts PagesAhead(int64_t pages) const;
  // A restore for the tenant that brings at least half of what the beginning has beyond memory.
  std::optional<PageOwner> Like(const TenantId& tenant, const SavedBeginning& beginning,
                                int32_t in_memory) const;

 private:
  const PageMarks& marks_;
  Map restores_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_PAGES_RESTORES_H_
