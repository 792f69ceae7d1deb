#include "engine/coordinator/admission/prefix_waits.h"

#include "engine/base/try_to.h"

namespace annulus {

bool PrefixWaits::Waits(const Request& request) {
  const RequestSpec& spec = request.spec();
  if (spec.ignore_cache) return false;
  AttentionAssignment policy = spec.attention.value_or(options_.engine.attention);
  if (request.has_begun()) {
    policy = request.attention() != nullptr ? *request.attention() : AttentionAssignment();
  }
  int32_t longest = 0;
  Sequence* from = nullptr;
  for (const auto& sequence : ledger_.state().running) {
    if (!sequence->in_prefill() || sequence->paused || sequence->is_check()) continue;
    const auto [known, is_new] = common_.try_emplace({request.id(), sequence->id}, 0);
    if (is_new) {
      known->second =
          ledger_.prefixes().Common(spec, policy, *sequence, ledger_.request(sequence->id).spec());
    }
    const int32_t common = known->second;
    const bool worth_it = common >= 1024 || 2 * common >= request.prompt_tokens();
    if (!worth_it || common <= longest) continue;
    longest = common;
    from = sequence.get();
  }
  if (from == nullptr) return false;
  if (from->whole() < longest) {
    const int32_t layers = from->suspended.has_value() ? from->suspended->layers : 0;
    return !standstill_.StandsStill(from->id, (int64_t{from->whole()} << 16) + layers,
                                    ledger_.state().step, clock_.Now());
  }
  int32_t& kept = kept_[from->id];
  if (longest > kept) {
    // Without memory for it, this one computes it once more.
    TryTo([&] { ledger_.prefixes().KeepCommon(longest, *from, ledger_.request(from->id)); });
    kept = longest;
  }
  return false;
}

void PrefixWaits::Forget(const Request& request) {
  const RequestId id = request.id();
  const auto waited = common_.lower_bound({id, 0});
  auto end = waited;
  while (end != common_.end() && end->first.first == id) ++end;
  common_.erase(waited, end);
  if (request.sequence() == nullptr) return;  // nobody waited for it
  std::erase_if(common_, [id](const auto& entry) { return entry.first.second == id; });
  kept_.erase(id);
  standstill_.Forget(id);
}

}  // namespace annulus
