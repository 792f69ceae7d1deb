#include "engine/coordinator/admission/cache_lookup.h"

#include <algorithm>

namespace annulus {

CacheLookup::CacheLookup(const Request& request, const AttentionAssignment* policy,
                         Ledger& ledger) {
  const RequestSpec& spec = request.spec();
  if (spec.ignore_cache && request.has_begun()) {
    found_ = ledger.prefixes().FindKept(spec, policy, request.kept());
    return;
  }
  found_ = ledger.prefixes().Find(spec, policy, &nearest_);
  for (const PrefixReuse::Found& each : found_) {
    longest_ = std::max<int64_t>(longest_, each.hit.tokens);
  }
  if (!spec.ignore_cache) return;
  found_.clear();
  const int64_t rope = ledger.prefixes().RopeLengthOf(spec);
  const PageTier* const tier = ledger.tier();
  ignored_ =
      longest_ > 0 || (tier != nullptr && tier->lookup().Find(spec, policy, rope).tokens > 0);
}

std::optional<CacheMiss> CacheLookup::WhyNoMore(const Request& request,
                                                const AttentionAssignment* policy, int32_t cached,
                                                const Ledger& ledger) const {
  const RequestSpec& spec = request.spec();
  if (spec.ignore_cache) {
    if (!ignored_) return std::nullopt;
    return CacheMiss{CacheMiss::Reason::kIgnored, 0};
  }
  const PageTier* const tier = ledger.tier();
  const auto disk = tier != nullptr ? tier->verdicts().WhyNoMore(request.id()) : std::nullopt;
  if (disk.has_value() && disk->position >= cached) return disk;
  if (cached < longest_) return std::nullopt;
  const auto miss = ledger.prefixes().WhyNoMore(spec, policy, nearest_, cached);
  if (miss.has_value() && miss->reason != CacheMiss::Reason::kOtherTokens) return miss;
  const int32_t known = nearest_.whole;
  const int64_t rope = ledger.prefixes().RopeLengthOf(spec);
  if (tier != nullptr && tier->lookup().HasUnderAnotherIdentity(spec, policy, rope, known)) {
    return CacheMiss{CacheMiss::Reason::kOtherModel, known};
  }
  return miss;
}

}  // namespace annulus
