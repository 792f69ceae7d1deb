#ifndef ANNULUS_ENGINE_PAGES_PAGE_MARKS_H_
#define ANNULUS_ENGINE_PAGES_PAGE_MARKS_H_

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/tenant_id.h"
#include "engine/scheduler/placement.h"
#include "engine/sparse/assignment.h"
#include "engine/tiers/page_entry.h"

namespace annulus {

// Makes the marks by which tiers know the pages of prompts, and tells which pages of a prompt a row
// sees. Positions are those of a page's first token. Immutable.
class PageMarks {
 public:
  // `identity`: the hash of CoordinatorOptions::identity.
  PageMarks(const ContentHash& identity, const PlanLimits& limits)
      : identity_(identity),
        page_tokens_(limits.page_tokens),
        windows_(limits.group_windows),
        has_windows_(std::any_of(windows_.begin(), windows_.end(),
                                 [](int32_t window) { return window > 0; })) {}

  // Returns the mark of what stands before a prompt's first page: Advance makes the first page's
  // mark of it. `policy`: null: dense. `rope`: PrefixReuse::RopeLengthOf.
  PageMark Root(const TenantId& tenant, const AttentionAssignment* policy, int64_t rope) const {
    return RootUnder(identity_, tenant, policy, rope);
  }
  // The same under another identity.
  PageMark RootUnder(const ContentHash& identity, const TenantId& tenant,
                     const AttentionAssignment* policy, int64_t rope) const;
  // Turns the mark of a page into that of the next page, which has these tokens.
  static void Advance(std::span<const int32_t> tokens, PageMark& mark);

  int32_t page_tokens() const { return page_tokens_; }
  int groups() const { return static_cast<int>(windows_.size()); }
  // Whether a cache group has a window. Beginnings then end only where window pages were kept.
  bool has_windows() const { return has_windows_; }
  bool is_window(int group) const { return windows_[group] > 0; }
  // The position of the oldest of the group's pages that the row at `length` sees.
  int32_t OldestSeen(int group, int32_t length) const {
    if (windows_[group] == 0) return 0;
    return std::max(0, length - windows_[group] + 1) / page_tokens_ * page_tokens_;
  }

  // Calls each(group, position) for every page that a restore of [from, to) reads: all pages of
  // full groups, and the window pages that the row at `to` sees.
  template <typename Each>
  void ForEachRead(int32_t from, int32_t to, const Each& each) const {
    for (int group = 0; group < groups(); ++group) {
      int32_t first = is_window(group) ? OldestSeen(group, to) : from;
      for (; first < to; first += page_tokens_) each(group, first);
    }
  }
  // Calls each(group, position) for every window page that the row at `length` sees.
  template <typename Each>
  void ForEachWindowPage(int32_t length, const Each& each) const {
    for (int group = 0; group < groups(); ++group) {
      if (!is_window(group)) continue;
      int32_t first = OldestSeen(group, length);
      for (; first < length; first += page_tokens_) each(group, first);
    }
  }

 private:
  const ContentHash identity_;
  const int32_t page_tokens_;
  const std::vector<int32_t> windows_;  // [group] 0: full
  const bool has_windows_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_PAGES_PAGE_MARKS_H_
