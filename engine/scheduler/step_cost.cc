#include "engine/scheduler/step_cost.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "engine/scheduler/cost_model.h"

namespace annulus {
namespace {

// One unit of each takes about as long as one of the others, so that none is lost by rounding.
constexpr std::array<double, StepWork::kFeatures> kUnits = {1, 256, 256, 1e6, 1e6, 1e6, 1, 1e4, 32};

constexpr double kForget = 0.98;  // of what a step has taught, at each further one
constexpr double kForgetMemory = 0.999;
constexpr double kHold = 1e-3;  // how strongly what the last steps do not show stays
// The predicted time of a step counts as its scale, up to this multiple of the measured time.
constexpr double kSurprise = 2;
// But it counts as at least so much of the prediction: one step that took next to nothing must not
// outweigh all others. Otherwise it would make every later step too long.
constexpr double kLeastScale = 0.25;
// By how much the guess of what a pair takes is usually wrong. With this, a tenth of 128 Ki tokens
// foretells the rest within 20% if a pair really takes from half to twice as much (tests:
// StallBudget.AfterATenthTheRestIsForeseen).
constexpr double kGuessError = 0.3;
// What a pair of an attention class takes that no step had yet, in dense pairs. More than 1: lists
// and choices take time too, and a first chunk that is too small costs less than one that stalls
// every stream.
constexpr double kUnseenPairs = 2;
// The least that times of steps are taken to vary.
constexpr double kLeastNoise = 0.01;

}  // namespace

AttentionClass ClassOf(const AttentionAssignment* attention) {
  if (attention == nullptr || attention->dense()) return AttentionClass::kDense;
  const auto chooses = [](const AttentionPolicy& policy) {
    return ChoosesByContent(policy) || policy.coverage > 0;
  };
  bool content = chooses(attention->policy);
  for (const AttentionRule& rule : attention->rules) content = content || chooses(rule.policy);
  return content ? AttentionClass::kContent : AttentionClass::kPattern;
}

std::vector<int32_t> LayersWithPairs(const PlanLimits& limits) {
  std::vector<int32_t> layers;
  for (size_t layer = 0; layer < limits.layer_costs.size(); ++layer) {
    if (limits.layer_costs[layer].pair > 0) layers.push_back(static_cast<int32_t>(layer));
  }
  if (!layers.empty()) return layers;
  layers.resize(static_cast<size_t>(std::max(limits.layers - 1, 1)));
  std::iota(layers.begin(), layers.end(), 0);
  return layers;
}

StepWork& StepWork::operator+=(const StepWork& other) {
  for (int i = 0; i < kFeatures; ++i) amount[i] += other.amount[i];
  return *this;
}

StepWork EvenWork(int32_t begin, int32_t end, const RowAttention& attention) {
  StepWork work;
  if (end <= begin) return work;
  const double rows = end - begin;
  work.amount[StepWork::kRows] = rows;
  work.amount[StepWork::kFullest] = rows;
  const bool pattern = attention.kind == AttentionClass::kPattern && attention.pairs != nullptr;
  work.amount[StepWork::kDensePairs + static_cast<int>(attention.kind)] =
      pattern ? attention.pairs->Count(begin, end) : rows * (begin + (rows + 1) / 2);
  if (attention.scored) work.amount[StepWork::kScored] = rows;
  return work;
}

StepWork PromptWork(int32_t begin, int32_t end, const RowAttention& attention, int degree,
                    const PlanLimits& plan) {
  StepWork work = EvenWork(begin, end, attention);
  if (end <= begin) return work;
  const double share =
      StripedWork(end - begin, begin, degree, plan.page_tokens, plan.shards).row_share;
  work.amount[StepWork::kFullest] = std::max(1.0, share * plan.ranks) * (end - begin);
  return work;
}

StepWork SampledWork(int32_t begin, int32_t end) {
  StepWork work;
  const double rows = end - begin;
  work.amount[StepWork::kSampled] = rows;
  work.amount[StepWork::kKeys] = rows * (begin + (rows + 1) / 2);
  return work;
}

StepWork WorkOf(const StepPlan& plan, std::span<const RowAttention> attention, int ranks) {
  StepWork work;
  work.amount[StepWork::kStep] = 1;
  std::vector<double> rows(static_cast<size_t>(ranks), 0);
  for (size_t i = 0; i < plan.items.size(); ++i) {
    const PlanItem& item = plan.items[i];
    if (item.sampled) {
      work += SampledWork(item.begin, item.end);
      continue;
    }
    RowAttention rows_attend = attention.empty() ? AttentionClass::kDense : attention[i];
    rows_attend.scored = item.score.has_value();
    work += EvenWork(item.begin, item.end, rows_attend);
    for (const RowRun& run : item.runs) rows[run.rank] += run.count;
  }
  work.amount[StepWork::kFullest] = ranks * *std::max_element(rows.begin(), rows.end());
  return work;
}

StepCostModel::StepCostModel(double pairs_in_rows)
    : pairs_in_rows_(pairs_in_rows * kUnits[StepWork::kDensePairs] / kUnits[StepWork::kRows]) {}

StepCostModel::Row StepCostModel::Scaled(const StepWork& work) {
  Row row;
  for (int i = 0; i < kFeatures; ++i) row[i] = work.amount[i] / kUnits[i];
  return row;
}

double StepCostModel::Predict(const StepWork& work) const {
  const Row row = Scaled(work);
  double seconds = 0;
  for (int i = 0; i < kFeatures; ++i) seconds += seconds_[i] * row[i];
  return seconds;
}

void StepCostModel::Learn(const StepWork& work, double seconds) {
  seconds = std::max(seconds, 1e-6);
  const double part = std::min(work.amount[StepWork::kStep], 1.0);
  // Errors are relative to the prediction. Relative to what steps took, the quick ones of a busy
  // machine would count most, and what many take together would be foreseen too short.
  double scale = seconds;
  if (steps_ > 0) {
    const double predicted = Predict(work);
    scale = std::max(std::clamp(predicted, seconds / kSurprise, seconds * kSurprise),
                     predicted * kLeastScale);
    const double wrong = std::abs(predicted - seconds) / seconds;
    error_ += (std::min(wrong, 10.0) - error_) * (steps_ == 1 ? 1 : 0.1 * part);
    if (work.amount[StepWork::kRows] > 0) noise_ += 0.1 * part * (std::min(wrong, 1.0) - noise_);
    const bool over = seconds > predicted * (1 + margin_);
    margin_ = std::clamp(margin_ + 0.1 * (over ? 0.99 : -0.01), 0.05, 1.0);
  }
  ++steps_;
  const double forget = std::pow(kForget, part);
  const double forget_memory = std::pow(kForgetMemory, part);
  const Row row = Scaled(work);
  const double weight = part / (scale * scale);
  for (int i = 0; i < kFeatures; ++i) {
    for (int j = 0; j < kFeatures; ++j) {
      squares_[i][j] = squares_[i][j] * forget + row[i] * row[j] * weight;
    }
    products_[i] = products_[i] * forget + row[i] * seconds * weight;
    memory_[i] = std::max(memory_[i] * forget_memory, squares_[i][i]);
  }
  pairs_seen_ += row[StepWork::kDensePairs] * row[StepWork::kDensePairs] * weight;
  Solve();
}

// Least squares with a pull towards where each weight stood, by turns (Gauss-Seidel), none below 0.
void StepCostModel::Solve() {
  const Row before = seconds_;
  for (int turn = 0; turn < 100; ++turn) {
    for (int i = 0; i < kFeatures; ++i) {
      const double hold = kHold * memory_[i];
      double weight = squares_[i][i] + hold;
      double rest = products_[i] + hold * before[i];
      if (i == StepWork::kDensePairs) AddGuess(before[i], weight, rest);
      // Work that was not seen for long is as good as forgotten, but for the rounding of its rest.
      if (weight < 1e-200) continue;
      for (int j = 0; j < kFeatures; ++j) {
        if (j != i) rest -= squares_[i][j] * seconds_[j];
      }
      seconds_[i] = std::max(0.0, rest / weight);
    }
  }
  for (const AttentionClass kind : {AttentionClass::kPattern, AttentionClass::kContent}) {
    if (has_seen(kind)) continue;
    seconds_[StepWork::kDensePairs + static_cast<int>(kind)] =
        kUnseenPairs * seconds_[StepWork::kDensePairs];
  }
  if (!has_seen_scores()) {
    seconds_[StepWork::kScored] =
        seconds_[StepWork::kSampled] * kUnits[StepWork::kScored] / kUnits[StepWork::kSampled];
  }
}

// The guess pulls only at pairs: steps tell enough of rows. Where a step is off by noise_, it
// counts as (noise_ / kGuessError)^2 steps of pairs alone. Of that, as much is left as of all that
// steps have told of pairs; squared, or it would outweigh what is held of long ago.
void StepCostModel::AddGuess(double before, double& weight, double& rest) const {
  constexpr int kPairs = StepWork::kDensePairs;
  const double guess = pairs_in_rows_ * (seconds_[StepWork::kRows] + seconds_[StepWork::kFullest]);
  const double size = std::max(guess, before);
  if (guess < 1e-100) return;
  const double error = kGuessError / std::max(noise_, kLeastNoise) * size;
  const double told = 1 / (error * error);
  const double left = (squares_[kPairs][kPairs] + told) / (pairs_seen_ + told);
  const double pull = left * left * told;
  // Rows give way when pairs change, and the guess moves with them: by so much more than 1 in all.
  // Without this the turns could swing between two ends.
  const double rows = squares_[StepWork::kRows][StepWork::kRows];
  const double more = rows > 0 ? pairs_in_rows_ * squares_[StepWork::kRows][kPairs] / rows : 0;
  weight += pull * (1 + more);
  rest += pull * (guess + more * seconds_[kPairs]);
}

}  // namespace annulus
