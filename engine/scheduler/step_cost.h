#ifndef ANNULUS_ENGINE_SCHEDULER_STEP_COST_H_
#define ANNULUS_ENGINE_SCHEDULER_STEP_COST_H_

#include <array>
#include <cstdint>
#include <span>

#include "engine/scheduler/placement.h"
#include "engine/state/step_plan.h"

namespace annulus {

// How a prompt's rows find their keys, as far as the time that takes goes.
enum class AttentionClass : uint8_t { kDense, kPattern, kContent };
AttentionClass ClassOf(const AttentionAssignment* attention);

// What a step has to do, as far as its time goes. Values add up.
struct StepWork {
  enum Feature : uint8_t {
    kStep,        // 1: what every step takes, reading the weights above all
    kRows,        // prompt rows, all ranks together
    kFullest,     // ranks times the prompt rows of the fullest: kRows where they are even
    kDensePairs,  // causal (row, key) pairs of prompt rows, by AttentionClass
    kPatternPairs,
    kContentPairs,
    kSampled,  // rows to be sampled
    kKeys,     // causal pairs of those
  };
  static constexpr int kFeatures = kKeys + 1;
  std::array<double, kFeatures> amount{};

  StepWork& operator+=(const StepWork& other);
};

// Of rows [begin, end) of a prompt, as even over all ranks as can be, without kStep.
StepWork EvenWork(int32_t begin, int32_t end, AttentionClass attention);
// The same where its pages are dealt out over a ring of `degree`, as PlaceOnRing does.
StepWork PromptWork(int32_t begin, int32_t end, AttentionClass attention, int degree,
                    const PlanLimits& plan);
// Of rows [begin, end) that are sampled, without kStep.
StepWork SampledWork(int32_t begin, int32_t end);
// Of a whole plan, with kStep. `attention`: of each item; empty: all are dense.
StepWork WorkOf(const StepPlan& plan, std::span<const AttentionClass> attention, int ranks);

// How long steps take, fitted while they run: a sum of the amounts, each times its seconds, none
// below 0. Least squares of relative errors over the last steps, some 30; what they do not show
// stays as it was. Plain data.
class StepCostModel {
 public:
  // 0 before the first step.
  double Predict(const StepWork& work) const;
  void Learn(const StepWork& work, double seconds);

  int64_t steps() const { return steps_; }
  // |predicted - taken| / taken, mean over the last steps.
  double error() const { return error_; }
  // Nineteen of twenty steps took at most 1 + margin times what was predicted.
  double margin() const { return margin_; }

 private:
  static constexpr int kFeatures = StepWork::kFeatures;
  using Row = std::array<double, kFeatures>;

  static Row Scaled(const StepWork& work);
  void Fit();

  Row seconds_{};  // of a scaled unit
  std::array<Row, kFeatures> squares_{};
  Row products_{};
  Row memory_{};  // how well each has been known
  int64_t steps_ = 0;
  double error_ = 0;
  double margin_ = 0.25;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SCHEDULER_STEP_COST_H_
