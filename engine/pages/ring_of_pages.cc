#include "engine/pages/ring_of_pages.h"

#include <algorithm>
#include <iterator>

namespace annulus {
namespace {

// [ring index][rank] The first page of that index which the rank has not got; `pages.size()` if it
// has all; 0 if it is not `usable`.
std::vector<std::vector<size_t>> ReachOf(std::span<const uint64_t> pages, uint64_t usable,
                                         int page_tokens, int degree, const PlanLimits& limits) {
  const auto ranks = static_cast<size_t>(limits.ranks);
  std::vector<size_t> most(ranks, pages.size());
  for (size_t rank = 0; rank < ranks; ++rank) {
    if ((usable >> rank & 1) == 0) most[rank] = 0;
  }
  std::vector<std::vector<size_t>> reach(static_cast<size_t>(degree), most);
  for (size_t page = 0; page < pages.size(); ++page) {
    const auto first = static_cast<int32_t>(page) * page_tokens;
    const int index = PlaceOnRing(first, page_tokens, degree, limits.shards);
    for (size_t rank = 0; rank < ranks; ++rank) {
      size_t& own = reach[static_cast<size_t>(index)][rank];
      if ((pages[page] >> rank & 1) == 0) own = std::min(own, page);
    }
  }
  return reach;
}

// A ring of ascending ranks each of which reaches as far; empty: there is none.
std::vector<int32_t> RingThatReaches(const std::vector<std::vector<size_t>>& reach, size_t pages) {
  std::vector<int32_t> ring;
  for (const std::vector<size_t>& of_index : reach) {
    size_t rank = ring.empty() ? 0 : static_cast<size_t>(ring.back()) + 1;
    while (rank < of_index.size() && of_index[rank] < pages) ++rank;
    if (rank >= of_index.size()) return {};
    ring.push_back(static_cast<int32_t>(rank));
  }
  return ring;
}

}  // namespace

RingPages LongestOnOneRing(std::span<const uint64_t> pages, uint64_t usable, int page_tokens,
                           const PlanLimits& limits) {
  RingPages longest;
  for (int degree = 1; degree <= limits.ranks; ++degree) {
    if (!IsUsefulDegree(degree, limits.ranks, limits.shards)) continue;
    const std::vector<std::vector<size_t>> reach =
        ReachOf(pages, usable, page_tokens, degree, limits);
    // A ring ends where one of its ranks does.
    std::vector<size_t> ends;
    for (const std::vector<size_t>& of_index : reach) {
      ends.insert(ends.end(), of_index.begin(), of_index.end());
    }
    std::sort(ends.begin(), ends.end());
    const auto beyond = std::partition_point(
        ends.begin(), ends.end(), [&](size_t end) { return !RingThatReaches(reach, end).empty(); });
    const size_t most = beyond == ends.begin() ? 0 : *std::prev(beyond);
    if (most > longest.pages) longest = {most, RingThatReaches(reach, most)};
  }
  return longest;
}

}  // namespace annulus
