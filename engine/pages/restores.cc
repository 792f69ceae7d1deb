#include "engine/pages/restores.h"

#include <algorithm>

#include "kernels/base/check.h"

namespace annulus {
namespace {

constexpr int64_t kMostRestores = 2;
// A restore with fewer than half the pages of any running one may run concurrently, up to this
// number.
constexpr int64_t kMostWithShort = 6;

}  // namespace

PageId Restore::PageAt(int group, int32_t first) const {
  const std::vector<PrefixPage>& of_group = pages[group];
  const auto page =
      std::lower_bound(of_group.begin(), of_group.end(), first,
                       [](const PrefixPage& each, int32_t at) { return each.first_position < at; });
  ANNULUS_CHECK(page != of_group.end() && page->first_position == first) << "no page at " << first;
  return page->id;
}

PageLevels::Counts Restore::CameBack(int32_t to, int32_t page_tokens) const {
  PageLevels::Counts came{};
  for (int32_t page = 0; page < (to - from) / page_tokens; ++page) {
    came[came_from[page]] += page_tokens;
  }
  return came;
}

bool Restores::MayBegin(int64_t pages) const {
  if (size() < kMostRestores) return true;
  if (size() >= kMostWithShort) return false;
  return std::all_of(restores_.begin(), restores_.end(),
                     [&](const auto& entry) { return 2 * pages < entry.second.all; });
}

PageLevels::Counts Restores::PagesAhead(int64_t pages) const {
  PageLevels::Counts ahead{};
  for (const auto& [owner, restore] : restores_) {
    if (restore.all > pages) continue;
    for (size_t level = 0; level < ahead.size(); ++level) ahead[level] += restore.left_on[level];
  }
  return ahead;
}

std::optional<PageOwner> Restores::Like(const TenantId& tenant, const SavedBeginning& beginning,
                                        int32_t in_memory) const {
  const auto& marks = beginning.marks;
  for (const auto& [owner, restore] : restores_) {
    const auto& others = restore.beginning.marks;
    // Chains name the tenant, the policy and every token before.
    const auto common =
        std::mismatch(marks.begin(), marks.end(), others.begin(), others.end(),
                      [](const PageMark& a, const PageMark& b) { return a.chain == b.chain; });
    const auto tokens = static_cast<int32_t>(common.first - marks.begin()) * marks_.page_tokens();
    if (restore.tenant != tenant || tokens == 0) continue;
    if (marks_.has_windows() && tokens < restore.beginning.tokens) continue;  // it comes back whole
    if (2 * int64_t{tokens - in_memory} >= beginning.tokens - in_memory) return owner;
  }
  return std::nullopt;
}

}  // namespace annulus
