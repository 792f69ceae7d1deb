// The coordinator's part in deciding who begins.

#include <algorithm>

#include "engine/coordinator.h"

namespace annulus {

// What admission asks of the coordinator.
class Coordinator::AdmissionSide final : public AdmissionHost {
 public:
  explicit AdmissionSide(Coordinator& own) : own_(own) {}
  bool HasPlace(const Contender& contender) override {
    return own_.serving_.HasPlace(contender, own_.state_, own_.requests_, CountActive(own_.state_));
  }
  bool Waits(const Contender& contender) override {
    return own_.WaitsForPrefix(*own_.requests_.at(contender.id));
  }
  Answer TryAdmit(const Contender& contender, const Contender* large) override {
    const Request* const other = large == nullptr ? nullptr : own_.requests_.at(large->id).get();
    const Answer answer = own_.TryAdmit(*own_.requests_.at(contender.id), other);
    if (answer == Answer::kAdmitted) {
      own_.waiting_.erase(std::find(own_.waiting_.begin(), own_.waiting_.end(), contender.id));
      --own_.waiting_count_;
    }
    return answer;
  }

 private:
  Coordinator& own_;
};

void Coordinator::AdmitWaiting() {
  const SteadyTime now = std::chrono::steady_clock::now();
  if (waiting_.empty() || !serving_.PassIsDue(now)) return;
  AdmissionSide side(*this);
  int position = 0;
  for (const RequestId id : serving_.Admit(waiting_, requests_, side, now)) {
    Request& request = *requests_.at(id);
    if (request.sequence() == nullptr) request.ReportQueued(position++);
  }
}

// Whether a running request computes just now what this one begins with: its pages come sooner than
// computing them a second time would give them. If that one ends before, what it has computed is
// kept, and the next goes on there.
bool Coordinator::WaitsForPrefix(const Request& request) {
  const RequestSpec& spec = request.spec();
  const AttentionAssignment& policy =
      spec.attention.has_value() ? *spec.attention : options_.attention;
  int32_t longest = 0;
  Sequence* from = nullptr;
  for (const auto& sequence : state_.running) {
    if (!sequence->in_prefill() || sequence->paused) continue;
    const auto [known, is_new] = common_.try_emplace({request.id(), sequence->id}, 0);
    if (is_new) {
      known->second = prefixes_.Common(spec, policy, *sequence, requests_.at(sequence->id)->spec());
    }
    const int32_t common = known->second;
    const bool worth_it = common >= 1024 || 2 * common >= request.prompt_tokens();
    if (!worth_it || common <= longest) continue;
    longest = common;
    from = sequence.get();
  }
  if (from == nullptr) return false;
  if (from->computed < longest) return true;
  int32_t& kept = kept_common_[from->id];
  if (longest > kept) prefixes_.KeepCommon(longest, *from, *requests_.at(from->id));
  kept = std::max(kept, longest);
  return false;
}

// What the request needs if nothing of it is cached.
PageDemand Coordinator::DemandOf(const Request& request) {
  PageDemand demand = Demand(request.spec(), options_.limits.page_tokens);
  demand.summarised =
      ranks_.PagesSummarised(SummariesOf(request.spec().attention.value_or(options_.attention)));
  return demand;
}

}  // namespace annulus
