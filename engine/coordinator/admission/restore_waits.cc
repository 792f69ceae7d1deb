#include "engine/coordinator/admission/restore_waits.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "engine/base/try_to.h"

namespace annulus {

using Verdict = RestoreVerdicts::Verdict;

bool RestoreWaits::Waits(const Request& request, const Request* large, int64_t& hashed) {
  PageTier* const tier = ledger_.tier();
  if (tier == nullptr || request.spec().ignore_cache) return false;
  Verdict verdict = tier->verdicts().Of(request.id());
  if (verdict == Verdict::kSettled) return false;
  if (RestoreVerdicts::IsWait(verdict)) return true;
  const PageOwner owner = tier->restorer().NewOwner();
  bool begun = false;
  const auto judge = [&] {
    hashed += request.tokens_to_read();
    verdict = Judge(request, large, owner, begun);
  };
  if (!TryTo(judge)) {
    tier->restorer().Abort(request.id(), owner);
    return false;
  }
  return begun || RestoreVerdicts::IsWait(verdict);
}

// The policies, resolved, under which the request's pages may have been saved besides dense ones.
// Nothing if there are none, or if `auto` has not chosen yet.
std::optional<AttentionAssignment> RestoreWaits::OwnPolicies(const Request& request) const {
  if (request.has_begun()) {
    const auto& kept = request.attention();
    return kept != nullptr ? std::optional(*kept) : std::nullopt;
  }
  const RequestSpec& spec = request.spec();
  const AttentionAssignment asked = spec.attention.value_or(options_.engine.attention);
  if (asked.dense() || asked.automatic()) return std::nullopt;
  return ResolveAssignment(asked, std::ssize(spec.prompt) + spec.sampling.max_tokens);
}

Verdict RestoreWaits::Judge(const Request& request, const Request* large, PageOwner owner,
                            bool& begun) {
  PageTier& tier = *ledger_.tier();
  PrefixReuse& prefixes = ledger_.prefixes();
  const RequestId id = request.id();
  const RequestSpec& spec = request.spec();
  const std::optional<AttentionAssignment> own = OwnPolicies(request);
  const AttentionAssignment* const under = own.has_value() ? &*own : nullptr;
  SavedBeginning saved = tier.lookup().Find(spec, under, prefixes.RopeLengthOf(spec));
  if (!saved.ring.empty() && !finder_.IsWorthRing(needs_.Of(request), saved.tokens, saved.ring)) {
    saved = {};
  }
  const bool has_all = spec.prefill_only && prefixes.HasAll(spec, under);
  const auto in_memory =
      static_cast<int32_t>(has_all ? std::ssize(spec.prompt) : prefixes.LongestFound(spec, under));
  const int32_t used_to = std::max(in_memory, saved.tokens - tier.checked_tokens());
  // Dense pages extend the prefix in memory; pages of other policies are used alone.
  std::optional<PrefixReuse::Found> before;
  if (saved.tokens > in_memory && !saved.policy.has_value()) {
    before = prefixes.FindFull(spec, tier.lookup().MostBefore(saved));
  }
  const double computed = serving_.PromptSeconds(in_memory, used_to);
  Verdict verdict = Verdict::kUnknown;
  bool lacks_room = false;
  for (const auto* const from : finder_.RestoreTargets(needs_.Of(request), saved.tokens, before)) {
    if (from != nullptr && !saved.ring.empty() && from->ring != saved.ring) continue;
    // A verdict for another target, to which more is read, does not apply to this one.
    if (verdict == Verdict::kSettled) tier.verdicts().NoRoom(id);
    const int32_t there = from == nullptr ? 0 : from->hit.tokens;
    verdict = tier.verdicts().Judge(id, spec.tenant, saved, {in_memory, there}, computed);
    const bool waits = RestoreVerdicts::IsWait(verdict);
    const bool ready = verdict == Verdict::kReady;
    begun = ready && Begin(request, saved, from, owner, large);
    lacks_room = !begun && !waits && (lacks_room || ready);
    if (begun || waits) break;
  }
  if (lacks_room) tier.verdicts().NoRoom(id);
  return verdict;
}

// Takes `saved` if there is room for it: with memory's part `before` on that ring, or, if that is
// null, all of it.
bool RestoreWaits::Begin(const Request& request, SavedBeginning& saved,
                         const PrefixReuse::Found* before, PageOwner owner, const Request* large) {
  const RequestSpec& spec = request.spec();
  const PrefixIndex::Hit* const hit = before != nullptr ? &before->hit : nullptr;
  PageDemand demand = needs_.Of(request);
  ledger_.book().Open(owner, spec.tenant);
  if (hit != nullptr) finder_.HoldHit(*hit, owner, demand);
  const std::vector<int32_t> ring = hit != nullptr ? before->ring : saved.ring;
  const auto accepts = [&](const RingChoice& choice) {
    return quota_.FindRoom(spec, choice) && finder_.LeavesRoom(large, choice, hit);
  };
  const std::optional<RingChoice> choice = finder_.MakeRoom(spec, demand, ring, accepts);
  if (!choice.has_value()) {
    ledger_.book().Release(owner);
    return false;
  }
  ledger_.tier()->restorer().Begin(request, std::move(saved), hit, choice->ring, owner);
  return true;
}

}  // namespace annulus
