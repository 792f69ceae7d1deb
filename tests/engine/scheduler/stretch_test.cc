// Chunks suspended between layers, on a virtual clock: models of which not even a page of a prompt
// fits into the stall budget.

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/scheduler/quantum.h"
#include "gtest/gtest.h"
#include "kernels/base/sanitizers.h"
#include "tests/support/thinned.h"

namespace annulus {
namespace {

constexpr double kSlowBudget = 0.25;
constexpr int kSlowPage = 64;
constexpr double kStreamsAlone = 1;

PlanLimits SlowLimits(int layers, int suspended_rows = SuspendedRows(kSlowPage)) {
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
};

// A prompt that comes at some time.
struct Arrival {
  double at = 0;
  int32_t tokens = 0;
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
    const double taken = slower * Seconds(plan, share, pair_share);
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

SlowModel RandomModel(uint32_t seed) {
  std::mt19937 random(seed);
  const auto between = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  SlowModel model;
  model.layers = 12 + static_cast<int>(random() % 60);
  model.step = between(0.005, 0.04);
  model.row = between(1.5, 8) * kSlowBudget / kSlowPage;
  return model;
}

void ExpectNoLongGap(const SuspendingMachine& machine, const std::string& where) {
  const std::vector<double>& gaps = machine.gaps();
  ASSERT_GT(gaps.size(), 20u) << where;
  EXPECT_LE(*std::max_element(gaps.begin(), gaps.end()), kSlowBudget + machine.longest_layer())
      << where;
}

TEST(Stretches, AStreamIsNotStalledThoughNoPageFits) {
  for (const uint32_t seed : testing::ThinnedIfSanitized(testing::SeedsFrom(1, 200), 50)) {
    const SlowModel model = RandomModel(seed);
    const std::string where = "seed " + std::to_string(seed);
    SuspendingMachine alone(model, seed, 0, SlowLimits(model.layers));
    alone.Run({{0, 3000}});
    SuspendingMachine beside(model, seed, 2, SlowLimits(model.layers));
    beside.Run({{0, 3000}});
    EXPECT_GT(beside.stretches(), 0) << where;
    ExpectNoLongGap(beside, where);
    EXPECT_LT(beside.taken(), alone.taken() / 0.6) << where;
    // Whole steps of a page each would take no less: chunks lose nothing by being cut.
    SuspendingMachine whole(model, seed, 0, SlowLimits(model.layers, 0));
    whole.Run({{0, 3000}});
    EXPECT_LT(alone.taken(), 1.05 * whole.taken()) << where;
  }
}

// The chunk began when there was nobody to wait for it, and is as large as that allows.
TEST(Stretches, AStreamThatComesDuringALonePromptsChunkIsNotStalled) {
  for (const int layers : {4, 12, 28}) {
    for (const double step : {0.03, 0.1}) {
      const SlowModel model{.layers = layers, .step = step, .row = 5e-3};
      for (uint32_t seed = 1; seed <= 20; ++seed) {
        SuspendingMachine machine(model, seed, 0, SlowLimits(layers));
        machine.AddStreamsLater(2.0 + 0.1 * seed, 1);
        machine.Run({{0, 6000}});
        ASSERT_GT(machine.gaps().size(), 20u);
        EXPECT_LE(*std::max_element(machine.gaps().begin(), machine.gaps().end()),
                  1.1 * kSlowBudget)
            << layers << " layers, step " << step << ", seed " << seed;
      }
    }
  }
}

// Of two layers only one takes time: it is the least that a stretch can have.
TEST(Stretches, ModelsOfFewLayersStallNobodyEither) {
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    SlowModel model = RandomModel(seed);
    model.layers = 2 + static_cast<int>(seed % 7);
    model.row /= 4;  // of some a page nearly fits
    SuspendingMachine machine(model, seed, 2, SlowLimits(model.layers));
    machine.Run({{0, 3000}});
    ExpectNoLongGap(machine, "seed " + std::to_string(seed));
  }
}

// Layers with full attention take far longer at depth than those with windows.
TEST(Stretches, LayersThatAreNotAlikeStallNobodyEither) {
  SlowModel model{.layers = 25, .step = 0.03, .row = 1.6e-3, .pair = 3e-7};
  model.full_every = 6;
  PlanLimits limits = SlowLimits(model.layers);
  for (int layer = 0; layer < model.layers; ++layer) {
    limits.layer_costs.push_back({layer + 1 < model.layers ? 1.0 : 0, layer % 6 == 5 ? 1.0 : 0});
  }
  for (uint32_t seed = 1; seed <= (kSanitized ? 5 : 20); ++seed) {
    SuspendingMachine machine(model, seed, 2, limits);
    machine.Run({{0, 32'000}});
    ASSERT_GT(machine.gaps().size(), 20u);
    EXPECT_LE(*std::max_element(machine.gaps().begin(), machine.gaps().end()), 1.1 * kSlowBudget)
        << "seed " << seed;
    EXPECT_LT(machine.pacer().costs().margin(), 0.5) << "seed " << seed;
  }
}

// The streams' own prompts had no row that tells what a page takes.
TEST(Stretches, TheFirstPageOfAllStallsNobodyEither) {
  for (const uint32_t seed : testing::ThinnedIfSanitized(testing::SeedsFrom(1, 100), 25)) {
    const SlowModel model = RandomModel(seed);
    SuspendingMachine machine(model, seed, 2, SlowLimits(model.layers), /*own_prompt=*/1);
    machine.Run({{0, 1000}});
    ExpectNoLongGap(machine, "seed " + std::to_string(seed));
  }
}

TEST(Stretches, WhoComesMeanwhileDoesNotWaitForTheChunk) {
  for (const uint32_t seed : testing::ThinnedIfSanitized(testing::SeedsFrom(1, 100), 25)) {
    SlowModel model = RandomModel(seed);
    model.step = 0.01;
    const int32_t tokens = static_cast<int32_t>(0.3 * kSlowBudget / model.row);
    for (const int streams : {0, 2}) {
      SuspendingMachine machine(model, seed, streams, SlowLimits(model.layers));
      machine.Run({{0, 3000}, {5.01, tokens}});
      // The stretch that runs, a step of the streams, and its own. A chunk beside streams has eight
      // of those; alone, it takes two seconds, and its stretches are shorter.
      const double most = streams > 0 ? 3 * kSlowBudget : 0.4;
      EXPECT_LT(machine.Done(1), 5.01 + most) << "seed " << seed;
      if (streams > 0) ExpectNoLongGap(machine, "seed " + std::to_string(seed));
    }
  }
}

// Virtual machines share cores: their speed halves and comes back, and at some depth pages begin or
// cease to fit. Short requests still come through a prompt of 32,000 tokens within three
// seconds, six at half the speed.
TEST(Stretches, ShortRequestsComeThroughWhateverTheSpeed) {
  // 0.7 GFLOP a row, 86 KFLOP a pair, 450 GFLOP/s.
  SlowModel model{.layers = 24, .step = 0.03, .row = 1.6e-3, .pair = 1.9e-7};
  std::vector<Arrival> arrivals = {{0, 32'000}};
  for (int i = 0; i < 30; ++i) arrivals.push_back({5.0 + 5 * i, 200});
  for (uint32_t seed = 1; seed <= (kSanitized ? 4 : 20); ++seed) {
    model.steady = seed % 4 == 0 ? 0 : 20;
    for (const int streams : {0, 1}) {
      SuspendingMachine machine(model, seed, streams, SlowLimits(model.layers));
      machine.Run(arrivals);
      const std::string where =
          "seed " + std::to_string(seed) + ", " + std::to_string(streams) + " streams";
      EXPECT_LT(machine.longest_step(), 2.5) << where;
      const double most = model.steady > 0 ? 2 * 3 : 3;
      for (size_t i = 1; i < arrivals.size(); ++i) {
        EXPECT_LT(machine.Done(i) - arrivals[i].at, most) << where << ", request " << i;
      }
    }
  }
}

// Also where a neighbour of the machine halves its speed every second or so, and though pairs take
// more than the model's shape makes expect. Many short stretches at one depth must not make the
// model forget what other depths took, nor may a slow second outweigh what was expected.
TEST(Stretches, TheRestOfALonePromptIsForeseen) {
  SlowModel model{.layers = 24, .step = 0.03, .row = 1.6e-3, .pair = 1.9e-7};
  PlanLimits limits = SlowLimits(model.layers);
  limits.pairs_in_rows = 0.7 * model.pair / model.row;
  const auto seeds = testing::SeedsFrom(1, kSanitized ? 10 : 20);
  for (const double steady : {0.0, 1.0}) {
    model.steady = steady;
    double wrong = 0;
    for (const uint32_t seed : seeds) {
      SuspendingMachine machine(model, seed, 0, limits);
      machine.Run({{0, 32'000}});
      wrong += machine.most_wrong() / static_cast<double>(seeds.size());
    }
    EXPECT_LT(wrong, steady > 0 ? 0.4 : 0.05) << steady << " s of steady speed";
  }
}

// A prompt of some pages fits nowhere between: it waits for the chunk that is suspended, and then
// goes first.
TEST(Stretches, TwoPromptsThatDoNotFitTakeTurnsByTheirOrder) {
  for (const uint32_t seed : testing::ThinnedIfSanitized(testing::SeedsFrom(1, 100), 25)) {
    const SlowModel model = RandomModel(seed);
    for (const int streams : {0, 2}) {
      SuspendingMachine machine(model, seed, streams, SlowLimits(model.layers));
      machine.Run({{0, 3000}, {15, 150}});
      const double solo = 150 * model.row + 4 * model.step;
      const double chunk = (kMostStretches + 2) * 2 * kSlowBudget + 2 * kSlowPage * model.row;
      EXPECT_LT(machine.Done(1), 15 + chunk + 2 * solo) << "seed " << seed;
      EXPECT_LT(machine.Done(1), machine.Done(0)) << "seed " << seed;
      if (streams > 0) ExpectNoLongGap(machine, "seed " + std::to_string(seed));
    }
  }
}

// The budget cannot be kept, whatever prompts do: they still get a quarter of the time, in small
// chunks.
TEST(Stretches, StreamsThatTakeTheWholeBudgetLeavePromptsAShare) {
  SlowModel model;
  model.step = 0.3;
  SuspendingMachine alone(model, 7, 0, SlowLimits(model.layers));
  alone.Run({{0, 1000}});
  SuspendingMachine beside(model, 7, 8, SlowLimits(model.layers));
  beside.Run({{0, 1000}});
  EXPECT_LT(beside.taken(), alone.taken() / 0.15);
}

// Where a page fits, or takes no longer than the streams, weights are read once for both.
TEST(Stretches, BesideStreamsNothingIsSuspendedWhereAPageFits) {
  SlowModel model;
  for (const double page : {0.1, 0.02}) {
    model.row = page / kSlowPage;
    model.step = page < 0.1 ? 0.4 : 0.02;
    SuspendingMachine machine(model, 3, 2, SlowLimits(model.layers));
    const int before = machine.stretches();  // of the streams' own prompts
    machine.Run({{0, 3000}});
    EXPECT_EQ(machine.stretches(), before) << page;
  }
}

// A prompt that is read alone, where the weights take a tenth of the time of small chunks: it is
// heard of some times a second, and its chunks are large all the same.
TEST(Stretches, ALonePromptsChunksMayTakeLongerThanItIsSilent) {
  const SlowModel model{.layers = 24, .step = 0.03, .row = 1e-3, .pair = 1e-7};
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SuspendingMachine machine(model, seed, 0, SlowLimits(model.layers));
    machine.Run({{0, 32'000}});
    EXPECT_LE(machine.longest_step(), 0.2) << "seed " << seed;
    EXPECT_GT(machine.stretches(), 300) << "seed " << seed;
    SuspendingMachine whole(model, seed, 0, SlowLimits(model.layers, 0));
    whole.Run({{0, 32'000}});
    EXPECT_LE(whole.longest_step(), 0.5) << "seed " << seed;
    EXPECT_LT(machine.taken(), 0.96 * whole.taken()) << "seed " << seed;
  }
}

// It waits for the chunk that is suspended, and then has large ones of its own.
TEST(Stretches, AMorePressingLongPromptIsReadInLargeChunksToo) {
  const SlowModel model{.layers = 24, .step = 0.1, .row = 3e-3};
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SuspendingMachine alone(model, seed, 0, SlowLimits(model.layers));
    alone.Run({{0, 8000}});
    SuspendingMachine machine(model, seed, 0, SlowLimits(model.layers));
    machine.Run({{0, 32'000}, {5 + 0.1 * seed, 8000}});
    constexpr double kChunk = 2;
    EXPECT_LT(machine.Done(1) - 5 - 0.1 * seed, kChunk + 1.05 * alone.taken()) << "seed " << seed;
    EXPECT_LE(machine.longest_step(), 0.5) << "seed " << seed;
    // One of a second goes first: large chunks would not make up for the wait.
    SuspendingMachine middling(model, seed, 0, SlowLimits(model.layers));
    middling.Run({{0, 32'000}, {5 + 0.1 * seed, 300}});
    EXPECT_LT(middling.Done(1) - 5 - 0.1 * seed, 0.5 + 1.6) << "seed " << seed;
  }
}

// One layer of a page is the least that a step can have of a prompt. Three of the four take time.
TEST(Stretches, TheSmallestChunkIsALayerOfAPage) {
  SlowModel model;
  model.layers = 4;
  SuspendingMachine machine(model, 5, 1, SlowLimits(model.layers));
  machine.Run({{0, 1000}});
  EXPECT_NEAR(machine.pacer().smallest_chunk_seconds(), 1.03 / 3, 0.03);
  SuspendingMachine whole(model, 5, 1, SlowLimits(model.layers, 0));
  whole.Run({{0, 1000}});
  EXPECT_NEAR(whole.pacer().smallest_chunk_seconds(), 1.03, 0.1);
}

// A page lies on one rank, so of four, three wait for it.
TEST(Stretches, TheSmallestChunkKeepsOneRankBusy) {
  PlanLimits limits = SlowLimits(4, 0);
  limits.ranks = 4;
  limits.shards = ShardsFor(4);
  StepPacer pacer(kSlowBudget, limits);
  // 4 ms for each row of the fullest rank.
  for (int step = 1; step <= 200; ++step) {
    StepPlan plan;
    PlanItem& item = plan.items.emplace_back();
    item.begin = kSlowPage * step;
    item.end = item.begin + kSlowPage * (step % 4 + 1);
    int fullest = 0;
    for (int page = 0; page <= step % 4; ++page) {
      const int rank = step % 3 == 0 ? 0 : page;
      item.runs.push_back({rank, item.begin + page * kSlowPage, kSlowPage});
      fullest = std::max(fullest, rank == 0 ? step % 3 == 0 ? page + 1 : 1 : 1);
    }
    pacer.Took(plan, {}, 0, 0.01 + 0.004 * kSlowPage * fullest);
  }
  EXPECT_NEAR(pacer.smallest_chunk_seconds(), 0.01 + 0.004 * kSlowPage, 0.02);
}

TEST(Stretches, TheTimeToTheFirstTokenIsForeseen) {
  for (uint32_t seed = 1; seed <= 50; ++seed) {
    const SlowModel model = RandomModel(seed);
    for (const int streams : {0, 2}) {
      SuspendingMachine machine(model, seed, streams, SlowLimits(model.layers));
      machine.Run({{0, 2000}});
      const std::vector<StreamRows> positions(static_cast<size_t>(streams),
                                              StreamRows{.position = 600});
      const double foreseen =
          machine.pacer().SecondsBeside({.sequence = 2, .prompt_length = 2000}, positions);
      machine.Run({{0, 2000}});
      EXPECT_NEAR(foreseen / machine.taken(), 1, 0.25)
          << "seed " << seed << ", " << streams << " streams";
    }
  }
}

}  // namespace
}  // namespace annulus
