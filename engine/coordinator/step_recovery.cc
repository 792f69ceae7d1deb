#include "engine/coordinator/step_recovery.h"

#include <algorithm>
#include <map>
#include <vector>

#include "engine/base/error_payloads.h"
#include "engine/base/field_error.h"
#include "engine/base/try_to.h"
#include "kernels/base/guarded.h"

namespace annulus {
namespace {

// [sequence] Where the rows of the plans end.
std::map<SequenceId, int32_t> EndsOf(std::span<const StepPlan* const> plans) {
  std::map<SequenceId, int32_t> ends;
  for (const StepPlan* const plan : plans) {
    for (const PlanItem& item : plan->items) {
      int32_t& end = ends[item.sequence];
      end = std::max(end, item.end);
    }
  }
  return ends;
}

}  // namespace

absl::Status StepError(const absl::Status& cause, bool again) {
  absl::Status status = absl::UnavailableError(
      again ? "computing the answer failed; try again"
            : "computing the answer failed; restart the server (its log has the cause)");
  status.SetPayload(kCausePayload, absl::Cord(cause.ToString()));
  return status;
}

void StepRecovery::Recover(std::span<const StepPlan* const> failed, const absl::Status& cause,
                           std::span<const int32_t> lost) {
  use_.metrics.failed_steps.Increment();
  std::vector<SequenceId> running;
  std::map<SequenceId, int32_t> ends;
  const auto look = [&] {
    for (const auto& sequence : use_.ledger.state().running) running.push_back(sequence->id);
    if (lost.empty()) ends = EndsOf(failed);
  };
  if (!TryTo(look)) {
    // Without memory to tell them apart, all end.
    while (!use_.ledger.state().running.empty()) {
      use_.end(use_.ledger.state().running.front()->id, StepError(cause, /*again=*/true));
    }
    return use_.ledger.ForgetPages();
  }
  for (const SequenceId id : running) {
    const auto end = ends.find(id);
    Request& request = use_.ledger.request(id);
    const bool again = end != ends.end() && request.is_suspect();
    if (use_.checks.Has(id) || again) {
      use_.end(id, StepError(cause, /*again=*/true));
      continue;
    }
    const auto set_back = [&] {
      request.CountRecovery(cause.ToString());
      use_.growth.SetBack(request, /*keeps=*/lost.empty());
      return absl::OkStatus();
    };
    if (absl::Status back = Guarded(set_back, NoMemoryError); !back.ok()) {
      use_.end(id, std::move(back));
      continue;
    }
    if (end != ends.end()) request.Suspect(end->second);
    use_.metrics.recovered_requests.Increment();
  }
  if (!lost.empty() && !TryTo([&] { use_.ledger.ForgetPages(lost); })) use_.ledger.ForgetPages();
}

std::optional<SequenceId> StepRecovery::RunsAlone(SteadyTime now) const {
  const EngineState& state = use_.ledger.state();
  const auto is_suspect = [&](const auto& sequence) {
    return use_.ledger.request(sequence->id).is_suspect() && !sequence->paused &&
           !sequence->needs_pages();
  };
  if (std::none_of(state.running.begin(), state.running.end(), is_suspect)) return std::nullopt;
  for (const size_t index : use_.serving.OrderOfRunning(state, use_.ledger.requests(), now)) {
    if (is_suspect(state.running[index])) return state.running[index]->id;
  }
  return std::nullopt;
}

void StepRecovery::Passed(const StepPlan& plan) {
  for (const PlanItem& item : plan.items) {
    if (Request& request = use_.ledger.request(item.sequence); request.is_suspect()) {
      request.Passed();
    }
  }
}

}  // namespace annulus
