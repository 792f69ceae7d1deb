#include "engine/scheduler/admission.h"

#include <algorithm>
#include <map>
#include <vector>

namespace annulus {
namespace {

// Each costs a look at a whole prompt; who was not asked in a turn is asked in the next.
constexpr int kMostRefusals = 16;

// It has waited as long as its prompt takes, and longer than a short request would notice.
bool WaitedEnough(const Contender& contender) {
  constexpr double kLeast = 1;  // second
  return contender.elapsed >= std::max(contender.total, kLeast);
}

// The prompts that come before one that starts now: those of its own share, and as many seconds of
// each other share that contends, since shares take turns. A long prompt counts until the new
// request is as pressing.
class PromptsAhead {
 public:
  explicit PromptsAhead(std::span<const Contender> begun) {
    for (const Contender& contender : begun) Add(contender);
  }
  void Add(const Contender& contender) {
    begun_[contender.share].push_back({contender.remaining, Urgency(contender)});
  }
  bool LeaveTime(const Contender& contender) const {
    if (!contender.ends_at_deadline) return true;
    const auto own = begun_.find(contender.share);
    if (own == begun_.end()) return true;
    double seconds = 0;
    for (const Prompt& prompt : own->second) {
      seconds += std::min(prompt.remaining, SecondsToReach(prompt.urgency, contender));
    }
    return SecondsNeeded(contender, seconds * static_cast<double>(begun_.size())) <=
           contender.until_deadline;
  }

 private:
  struct Prompt {
    double remaining;
    double urgency;
  };
  std::map<ShareName, std::vector<Prompt>> begun_;
};

}  // namespace

void Admission::Forget(SequenceId id) {
  no_room_.erase(id);
  if (gathering_ == id) gathering_.reset();
}

std::vector<size_t> Admission::Run(std::span<const Contender> waiting,
                                   std::span<const Contender> begun, const FairShares& shares,
                                   AdmissionHost& host) {
  PromptsAhead ahead(begun);
  std::vector<size_t> order = ServingOrder(waiting, shares);
  // What room was gathered for comes first until it begins: it has had its wait.
  const Contender* large = nullptr;
  if (gathering_.has_value()) {
    const auto found = std::find_if(order.begin(), order.end(),
                                    [&](size_t i) { return waiting[i].id == *gathering_; });
    if (found == order.end()) {
      gathering_.reset();
    } else {
      std::rotate(order.begin(), found, found + 1);
      large = &waiting[order.front()];
    }
  }
  int refused = 0;
  for (const size_t i : order) {
    if (!host.HasTime()) break;
    const Contender& contender = waiting[i];
    if (!host.HasSlot(contender) || !ahead.LeaveTime(contender)) continue;
    if (!no_room_.contains(contender.id)) {
      if (refused == kMostRefusals) continue;
      const bool beside = large != nullptr && large != &contender;
      const Contender* const other = beside ? large : nullptr;
      if (host.Waits(contender, other)) continue;
      const AdmissionHost::Answer answer = host.TryAdmit(contender, other);
      if (answer == AdmissionHost::Answer::kAdmitted) {
        ahead.Add(contender);
        if (large == &contender) {
          large = nullptr;
          gathering_.reset();
          no_room_.clear();  // room is kept for another one now, or for none
        }
        continue;
      }
      ++refused;
      no_room_.insert(contender.id);
    }
    if (large == nullptr && WaitedEnough(contender)) {
      large = &contender;
      gathering_ = contender.id;
    }
  }
  return order;
}

}  // namespace annulus
