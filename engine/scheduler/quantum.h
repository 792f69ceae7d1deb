#ifndef ANNULUS_ENGINE_SCHEDULER_QUANTUM_H_
#define ANNULUS_ENGINE_SCHEDULER_QUANTUM_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/scheduler/placement.h"
#include "engine/scheduler/step_cost.h"

namespace annulus {

// A prompt that could go on in the next step.
struct PromptState {
  SequenceId sequence = 0;
  int32_t computed = 0;
  int32_t prompt_length = 0;
  AttentionClass attention = AttentionClass::kDense;
  int degree = 1;
};

// How far a prompt may go in the next step.
struct PrefillTurn {
  SequenceId sequence = 0;
  int32_t end = 0;
};

struct QuantumLimits {
  double seconds = 0;     // that the step may take; 0: any
  int64_t most_rows = 0;  // of prompts together; 0: any
};

// The prompts that go on in the next step, and how far: as many rows, in the order given, as fit
// into the time beside `rest`, all else that the step does (kStep too). Chunks end where a page
// ends, after whole rounds of the ring where that many fit, or with the prompt. If not even one
// page fits, the first prompt gets one all the same: otherwise it would never go on.
//
// The seam for chunks that are suspended between layers: such a chunk is a turn whose end is fixed
// and whose layers are what is solved for.
std::vector<PrefillTurn> SolveQuantum(std::span<const PromptState> prompts, const StepWork& rest,
                                      const StepCostModel& costs, const QuantumLimits& limits,
                                      const PlanLimits& plan);

// Keeps steps within the stall budget: the longest that a running stream should wait between two
// tokens. Of one thread.
class StepPacer {
 public:
  // `stall_seconds`: 0: steps are as large as `plan` allows.
  StepPacer(double stall_seconds, const PlanLimits& plan) : stall_(stall_seconds), plan_(plan) {}

  // `prompts` in serving order; `streams`: the rows that will be sampled anyway, one for each
  // position given.
  std::vector<PrefillTurn> Turns(std::span<const PromptState> prompts,
                                 std::span<const int32_t> streams) const;

  // A step took so long; `attention`: as of WorkOf; `streams`: how many it sampled for that had a
  // token before.
  void Took(const StepPlan& plan, std::span<const AttentionClass> attention, int streams,
            double seconds);

  // Seconds that these rows take with nothing beside them, as far as is known.
  double PromptSeconds(const PromptState& prompt, int32_t begin, int32_t end) const;

  // Seconds from now until a prompt is read, chunk by chunk as Turns cuts it if it is the only one,
  // beside streams at these positions. The attended positions of its chunks are looked at in
  // kLooks places. 0 before the first step.
  static constexpr int kLooks = 16;
  double SecondsBeside(PromptState prompt, std::span<const int32_t> streams) const;

  const StepCostModel& costs() const { return costs_; }
  // What one page of a prompt is predicted to take, beside what else every step takes, at the depth
  // of the step before; above the stall budget, the budget cannot be kept.
  double smallest_chunk_seconds() const { return smallest_; }

 private:
  QuantumLimits LimitsBeside(bool streams) const;

  const double stall_;
  const PlanLimits plan_;
  StepCostModel costs_;
  // Most rows of prompts that a step has had, by whether streams ran beside it. A chunk is at most
  // twice as large, so that what is not known yet is not tried on somebody who waits.
  std::array<int64_t, 2> tried_{};
  double smallest_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SCHEDULER_QUANTUM_H_
