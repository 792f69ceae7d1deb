#include "engine/coordinator/step_recovery.h"

#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/error_payloads.h"
#include "engine/base/field_error.h"
#include "engine/base/try_to.h"
#include "engine/runner/between_ranks.h"
#include "engine/scheduler/repair.h"
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

// A request does not wait for ever for a connection that fails again and again.
constexpr int kMostFailuresBetweenRanks = 8;

}  // namespace

absl::Status StepError(const absl::Status& cause, bool again) {
  absl::Status status = absl::UnavailableError(
      again ? "computing the answer failed; try again"
            : "computing the answer failed; restart the server (its log has the cause)");
  status.SetPayload(kCausePayload, absl::Cord(cause.ToString()));
  return status;
}

std::vector<SequenceId> StepRecovery::Running() const {
  std::vector<SequenceId> running;
  for (const auto& sequence : use_.ledger.state().running) running.push_back(sequence->id);
  return running;
}

// Without memory to tell them apart, all end.
void StepRecovery::EndAll(const absl::Status& cause) {
  while (!use_.ledger.state().running.empty()) {
    use_.end(use_.ledger.state().running.front()->id, StepError(cause, /*again=*/true));
  }
  use_.ledger.ForgetPages();
}

void StepRecovery::Recover(std::span<const StepPlan* const> failed, const absl::Status& cause,
                           std::span<const int32_t> lost) {
  use_.metrics.failed_steps.Increment();
  if (!lost.empty()) return RecoverLost(cause, lost);
  std::vector<SequenceId> running;
  std::map<SequenceId, int32_t> ends;
  const auto look = [&] {
    running = Running();
    ends = EndsOf(failed);
  };
  if (!TryTo(look)) return EndAll(cause);
  const bool between_ranks = IsBetweenRanks(cause);
  for (const SequenceId id : running) {
    const auto end = ends.find(id);
    Request& request = use_.ledger.request(id);
    const bool again = end != ends.end() && request.is_suspect();
    const bool blamed =
        !between_ranks || request.failed_between_ranks() >= kMostFailuresBetweenRanks;
    if (use_.checks.Has(id) || (again && blamed)) {
      use_.end(id, StepError(cause, /*again=*/true));
    } else if (SetBack(request, cause) && end != ends.end()) {
      request.Suspect(end->second, between_ranks);
    }
  }
}

// Nobody is a suspect: that pages were lost is no request's doing.
void StepRecovery::RecoverLost(const absl::Status& cause, std::span<const int32_t> lost) {
  std::vector<SequenceId> running;
  const auto look = [&] {
    use_.ledger.ForgetPages(lost);  // first: it does its part without memory too
    running = Running();
    LosePages(lost, use_.options.limits, use_.ledger.state(), use_.ledger.book());
  };
  if (!TryTo(look)) return EndAll(cause);
  for (const SequenceId id : running) {
    Request& request = use_.ledger.request(id);
    bool repairs = false;  // nor without memory to decide it
    if (use_.checks.Has(id)) {
      use_.end(id, StepError(cause, /*again=*/true));
    } else if (TryTo([&] { repairs = Repairs(request); }) && repairs) {
      Keep(request, cause);
    } else {
      SetBack(request, cause);
    }
  }
  use_.serving.NoteRoom();
}

// Returns false if the request ended, for want of memory.
bool StepRecovery::SetBack(Request& request, const absl::Status& cause) {
  const auto set_back = [&] {
    request.CountRecovery(cause.ToString(), /*repaired=*/false);
    use_.growth.SetBack(request);
    return absl::OkStatus();
  };
  if (absl::Status back = Guarded(set_back, NoMemoryError); !back.ok()) {
    use_.end(request.id(), std::move(back));
    return false;
  }
  use_.metrics.recovered_set_back.Increment();
  return true;
}

bool StepRecovery::Repairs(const Request& request) const {
  const Sequence& sequence = *request.sequence();
  const PlanLimits& limits = use_.options.limits;
  for (const int32_t rank : sequence.ring) {
    if (!use_.ledger.book().is_usable(rank)) return false;  // it begins anew on a smaller ring
  }
  if (!CanRepair(sequence, limits, use_.ledger.book())) return false;
  if (!sequence.lost.has_value()) return true;
  // Its steps are its own, and repairs may share pages with those of others.
  if (sequence.apart) return false;
  // Dense rows may have computed what it began from, and its own would give other bits.
  if (sequence.attention != nullptr && sequence.whole() < request.begun_from()) return false;
  // A tier borrows window pages at the ends of chunks (PromptSaver), which forget_waits gives up.
  if (limits.has_windows() && use_.ledger.tier() != nullptr) return false;
  return !ReadsSooner(request);
}

// Whether a tier gives what follows the first lost row sooner than lost rows are computed.
bool StepRecovery::ReadsSooner(const Request& request) const {
  const PageTier* const tier = use_.ledger.tier();
  const RequestSpec& spec = request.spec();
  if (tier == nullptr || spec.ignore_cache) return false;
  const Sequence& sequence = *request.sequence();
  const SavedBeginning saved = tier->lookup().Find(spec, sequence.attention.get(),
                                                   use_.ledger.prefixes().RopeLengthOf(spec));
  if (saved.tokens <= sequence.whole()) return false;
  const auto reading = tier->verdicts().SecondsToRead(saved, sequence.whole());
  if (!reading.has_value()) return false;
  const double rest =
      use_.serving.PromptSeconds(std::min(saved.tokens, sequence.computed), sequence.computed);
  double repair = 0;
  for (std::optional<RowRange> lost = sequence.lost; lost.has_value();
       lost = FindLost(sequence, lost->end, use_.options.limits, use_.ledger.book())) {
    repair += use_.serving.PromptSeconds(lost->begin, lost->end);
  }
  return *reading + rest < repair;
}

void StepRecovery::Keep(Request& request, const absl::Status& cause) {
  Sequence& sequence = *request.sequence();
  const auto keep = [&] {
    request.CountRecovery(cause.ToString(), /*repaired=*/true);
    if (sequence.lost.has_value()) use_.forget_waits(request);
    return absl::OkStatus();
  };
  if (absl::Status kept = Guarded(keep, NoMemoryError); !kept.ok()) {
    return use_.end(request.id(), std::move(kept));
  }
  TellAnew(sequence);
  // Windows' pages are there for the current end, not for the checkpoints that were passed.
  if (sequence.lost.has_value() && !use_.options.limits.has_windows()) {
    request.TakeCheckpointsAgain(sequence.whole());
  }
  use_.metrics.recovered_repaired.Increment();
}

std::optional<StepPlan> StepRecovery::WithoutRepairs(const StepPlan& plan) const {
  const auto repairs = [&](const PlanItem& item) {
    return IsRepair(item, *use_.ledger.request(item.sequence).sequence());
  };
  if (std::none_of(plan.items.begin(), plan.items.end(), repairs)) return std::nullopt;
  StepPlan rest = plan;
  std::erase_if(rest.items, repairs);
  for (const PlanItem& item : plan.items) {
    if (!repairs(item) || !EndsItsChunks(plan)) continue;
    use_.metrics.repaired_tokens.Add(item.end - item.begin);
  }
  return rest;
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
