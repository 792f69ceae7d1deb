#include "engine/pages/prefix_reuse.h"

#include <algorithm>
#include <span>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/check.h"

namespace annulus {
namespace {

std::string TextOf(const AttentionAssignment* policy) {
  return policy == nullptr ? std::string() : AssignmentText(*policy);
}

// Of finds on several rings, or under a policy and dense: the longest.
void TakeFurther(const PrefixIndex::Nearest& other, PrefixIndex::Nearest& nearest) {
  if (other.whole < nearest.whole) return;
  const bool evicted = other.evicted || (other.whole == nearest.whole && nearest.evicted);
  if (other.whole > nearest.whole || other.common >= nearest.common) nearest = other;
  nearest.evicted = evicted;
}

}  // namespace

PrefixReuse::PrefixReuse(std::string identity, const PlanLimits& limits,
                         std::vector<RopeConfig> ropes, PageBook& book)
    : identity_(std::move(identity)),
      limits_(limits),
      ropes_(std::move(ropes)),
      book_(book),
      index_(limits.page_tokens, limits.group_windows, book) {}

// Keys and values depend on the attention of the layers below, so each policy has its own; and keys
// on the rotary frequencies. They do not depend on the ring, but only a sequence of the same ring
// may use the pages. The tenant comes first: pages are found by their own tenant alone, so nobody
// learns from a hit what another one sent.
std::string PrefixReuse::Identity(const TenantId& tenant, const std::string& policy,
                                  int64_t rope_length, const std::vector<int32_t>& ring) const {
  std::string identity = absl::StrCat(tenant.name(), "/", identity_);
  if (!policy.empty()) absl::StrAppend(&identity, "/", policy);
  if (rope_length != 0) absl::StrAppend(&identity, "/rope", rope_length);
  absl::StrAppend(&identity, "/ring", absl::StrJoin(ring, ","));
  return identity;
}

int64_t PrefixReuse::RopeLengthOf(const RequestSpec& spec) const {
  return RopeLength(ropes_, std::ssize(spec.prompt) - spec.answered);
}

std::vector<PrefixReuse::Found> PrefixReuse::Find(const RequestSpec& spec,
                                                  const AttentionAssignment* policy,
                                                  PrefixIndex::Nearest* nearest) {
  return FindIn(spec, std::span(spec.prompt).first(spec.prompt.size() - 1), policy, nearest);
}

std::vector<PrefixReuse::Found> PrefixReuse::FindKept(const RequestSpec& spec,
                                                      const AttentionAssignment* policy,
                                                      int32_t tokens) {
  const auto known =
      std::span(spec.prompt).first(std::min(static_cast<size_t>(tokens), spec.prompt.size() - 1));
  const std::string text = TextOf(policy);
  std::vector<Found> all;
  for (const std::vector<int32_t>& ring : rings_) {
    auto hit = index_.Find(Identity(spec.tenant, text, RopeLengthOf(spec), ring), known);
    if (hit.has_value()) all.push_back({ring, *std::move(hit)});
  }
  return all;
}

std::optional<PrefixIndex::Hit> PrefixReuse::FindAll(const RequestSpec& spec,
                                                     const AttentionAssignment* policy) {
  for (Found& each : FindIn(spec, spec.prompt, policy)) {
    if (each.hit.tokens == std::ssize(spec.prompt)) return std::move(each.hit);
  }
  return std::nullopt;
}

TaggedDocuments PrefixReuse::TagsOf(const RequestSpec& spec) {
  TaggedDocuments tags;
  for (const PromptDocument& document : spec.documents) {
    tags.push_back({TagOf(spec.tenant, document.content), document.begin});
  }
  return tags;
}

std::vector<PrefixReuse::Found> PrefixReuse::FindIn(const RequestSpec& spec,
                                                    std::span<const int32_t> known,
                                                    const AttentionAssignment* policy,
                                                    PrefixIndex::Nearest* nearest) {
  const int64_t rope = RopeLengthOf(spec);
  std::vector<Found> all;
  for (const std::vector<int32_t>& ring : rings_) {
    const auto find = [&](const AttentionAssignment* under) {
      PrefixIndex::Nearest here;
      auto hit = index_.Find(Identity(spec.tenant, TextOf(under), rope, ring), known,
                             nearest != nullptr ? &here : nullptr);
      if (nearest != nullptr) TakeFurther(here, *nearest);
      return hit;
    };
    std::optional<PrefixIndex::Hit> hit = find(nullptr);
    std::optional<PrefixIndex::Hit> own = policy == nullptr ? std::nullopt : find(policy);
    if (own.has_value() && (!hit.has_value() || own->tokens >= hit->tokens)) hit = std::move(own);
    if (hit.has_value()) all.push_back({ring, *std::move(hit)});
  }
  return all;
}

std::optional<CacheMiss> PrefixReuse::WhyNoMore(const RequestSpec& spec,
                                                const AttentionAssignment* policy,
                                                const PrefixIndex::Nearest& nearest,
                                                int32_t cached) const {
  const auto known = std::span(spec.prompt).first(spec.prompt.size() - 1);
  if (cached + limits_.page_tokens > std::ssize(known)) return std::nullopt;
  using Reason = CacheMiss::Reason;
  if (nearest.evicted) return CacheMiss{Reason::kEvicted, nearest.whole};
  const int64_t rope = RopeLengthOf(spec);
  const std::string own = TextOf(policy);
  for (const std::string& other : policies_) {
    if (other == own) continue;
    for (const std::vector<int32_t>& ring : rings_) {
      const auto there = index_.FindNearest(Identity(spec.tenant, other, rope, ring), known);
      if (there.whole > nearest.whole) return CacheMiss{Reason::kOtherAttention, nearest.whole};
    }
  }
  if (nearest.whole == 0) return WhyNoFirstPage(spec, policy, known);
  if (!nearest.differs) return std::nullopt;
  return CacheMiss{Reason::kOtherTokens, nearest.common};
}

std::optional<CacheMiss> PrefixReuse::WhyNoFirstPage(const RequestSpec& spec,
                                                     const AttentionAssignment* policy,
                                                     std::span<const int32_t> known) const {
  std::optional<int32_t> at;
  // A document of the prompt may be cached after another prefix, such as another system prompt.
  for (const TaggedDocument& document : TagsOf(spec)) {
    at = index_.FirstDifference(document.tag, known);
    if (at.has_value()) break;
  }
  if (!at.has_value()) {
    const int64_t rope = RopeLengthOf(spec);
    const auto compare = [&](const AttentionAssignment* under, const std::vector<int32_t>& ring) {
      const auto here =
          index_.FirstDifference(Identity(spec.tenant, TextOf(under), rope, ring), known);
      if (here.has_value()) at = std::max(at.value_or(0), *here);
    };
    for (const std::vector<int32_t>& ring : rings_) {
      compare(nullptr, ring);
      if (policy != nullptr) compare(policy, ring);
    }
  }
  // The same tokens, say under other rotary frequencies: no token stands in the way.
  if (!at.has_value() || *at >= limits_.page_tokens) return std::nullopt;
  return CacheMiss{CacheMiss::Reason::kOtherTokens, *at};
}

int64_t PrefixReuse::LongestFound(const RequestSpec& spec, const AttentionAssignment* policy) {
  int64_t longest = 0;
  for (const Found& found : Find(spec, policy)) {
    longest = std::max<int64_t>(longest, found.hit.tokens);
  }
  return longest;
}

std::optional<PrefixReuse::Found> PrefixReuse::FindFull(const RequestSpec& spec, int32_t tokens) {
  const int64_t rope = RopeLengthOf(spec);
  std::optional<Found> longest;
  for (const std::vector<int32_t>& ring : rings_) {
    auto hit = index_.FindFull(Identity(spec.tenant, "", rope, ring),
                               std::span(spec.prompt).first(static_cast<size_t>(tokens)));
    if (!hit.has_value() || (longest.has_value() && hit->tokens <= longest->hit.tokens)) continue;
    longest = Found{ring, *std::move(hit)};
  }
  return longest;
}

std::vector<int32_t> PrefixReuse::Keep(const Sequence& sequence, Request& request) {
  std::vector<int32_t> lengths;
  while (const auto length = request.TakeCheckpoint(limits_.page_tokens)) {
    KeepUpTo(*length, sequence, request);
    lengths.push_back(*length);
  }
  return lengths;
}

std::string PrefixReuse::NotePlace(const AttentionAssignment* policy,
                                   const std::vector<int32_t>& ring) {
  rings_.insert(ring);
  std::string text = TextOf(policy);
  if (text.empty() || (!policies_.empty() && policies_.back() == text)) return text;
  std::erase(policies_, text);
  policies_.push_back(text);
  if (policies_.size() > kMostPolicies) policies_.erase(policies_.begin());
  return text;
}

void PrefixReuse::KeepLoaded(const Origin& origin, std::span<const int32_t> tokens,
                             std::optional<double> coverage,
                             const std::function<PageId(int group, int32_t first)>& page_at) {
  if (index_.documents().WasForgotten(origin.documents, origin.asked)) return;
  const std::string policy = NotePlace(origin.policy, origin.ring);
  index_.Insert(Identity(origin.tenant, policy, origin.rope_length, origin.ring), tokens, coverage,
                page_at, nullptr, origin.documents);
}

void PrefixReuse::KeepUpTo(int32_t length, const Sequence& sequence, Request& request,
                           PrefixIndex::Mark* mark) {
  const TaggedDocuments documents = TagsOf(request.spec());
  if (index_.documents().WasForgotten(documents, request.documents_found())) return;
  const auto page_at = [&](int group, int32_t first) -> PageId {
    const std::vector<PageEntry>& entries = sequence.groups[group].entries;
    const auto entry = std::lower_bound(
        entries.begin(), entries.end(), first,
        [](const PageEntry& page, int32_t position) { return page.first_position < position; });
    ANNULUS_CHECK(entry != entries.end() && entry->first_position == first)
        << "no page at " << first;
    return {entry->rank, entry->page};
  };
  const std::string policy = NotePlace(sequence.attention.get(), sequence.ring);
  index_.Insert(Identity(request.spec().tenant, policy, sequence.rope_length, sequence.ring),
                std::span(request.spec().prompt).first(length),
                request.attention_account().lowest(), page_at, mark, documents);
}

// With windows it is a checkpoint, which Keep has made known.
void PrefixReuse::KeepCommon(int32_t length, const Sequence& sequence, Request& request) {
  if (!limits_.has_windows() && length > request.known()) KeepUpTo(length, sequence, request);
}

bool PrefixReuse::HasWindowsAt(int32_t length, const Sequence& sequence) const {
  const int32_t page = limits_.page_tokens;
  for (size_t g = 0; g < limits_.group_windows.size(); ++g) {
    const int32_t window = limits_.group_windows[g];
    if (window == 0) continue;
    const std::vector<PageEntry>& entries = sequence.groups[g].entries;
    const int32_t oldest = std::max(0, length - window + 1) / page * page;
    if (entries.empty() || entries.front().first_position > oldest) return false;
  }
  return true;
}

void PrefixReuse::KeepUnfinished(const Sequence& sequence, Request& request) {
  const int32_t length = sequence.whole() / limits_.page_tokens * limits_.page_tokens;
  if (!sequence.in_prefill() || length <= request.known()) return;
  // Windows' pages are there for the current end of the prompt, not for all earlier positions.
  if (!HasWindowsAt(length, sequence)) return;
  KeepUpTo(length, sequence, request);
  request.NoteKept(length);
}

int32_t PrefixReuse::Common(const RequestSpec& spec, const AttentionAssignment& policy,
                            const Sequence& running, const RequestSpec& other) const {
  if (spec.tenant != other.tenant || RopeLengthOf(spec) != running.rope_length) return 0;
  const auto longest =
      static_cast<std::ptrdiff_t>(std::min<size_t>(spec.prompt.size() - 1, running.prompt_length));
  const auto mine = spec.prompt.begin();
  const auto end = std::mismatch(mine, mine + longest, running.tokens.begin()).first;
  const auto common = static_cast<int32_t>(end - mine) / limits_.page_tokens * limits_.page_tokens;
  if (common == 0) return 0;
  if (running.attention != nullptr) {
    if (policy.dense() || policy.automatic()) return 0;
    const AttentionAssignment resolved =
        ResolveAssignment(policy, std::ssize(spec.prompt) + spec.sampling.max_tokens);
    if (AssignmentText(resolved) != AssignmentText(*running.attention)) return 0;
  }
  if (!limits_.has_windows()) return common;
  int32_t checkpoint = 0;
  for (const int32_t length : Request::Checkpoints(other, limits_.page_tokens)) {
    if (length <= common) checkpoint = length;
  }
  return checkpoint;
}

void PrefixReuse::InheritCoverage(Request& request) const {
  const Sequence& sequence = *request.sequence();
  if (sequence.attention == nullptr) return;
  std::optional<double> lowest;
  for (const GroupTable& group : sequence.groups) {
    for (const PageEntry& entry : group.entries) {
      const std::optional<double> coverage = book_.page({entry.rank, entry.page}).coverage;
      if (coverage.has_value()) lowest = std::min(lowest.value_or(1), *coverage);
    }
  }
  if (lowest.has_value()) request.attention_account().Inherit(*lowest);
}

}  // namespace annulus
