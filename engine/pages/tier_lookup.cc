#include "engine/pages/tier_lookup.h"

#include <algorithm>
#include <span>

#include "engine/pages/ring_of_pages.h"
#include "engine/scheduler/step_cost.h"

namespace annulus {
namespace {

// The most pages that are hashed to find a prompt under other identities: some milliseconds of the
// engine's thread.
constexpr int64_t kMostPagesHashed = 16'384;

}  // namespace

bool TierLookup::HasPage(const ContentHash& chain, bool windows) const {
  for (int group = 0; group < marks_.groups(); ++group) {
    if (marks_.is_window(group) != windows) continue;
    if (!levels_.Find({chain, group}).has_value()) return false;
  }
  return true;
}

// The longest of the beginnings for whose end all windows' pages are there.
int32_t TierLookup::LengthWithWindows(const std::vector<PageMark>& marks) const {
  const int32_t page = marks_.page_tokens();
  const auto has_all = [&](int32_t length) {
    for (int group = 0; group < marks_.groups(); ++group) {
      if (!marks_.is_window(group)) continue;
      const int32_t oldest = marks_.OldestSeen(group, length);
      for (int32_t first = length - page; first >= oldest; first -= page) {
        if (!levels_.Find({marks[first / page].chain, group}).has_value()) return false;
      }
    }
    return true;
  };
  for (auto pages = static_cast<int32_t>(marks.size()); pages > 0; --pages) {
    if (HasPage(marks[pages - 1].chain, true) && has_all(pages * page)) return pages * page;
  }
  return 0;
}

uint64_t TierLookup::RanksWith(const ContentHash& chain) const {
  bool all_windows = true;
  for (int group = 0; group < marks_.groups(); ++group) {
    all_windows = all_windows && marks_.is_window(group);
  }
  uint64_t ranks = ~uint64_t{0};
  for (int group = 0; group < marks_.groups(); ++group) {
    if (marks_.is_window(group) && !all_windows) continue;
    const uint64_t own = levels_.RanksWith({chain, group});
    if (own != 0 || !all_windows) ranks &= own;  // windows' pages are only kept where prompts end
  }
  return ranks;
}

uint64_t TierLookup::UsableRanks() const {
  uint64_t usable = 0;
  for (int32_t rank = 0; rank < book_.ranks(); ++rank) {
    if (book_.is_usable(rank)) usable |= uint64_t{1} << rank;
  }
  return usable;
}

void TierLookup::CutToRing(SavedBeginning& beginning) const {
  if (!levels_.beside_ranks()) return;
  std::vector<uint64_t> pages;
  for (const PageMark& mark : beginning.marks) pages.push_back(RanksWith(mark.chain));
  const RingPages found = LongestOnOneRing(pages, UsableRanks(), marks_.page_tokens(), limits_);
  beginning.marks.resize(found.pages);
  beginning.ring = found.ring;
}

SavedBeginning TierLookup::Find(const RequestSpec& spec, const AttentionAssignment* policy,
                                int64_t rope) const {
  // A request that reads ahead computes no token: the last page counts for it too.
  const std::span<const int32_t> known =
      std::span(spec.prompt).first(spec.prompt.size() - (spec.prefill_only ? 0 : 1));
  const auto page = static_cast<size_t>(marks_.page_tokens());
  const auto find = [&](const AttentionAssignment* under) {
    SavedBeginning beginning;
    if (under != nullptr) beginning.policy = *under;
    beginning.rope_length = rope;
    PageMark mark = marks_.Root(spec.tenant, under, rope);
    for (size_t first = 0; first + page <= known.size(); first += page) {
      PageMarks::Advance(known.subspan(first, page), mark);
      if (!HasPage(mark.chain, false)) break;
      beginning.marks.push_back(mark);
    }
    CutToRing(beginning);
    beginning.tokens = marks_.has_windows() ? LengthWithWindows(beginning.marks)
                                            : static_cast<int32_t>(beginning.marks.size() * page);
    beginning.marks.resize(beginning.tokens / page);
    return beginning;
  };
  if (!levels_.on()) return {};
  SavedBeginning dense = find(nullptr);
  if (policy == nullptr || ClassOf(policy) == AttentionClass::kContent) return dense;
  SavedBeginning own = find(policy);
  return own.tokens > dense.tokens ? own : dense;
}

bool TierLookup::HasUnderAnotherIdentity(const RequestSpec& spec, const AttentionAssignment* policy,
                                         int64_t rope, int32_t known) const {
  const std::span<const int32_t> prompt = std::span(spec.prompt).first(spec.prompt.size() - 1);
  const auto page = static_cast<size_t>(marks_.page_tokens());
  const size_t end = static_cast<size_t>(known) + page;
  if (!options_.others_are_used || end > prompt.size()) return false;
  // One group's page is enough: those of windows are kept only where prompts end.
  const auto has_page = [&](const ContentHash& chain) {
    for (int group = 0; group < marks_.groups(); ++group) {
      if (levels_.Find({chain, group}).has_value()) return true;
    }
    return false;
  };
  int64_t left = kMostPagesHashed;
  const auto has = [&](const ContentHash& identity, const AttentionAssignment* under) {
    PageMark mark = marks_.RootUnder(identity, spec.tenant, under, rope);
    for (size_t first = 0; first < end; first += page) {
      if (--left < 0) return false;
      PageMarks::Advance(prompt.subspan(first, page), mark);
      if (!has_page(mark.chain)) return false;
    }
    return true;
  };
  const bool own = policy != nullptr && ClassOf(policy) != AttentionClass::kContent;
  return std::any_of(options_.other_identities.begin(), options_.other_identities.end(),
                     [&](const ContentHash& identity) {
                       return has(identity, nullptr) || (own && has(identity, policy));
                     });
}

TokensByTier TierLookup::ByTier(const PageLevels::Counts& tokens) const {
  TokensByTier by_tier;
  for (int level = 0; level < levels_.size(); ++level) {
    const bool host = levels_[level].kind == TierKind::kHost;
    (host ? by_tier.host : by_tier.disk) += tokens[level];
  }
  return by_tier;
}

TokensByTier TierLookup::Where(const SavedBeginning& beginning) const {
  PageLevels::Counts tokens{};
  const int32_t page = marks_.page_tokens();
  for (int32_t first = 0; first < beginning.tokens; first += page) {
    const ContentHash& chain = beginning.marks[first / page].chain;
    int slowest = 0;
    for (int group = 0; group < marks_.groups(); ++group) {
      slowest = std::max(slowest, levels_.Find({chain, group}).value_or(0));
    }
    tokens[slowest] += page;
  }
  return ByTier(tokens);
}

int32_t TierLookup::MostBefore(const SavedBeginning& beginning) const {
  int32_t most = beginning.tokens - marks_.page_tokens();
  for (int group = 0; group < marks_.groups(); ++group) {
    if (marks_.is_window(group)) most = std::min(most, marks_.OldestSeen(group, beginning.tokens));
  }
  return std::max(0, most);
}

PageLevels::Counts TierLookup::CountPages(const SavedBeginning& beginning, int32_t from) const {
  PageLevels::Counts pages{};
  marks_.ForEachRead(from, beginning.tokens, [&](int group, int32_t first) {
    const std::optional<int> level =
        levels_.Find({beginning.marks[first / marks_.page_tokens()].chain, group});
    if (level.has_value()) ++pages[*level];
  });
  return pages;
}

}  // namespace annulus
