#ifndef ANNULUS_TESTS_ENGINE_SCHEDULER_SUSPENDING_MACHINE_H_
#define ANNULUS_TESTS_ENGINE_SCHEDULER_SUSPENDING_MACHINE_H_

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "engine/scheduler/step_pacer.h"
#include "gtest/gtest.h"

// A machine on a virtual clock that suspends chunks between layers, for tests of StepPacer.

namespace annulus {

inline constexpr double kSlowBudget = 0.25;
inline constexpr int kSlowPage = 64;
inline constexpr double kStreamsAlone = 1;

inline PlanLimits SlowLimits(int layers, int suspended_rows = SuspendedRows(kSlowPage)) {
  PlanLimits limits;
  limits.page_tokens = kSlowPage;
  limits.group_windows = {0};
  limits.layers = layers;
  limits.suspended_rows_per_rank = suspended_rows;
  return limits;
}

struct SlowModel {
  int layers = 32;
  double step = 0.03;      // what every step takes, above all reading the weights
  double row = 1.0 / 64;   // of a prompt
  double stream = 0.0005;  // of a row that is sampled
  double pair = 0;         // of a prompt's row and a key that it sees
  double steady = 0;       // seconds, on average, between changes of speed; 0: none
  int full_every = 1;      // layers of which one has full attention: the pairs are its own
  double score = 0;        // of a prompt's row that is scored, behind the last layer
};

// A prompt that comes at some time.
struct Arrival {
  double at = 0;
  int32_t tokens = 0;
  bool scored = false;
};

// What the engine does with a pacer, on a virtual clock: streams that never end, and prompts that
// are served in the order of what is left of them. The streams have run alone for a second before
// the first prompt comes.
class SuspendingMachine {
 public:
  SuspendingMachine(const SlowModel& model, uint32_t seed, int streams, const PlanLimits& limits,
                    int32_t own_prompt = 100)
      : model_(model), limits_(limits), pacer_(kSlowBudget, limits), random_(seed) {
    // The prompt of the streams, which nobody had to wait for.
    prompts_ = {{.sequence = 1000, .prompt_length = own_prompt}};
    while (!prompts_.empty()) Step();
    streams_.assign(static_cast<size_t>(streams), {.position = 500});
  }

  void Run(const std::vector<Arrival>& arrivals) {
    size_t next = 0;
    const double first = now_ + kStreamsAlone;
    if (streams_.empty()) now_ = first;
    first_ = first;
    foreseen_.clear();
    while (next < arrivals.size() || !prompts_.empty()) {
      for (; next < arrivals.size() && first + arrivals[next].at <= now_; ++next) {
        prompts_.push_back({.sequence = next + 1, .prompt_length = arrivals[next].tokens});
        prompts_.back().attention.scored = arrivals[next].scored;
      }
      std::stable_sort(prompts_.begin(), prompts_.end(),
                       [](const PromptState& a, const PromptState& b) {
                         return a.prompt_length - a.computed < b.prompt_length - b.computed;
                       });
      if (streams_.empty() && now_ >= first + later_) {
        streams_.assign(later_streams_, {.position = 500});
      }
      Step();
    }
  }

  // Streams that begin so long after the first prompt of the next Run.
  void AddStreamsLater(double after, int streams) {
    later_ = after;
    later_streams_ = static_cast<size_t>(streams);
  }

  // Of the last Run, since its first prompt could begin.
  double taken() const { return now_ - first_; }
  // What was foreseen of a prompt that was read alone, from its first tenth to its last: by how
  // much the time left was wrong at most, as a share of it.
  double most_wrong() const {
    double most = 0;
    int looks = 0;
    for (const auto& [at, left] : foreseen_) {
      if (at < 0.1 * taken() || at > 0.9 * taken()) continue;
      ++looks;
      most = std::max(most, std::abs(left / (taken() - at) - 1));
    }
    EXPECT_GT(looks, 20);
    return most;
  }
  // When the prompt of the arrival was computed.
  double Done(size_t arrival) const { return done_.at(arrival + 1) - first_; }
  const std::vector<double>& gaps() const { return gaps_; }
  double longest_layer() const { return longest_layer_; }
  double longest_step() const { return longest_step_; }
  int stretches() const { return stretches_; }
  const StepPacer& pacer() const { return pacer_; }

 private:
  void Step() {
    const StepChoice choice = pacer_.Next(prompts_, streams_, after_stretch_);
    StepPlan plan;
    double share = 1;
    double pair_share = 1;
    if (choice.stretch.has_value()) {
      PromptState& prompt = Find(choice.stretch->sequence);
      plan.stretch = {prompt.layers_done, choice.stretch->end_layer,
                      choice.stretch->end_layer == model_.layers};
      ASSERT_GT(choice.stretch->end_layer, prompt.layers_done);
      ASSERT_LE(choice.stretch->end_layer, model_.layers);
      ASSERT_LE(choice.stretch->end - prompt.computed, limits_.suspended_rows_per_rank);
      if (prompt.suspended_end > 0) {
        ASSERT_EQ(choice.stretch->end, prompt.suspended_end);
      }
      AddRows(prompt, choice.stretch->end, plan);
      share = ShareOf(prompt.layers_done, choice.stretch->end_layer);
      pair_share = PairShareOf(prompt.layers_done, choice.stretch->end_layer);
      ++stretches_;
    } else {
      AddStreams(plan);
      for (const PrefillTurn& turn : choice.turns) AddRows(Find(turn.sequence), turn.end, plan);
      ASSERT_FALSE(plan.items.empty()) << "nobody goes on";
    }
    const double slower = Slowness() * std::exp(std::normal_distribution<double>(0, 0.02)(random_));
    if (plan.stretch.has_value()) {
      longest_layer_ =
          std::max(longest_layer_, slower * Seconds(plan, ShareOf(0, 1), ShareOf(0, 1)));
    }
    double taken = slower * Seconds(plan, share, pair_share);
    if (EndsItsChunks(plan)) {
      taken += slower * model_.score * WorkOf(plan, {}, 1).amount[StepWork::kScored];
    }
    now_ += taken;
    longest_step_ = std::max(longest_step_, taken);
    pacer_.Took(plan, {}, plan.stretch.has_value() ? 0 : static_cast<int>(streams_.size()), taken);
    after_stretch_ = plan.stretch.has_value();
    if (!after_stretch_ && !streams_.empty()) {
      if (last_token_ > 0) gaps_.push_back(now_ - last_token_);
      last_token_ = now_;
    }
    Commit(choice);
  }

  void Commit(const StepChoice& choice) {
    if (choice.stretch.has_value()) {
      PromptState& prompt = Find(choice.stretch->sequence);
      prompt.suspended_end = choice.stretch->end;
      prompt.layers_done = choice.stretch->end_layer;
      if (prompt.layers_done == model_.layers) {
        prompt.computed = prompt.suspended_end;
        prompt.suspended_end = 0;
        prompt.layers_done = 0;
        Foresee(prompt);
      }
    }
    for (const PrefillTurn& turn : choice.turns) {
      EXPECT_EQ(Find(turn.sequence).suspended_end, 0);
      Find(turn.sequence).computed = turn.end;
    }
    std::erase_if(prompts_, [this](const PromptState& prompt) {
      if (prompt.computed < prompt.prompt_length) return false;
      done_[prompt.sequence] = now_;
      return true;
    });
  }

  // As Serving::ShareWithSteps and Request::ReportProgress do.
  void Foresee(const PromptState& prompt) {
    const double done = pacer_.PromptSeconds(prompt, 0, prompt.computed) +
                        static_cast<double>(foreseen_.size() + 1) * pacer_.StepSeconds();
    const double left = pacer_.PromptSeconds(prompt, prompt.computed, prompt.prompt_length) +
                        pacer_.StepSecondsLeft(prompt, {});
    foreseen_.emplace_back(now_ - first_, (now_ - first_) * left / done);
  }

  double Seconds(const StepPlan& plan, double share, double pair_share) const {
    const StepWork work = WorkOf(plan, {}, 1);
    return share * (model_.step + model_.row * work.amount[StepWork::kRows] +
                    model_.stream * work.amount[StepWork::kSampled]) +
           pair_share * model_.pair * work.amount[StepWork::kDensePairs];
  }

  // Of a whole step. The last layer computes keys and values only.
  double ShareOf(int first, int end) const {
    constexpr double kLastLayer = 0.01;
    const int last = model_.layers - 1;
    const double layers = std::min(end, last) - first;
    return (layers + (end > last ? kLastLayer : 0)) / (last + kLastLayer);
  }

  double PairShareOf(int first, int end) const {
    if (model_.full_every == 1) return ShareOf(first, end);
    const auto full = [&](int layers) { return 1.0 * (layers / model_.full_every); };
    const int last = model_.layers - 1;
    return (full(std::min(end, last)) - full(std::min(first, last))) / full(last);
  }

  // A neighbour of the virtual machine comes and goes.
  double Slowness() {
    while (model_.steady > 0 && now_ >= next_change_) {
      slow_ = !slow_;
      next_change_ += std::exponential_distribution<double>(1 / model_.steady)(random_);
    }
    return slow_ ? 2 : 1;
  }

  void AddStreams(StepPlan& plan) {
    for (StreamRows& stream : streams_) {
      PlanItem& item = plan.items.emplace_back();
      item.sampled = true;
      item.begin = stream.position++;
      item.end = stream.position;
      item.runs = {{0, item.begin, 1}};
    }
  }
  // The last row of a prompt is sampled.
  static void AddRows(const PromptState& prompt, int32_t end, StepPlan& plan) {
    const auto add = [&](int32_t begin, int32_t until, bool sampled) {
      if (begin == until) return;
      PlanItem& item = plan.items.emplace_back();
      item.sequence = prompt.sequence;
      item.begin = begin;
      item.end = until;
      item.sampled = sampled;
      item.runs = {{0, begin, until - begin}};
      if (!sampled && prompt.attention.scored) item.score.emplace();
    };
    const int32_t sampled = end == prompt.prompt_length ? end - 1 : end;
    add(prompt.computed, sampled, false);
    add(sampled, end, true);
  }
  PromptState& Find(SequenceId sequence) {
    return *std::find_if(prompts_.begin(), prompts_.end(),
                         [&](const PromptState& prompt) { return prompt.sequence == sequence; });
  }

  const SlowModel model_;
  const PlanLimits limits_;
  StepPacer pacer_;
  std::vector<StreamRows> streams_;
  std::mt19937 random_;
  std::vector<PromptState> prompts_;
  double now_ = 0;
  double first_ = 0;
  double last_token_ = 0;
  double later_ = 0;
  size_t later_streams_ = 0;
  bool after_stretch_ = false;
  std::vector<double> gaps_;
  double longest_layer_ = 0;
  double longest_step_ = 0;
  bool slow_ = false;
  double next_change_ = 0;
  int stretches_ = 0;
  std::vector<std::pair<double, double>> foreseen_;  // when, and how much time was left
  std::map<SequenceId, double> done_;
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_ENGINE_SCHEDULER_SUSPENDING_MACHINE_H_
