#include "engine/coordinator/planning/policy_chooser.h"

#include <utility>

#include "engine/base/try_to.h"
#include "engine/scheduler/step_cost.h"

namespace annulus {

PolicyChooser::PolicyChooser(const CoordinatorOptions& options, PrefixReuse& prefixes)
    : options_(options),
      prefixes_(prefixes),
      automatic_(options.automatic, options.modes.geometry) {}

std::shared_ptr<const AttentionAssignment> PolicyChooser::ChooseFor(Request& request) {
  if (request.has_begun()) return request.attention();
  std::string why;
  auto chosen = Choose(request.spec(), why);
  if (!why.empty()) request.SetAttentionChoice(std::move(why));
  return chosen;
}

std::shared_ptr<const AttentionAssignment> PolicyChooser::Choose(const RequestSpec& spec,
                                                                 std::string& why) {
  AttentionAssignment taken = spec.attention.value_or(options_.engine.attention);
  const int64_t prompt = std::ssize(spec.prompt);
  if (taken.automatic()) {
    const auto cached = [&](const AttentionPolicy& policy) -> int64_t {
      if (spec.ignore_cache) return 0;
      const AttentionAssignment alone = policy;
      return prefixes_.LongestFound(spec, alone.dense() ? nullptr : &alone);
    };
    AutoPolicy::Choice chosen = automatic_.Choose(taken.policy, prompt, cached);
    why = std::move(chosen.reason);
    taken = AttentionAssignment(std::move(chosen.policy));
  }
  if (taken.dense()) return nullptr;
  return std::make_shared<const AttentionAssignment>(
      ResolveAssignment(taken, prompt + spec.sampling.max_tokens));
}

void PolicyChooser::Learn(Request& request) {
  const AttentionAssignment* const attention = request.sequence()->attention.get();
  if (attention != nullptr && !attention->rules.empty()) return;
  // Without memory for it, it expects what it did before.
  TryTo([&] {
    automatic_.Learn(attention != nullptr ? attention->policy : AttentionPolicy(),
                     request.prompt_tokens(), request.cached_tokens(), request.attention_report());
  });
}

std::shared_ptr<const PatternPairs> PolicyChooser::PairsOf(const AttentionAssignment* attention,
                                                           int64_t tokens) const {
  if (ClassOf(attention) != AttentionClass::kPattern) return nullptr;
  return std::make_shared<const PatternPairs>(*attention, LayersWithPairs(options_.limits),
                                              options_.modes.geometry.page.kv_heads, tokens);
}

}  // namespace annulus
