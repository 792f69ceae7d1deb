#include "engine/prefix_reuse.h"

#include <algorithm>
#include <span>

#include "absl/strings/str_cat.h"

namespace annulus {

PrefixReuse::PrefixReuse(std::string identity, const PlanLimits& limits,
                         std::vector<RopeConfig> ropes, int ranks)
    : identity_(std::move(identity)),
      limits_(limits),
      ropes_(std::move(ropes)),
      index_(limits.page_tokens, limits.group_windows, ranks) {}

// Keys and values depend on the attention of the layers below, so each policy has its own; and keys
// on the rotary frequencies. The tenant comes first: pages are found by their own tenant alone, so
// nobody learns from a hit what another one sent.
std::string PrefixReuse::Identity(const TenantId& tenant, const AttentionAssignment* policy,
                                  int64_t rope_length) const {
  std::string identity = absl::StrCat(tenant.name(), "/", identity_);
  if (policy != nullptr) absl::StrAppend(&identity, "/", AssignmentText(*policy));
  if (rope_length != 0) absl::StrAppend(&identity, "/rope", rope_length);
  return identity;
}

int64_t PrefixReuse::RopeLengthOf(const RequestSpec& spec) const {
  return RopeLength(ropes_, Demand(spec, limits_.page_tokens).tokens);
}

std::optional<PrefixIndex::Hit> PrefixReuse::Find(const RequestSpec& spec,
                                                  const AttentionAssignment* policy) {
  const auto known = std::span(spec.prompt).first(spec.prompt.size() - 1);
  const int64_t rope = RopeLengthOf(spec);
  std::optional<PrefixIndex::Hit> hit = index_.Find(Identity(spec.tenant, nullptr, rope), known);
  if (policy == nullptr) return hit;
  std::optional<PrefixIndex::Hit> own = index_.Find(Identity(spec.tenant, policy, rope), known);
  const bool longer = own.has_value() && (!hit.has_value() || own->tokens >= hit->tokens);
  return longer ? std::move(own) : std::move(hit);
}

void PrefixReuse::Keep(Sequence& sequence, Request& request) {
  const std::optional<double> coverage = request.attention_account().lowest();
  while (const auto length = request.TakeCheckpoint(limits_.page_tokens)) {
    const auto share = [&](int group, int32_t first) {
      if (limits_.group_windows[group] > 0) sequence.groups[group].shared.insert(first);
      OwnedPage page = request.SharePage(group, first);
      page_coverage_.erase({page.rank, page.page.id()});
      if (coverage.has_value()) page_coverage_[{page.rank, page.page.id()}] = *coverage;
      return page;
    };
    index_.Insert(Identity(request.spec().tenant, sequence.attention.get(), sequence.rope_length),
                  std::span(request.spec().prompt).first(*length), share);
  }
}

void PrefixReuse::InheritCoverage(Request& request) const {
  const Sequence& sequence = *request.sequence();
  if (sequence.attention == nullptr) return;
  std::optional<double> lowest;
  for (const GroupTable& group : sequence.groups) {
    for (const PageEntry& entry : group.entries) {
      const auto found = page_coverage_.find({entry.rank, entry.page});
      if (found != page_coverage_.end()) lowest = std::min(lowest.value_or(1), found->second);
    }
  }
  if (lowest.has_value()) request.attention_account().Inherit(*lowest);
}

}  // namespace annulus
