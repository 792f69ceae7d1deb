// The tier's part in what the levels have of a prompt.

#include <algorithm>

#include "engine/pages/page_tier.h"
#include "engine/scheduler/step_cost.h"

namespace annulus {
namespace {

// The most pages that are hashed to find a prompt under other identities: some milliseconds of the
// engine's thread.
constexpr int64_t kMostPagesHashed = 16'384;

}  // namespace

bool PageTier::HasPage(const ContentHash& chain, bool windows) const {
  for (size_t g = 0; g < limits_.group_windows.size(); ++g) {
    if ((limits_.group_windows[g] > 0) != windows) continue;
    if (!levels_.Find({chain, static_cast<int>(g)}).has_value()) return false;
  }
  return true;
}

// The longest of the beginnings for whose end all windows' pages are there.
int32_t PageTier::LengthWithWindows(const std::vector<PageMark>& marks) const {
  const int32_t page = limits_.page_tokens;
  const auto has_all = [&](int32_t length) {
    for (size_t g = 0; g < limits_.group_windows.size(); ++g) {
      if (limits_.group_windows[g] == 0) continue;
      const int32_t oldest = std::max(0, length - limits_.group_windows[g] + 1) / page;
      for (int32_t index = length / page - 1; index >= oldest; --index) {
        if (!levels_.Find({marks[index].chain, static_cast<int>(g)}).has_value()) return false;
      }
    }
    return true;
  };
  for (auto pages = static_cast<int32_t>(marks.size()); pages > 0; --pages) {
    if (HasPage(marks[pages - 1].chain, true) && has_all(pages * page)) return pages * page;
  }
  return 0;
}

PageTier::Beginning PageTier::Find(const RequestSpec& spec, const AttentionAssignment* policy,
                                   int64_t rope) const {
  // A request that reads ahead computes no token: the last page counts for it too.
  const std::span<const int32_t> known =
      std::span(spec.prompt).first(spec.prompt.size() - (spec.prefill_only ? 0 : 1));
  const auto page = static_cast<size_t>(limits_.page_tokens);
  const auto find = [&](const AttentionAssignment* under) {
    Beginning beginning;
    if (under != nullptr) beginning.policy = *under;
    beginning.rope_length = rope;
    PageMark mark = MarkFor(spec.tenant, under, rope);
    for (size_t first = 0; first + page <= known.size(); first += page) {
      Advance(known.subspan(first, page), mark);
      if (!HasPage(mark.chain, false)) break;
      beginning.marks.push_back(mark);
    }
    beginning.tokens = has_windows() ? LengthWithWindows(beginning.marks)
                                     : static_cast<int32_t>(beginning.marks.size() * page);
    beginning.marks.resize(beginning.tokens / page);
    return beginning;
  };
  if (!levels_.on()) return {};
  Beginning dense = find(nullptr);
  if (policy == nullptr || ClassOf(policy) == AttentionClass::kContent) return dense;
  Beginning own = find(policy);
  return own.tokens > dense.tokens ? own : dense;
}

bool PageTier::HasUnderAnotherIdentity(const RequestSpec& spec, const AttentionAssignment* policy,
                                       int64_t rope, int32_t known) const {
  const std::span<const int32_t> prompt = std::span(spec.prompt).first(spec.prompt.size() - 1);
  const auto page = static_cast<size_t>(limits_.page_tokens);
  const size_t end = static_cast<size_t>(known) + page;
  if (verify_ == KvVerify::kAll || end > prompt.size()) return false;
  // One group's page is enough: those of windows are kept only where prompts end.
  const auto has_page = [&](const ContentHash& chain) {
    for (size_t g = 0; g < limits_.group_windows.size(); ++g) {
      if (levels_.Find({chain, static_cast<int>(g)}).has_value()) return true;
    }
    return false;
  };
  int64_t left = kMostPagesHashed;
  const auto has = [&](const ContentHash& identity, const AttentionAssignment* under) {
    PageMark mark = MarkFor(spec.tenant, under, rope);
    mark.identity = identity;
    mark.chain = RootOf(mark);
    for (size_t first = 0; first < end; first += page) {
      if (--left < 0) return false;
      Advance(prompt.subspan(first, page), mark);
      if (!has_page(mark.chain)) return false;
    }
    return true;
  };
  const bool own = policy != nullptr && ClassOf(policy) != AttentionClass::kContent;
  return std::any_of(other_identities_.begin(), other_identities_.end(),
                     [&](const ContentHash& identity) {
                       return has(identity, nullptr) || (own && has(identity, policy));
                     });
}

PageTier::ByTier PageTier::TierTokens(const Counts& tokens) const {
  ByTier by_tier;
  for (int level = 0; level < levels_.size(); ++level) {
    const bool host = levels_[level].kind == TierKind::kHost;
    (host ? by_tier.host : by_tier.disk) += tokens[level];
  }
  return by_tier;
}

PageTier::ByTier PageTier::Where(const Beginning& beginning) const {
  Counts tokens{};
  for (int32_t first = 0; first < beginning.tokens; first += limits_.page_tokens) {
    const ContentHash& chain = beginning.marks[first / limits_.page_tokens].chain;
    int slowest = 0;
    for (size_t g = 0; g < limits_.group_windows.size(); ++g) {
      slowest = std::max(slowest, levels_.Find({chain, static_cast<int>(g)}).value_or(0));
    }
    tokens[slowest] += limits_.page_tokens;
  }
  return TierTokens(tokens);
}

int32_t PageTier::MostBefore(const Beginning& beginning) const {
  const int32_t page = limits_.page_tokens;
  int32_t most = beginning.tokens - page;
  for (const int32_t window : limits_.group_windows) {
    if (window > 0) most = std::min(most, (beginning.tokens - window + 1) / page * page);
  }
  return std::max(0, most);
}

PageTier::Counts PageTier::CountPages(const Beginning& beginning, int32_t from) const {
  Counts pages{};
  ForEachPage(from, beginning.tokens, [&](int group, int32_t first) {
    const std::optional<int> level =
        levels_.Find({beginning.marks[first / limits_.page_tokens].chain, group});
    if (level.has_value()) ++pages[*level];
  });
  return pages;
}

}  // namespace annulus
