#ifndef ANNULUS_ENGINE_SCHEDULER_STEP_COST_H_
#define ANNULUS_ENGINE_SCHEDULER_STEP_COST_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/scheduler/placement.h"
#include "engine/sparse/pattern_pairs.h"
#include "engine/state/step_plan.h"

namespace annulus {

// How a prompt's rows find their keys, as far as it affects their time.
enum class AttentionClass : uint8_t { kDense, kPattern, kContent };
AttentionClass ClassOf(const AttentionAssignment* attention);

// How the rows of one prompt attend, and what else is computed of them. A class alone converts to
// it.
struct RowAttention {
  // NOLINTNEXTLINE(google-explicit-constructor): a class is all that most rows need
  RowAttention(AttentionClass of, const PatternPairs* counted_by = nullptr, bool has_scores = false)
      : kind(of), pairs(counted_by), scored(has_scores) {}

  AttentionClass kind;
  // Counts the pairs of kPattern; must outlive this value. Null: all causal pairs count.
  const PatternPairs* pairs;
  // Each row has logits, for log probabilities of the prompt.
  bool scored;
};

// The layers whose pairs StepWork counts: those with full attention, except the last; if there are
// none, all except the last. At least one.
std::vector<int32_t> LayersWithPairs(const PlanLimits& limits);

// The work of a step, as far as it affects its time. Values can be added.
struct StepWork {
  enum Feature : uint8_t {
    kStep,          // always 1: the fixed cost of a step, above all reading the weights
    kRows,          // prompt rows, over all ranks
    kFullest,       // ranks times the fullest rank's prompt rows; kRows if spread evenly
    kDensePairs,    // causal (row, key) pairs of prompt rows
    kPatternPairs,  // those that patterns attend (RowAttention::pairs)
    kContentPairs,  // causal pairs of rows that choose by content
    kSampled,       // sampled rows
    kKeys,          // causal pairs of sampled rows
    kScored,        // prompt rows with logits (RowAttention::scored), over all ranks
  };
  static constexpr int kFeatures = kScored + 1;
  std::array<double, kFeatures> amount{};

  StepWork& operator+=(const StepWork& other);
};

// Work of prompt rows [begin, end), spread evenly over all ranks. Without kStep.
StepWork EvenWork(int32_t begin, int32_t end, const RowAttention& attention);
// The same if the pages are placed on a ring of `degree` by PlaceOnRing.
StepWork PromptWork(int32_t begin, int32_t end, const RowAttention& attention, int degree,
                    const PlanLimits& plan);
// Work of sampled rows [begin, end), without kStep.
StepWork SampledWork(int32_t begin, int32_t end);
// Work of a whole plan, with kStep. `attention`: [item]; empty: all are dense. Which rows are
// scored the items say.
StepWork WorkOf(const StepPlan& plan, std::span<const RowAttention> attention, int ranks);

// Predicts how long steps take: a weighted sum of the work's amounts with nonnegative weights,
// refitted while steps run by least squares of errors relative to the prediction, over roughly the
// last 50 steps. Weights about which these steps say nothing stay as they were.
//
// The first tenth of a prompt tells little of what its pairs take, which later take most of the
// time. So a dense pair is taken to cost `pairs_in_rows` rows until steps have shown otherwise.
// That is a guess by the model's shape (PairsInRows), off by some 30%. The more the times of steps
// vary, the longer it counts. Pairs of another AttentionClass are taken to cost twice as much as
// dense ones until a step has had some, and scores as much as sampled rows. Plain data.
class StepCostModel {
 public:
  // Has no guess.
  StepCostModel() = default;
  // `pairs_in_rows`: the time of a dense pair over that of a prompt row without its pairs, at least
  // 0. 0: unknown.
  explicit StepCostModel(double pairs_in_rows);

  // Predicted seconds; 0 before the first step.
  double Predict(const StepWork& work) const;
  // Learns that a step with this work took `seconds`. One with less than 1 of kStep is that part of
  // a step, and counts so much: the parts of a step must not make it forget what other steps took.
  void Learn(const StepWork& work, double seconds);

  int64_t steps() const { return steps_; }
  // Whether a step had pairs of this class.
  bool has_seen(AttentionClass kind) const {
    return memory_[StepWork::kDensePairs + static_cast<int>(kind)] > 0;
  }
  // Whether a step had scored rows.
  bool has_seen_scores() const { return memory_[StepWork::kScored] > 0; }
  // Mean of |predicted - taken| / taken over about the last 10 steps.
  double error() const { return error_; }
  // About 99% of recent steps took at most (1 + margin) times the prediction. 0.05 to 1.
  double margin() const { return margin_; }

 private:
  static constexpr int kFeatures = StepWork::kFeatures;
  using Row = std::array<double, kFeatures>;

  static Row Scaled(const StepWork& work);
  void Solve();
  // Adds the guess of what a pair takes to one turn of Solve for pairs.
  void AddGuess(double before, double& weight, double& rest) const;

  Row seconds_{};  // weights, per scaled unit
  std::array<Row, kFeatures> squares_{};
  Row products_{};
  Row memory_{};              // how well each weight has been determined
  double pairs_in_rows_ = 0;  // between scaled units
  double pairs_seen_ = 0;     // what squares_ of pairs would be if nothing were forgotten
  double noise_ = 0.1;        // error_ of steps with prompt rows
  int64_t steps_ = 0;
  double error_ = 0;
  double margin_ = 0.25;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SCHEDULER_STEP_COST_H_
