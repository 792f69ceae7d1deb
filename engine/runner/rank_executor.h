#ifndef ANNULUS_ENGINE_RUNNER_RANK_EXECUTOR_H_
#define ANNULUS_ENGINE_RUNNER_RANK_EXECUTOR_H_

#include <optional>
#include <span>

#include "engine/runner/rank_state.h"

namespace annulus {

// Executes steps on one rank: embed, layers (norm, projections, rope, page write, ring attention,
// output, MLP), logits, sample. Not thread-safe; all calls must come from the rank's thread.
class RankExecutor {
 public:
  explicit RankExecutor(const RankParts& parts) : state_(parts) {}

  // Runs this rank's part of the plan. On an error it ends the waits of all ranks, for peers and
  // for experts, and returns the error in RankResult::status.
  RankResult Execute(const StepPlan& plan);

  // Forgets every sequence. For use after an abort.
  void Reset() {
    state_.sequences.clear();
    state_.suspended.reset();
  }

 private:
  void AbortPeers(const absl::Status& why);
  // INVALID_ARGUMENT if the plan does not continue from the plans before it.
  absl::Status ApplyUpdates(const StepPlan& plan);
  void ForgetEnded(std::span<const SequenceId> ended);
  void SetAttention(const std::optional<AttentionAssignment>& assignment,
                    RankSequence& sequence) const;
  absl::Status ApplyUpdate(const SequenceUpdate& update);
  absl::Status SetTerms(const SequenceTerms& terms, RankSequence& sequence) const;

  RankState state_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_RANK_EXECUTOR_H_
