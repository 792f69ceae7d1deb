#ifndef ANNULUS_ENGINE_SCHEDULER_QUANTUM_H_
#define ANNULUS_ENGINE_SCHEDULER_QUANTUM_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/scheduler/placement.h"
#include "engine/scheduler/step_cost.h"

namespace annulus {

// A prompt that could continue in the next step.
struct PromptState {
  SequenceId sequence = 0;
  int32_t computed = 0;
  int32_t prompt_length = 0;
  AttentionClass attention = AttentionClass::kDense;
  int degree = 1;
};

// How far a prompt may advance in the next step.
struct PrefillTurn {
  SequenceId sequence = 0;
  int32_t end = 0;
};

struct QuantumLimits {
  double seconds = 0;     // longest time of the step; 0: unlimited
  int64_t most_rows = 0;  // of all prompts together; 0: unlimited
};

// Chooses which prompts continue in the next step, and how far: in the order given, as many rows as
// fit into the time together with `rest`, all other work of the step (including kStep). Chunks end
// at a page end, after whole rounds of the ring if possible, or at the prompt's end. If not even
// one page fits, the first prompt still gets one page; otherwise it would never advance.
//
// Extension point for chunks suspended between layers: such a chunk would be a turn whose end is
// fixed and whose layers are chosen instead.
std::vector<PrefillTurn> SolveQuantum(std::span<const PromptState> prompts, const StepWork& rest,
                                      const StepCostModel& costs, const QuantumLimits& limits,
                                      const PlanLimits& plan);

// Sizes steps to keep the stall budget: the longest time that a running stream should wait between
// two tokens. Not thread-safe.
class StepPacer {
 public:
  // If `stall_seconds` is 0, steps are as large as `plan` allows.
  StepPacer(double stall_seconds, const PlanLimits& plan) : stall_(stall_seconds), plan_(plan) {}

  // Returns what prompts do in the next step. `prompts`: in serving order. `streams`: the positions
  // of rows that will be sampled in any case.
  std::vector<PrefillTurn> Turns(std::span<const PromptState> prompts,
                                 std::span<const int32_t> streams) const;

  // Learns from a finished step. `attention`: as for WorkOf. `streams`: how many of its sampled
  // sequences already had a token before.
  void Took(const StepPlan& plan, std::span<const AttentionClass> attention, int streams,
            double seconds);

  // Predicted seconds of these rows alone.
  double PromptSeconds(const PromptState& prompt, int32_t begin, int32_t end) const;

  // Predicted seconds until the prompt is computed, in the chunks that Turns would choose if it
  // were the only prompt, together with streams at these positions. Evaluates the cost at kLooks
  // points of the prompt. 0 before the first step.
  static constexpr int kLooks = 16;
  double SecondsBeside(PromptState prompt, std::span<const int32_t> streams) const;

  const StepCostModel& costs() const { return costs_; }
  // Predicted seconds of the smallest possible chunk: one page of a prompt at the previous step's
  // depth, including what every step takes. If this exceeds the stall budget, the budget cannot be
  // kept.
  double smallest_chunk_seconds() const { return smallest_; }

 private:
  QuantumLimits LimitsBeside(bool streams) const;

  const double stall_;
  const PlanLimits plan_;
  StepCostModel costs_;
  // The most prompt rows that any step has had, without and with streams. A chunk is at most twice
  // that, so that untested sizes never surprise a waiting stream.
  std::array<int64_t, 2> tried_{};
  double smallest_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SCHEDULER_QUANTUM_H_
