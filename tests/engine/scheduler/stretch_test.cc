// Chunks suspended between layers, on a virtual clock: models of which not even a page of a prompt
// fits into the stall budget.

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/sanitizers.h"
#include "tests/engine/scheduler/suspending_machine.h"
#include "tests/support/thinned.h"

namespace annulus {
namespace {

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

// The head, which is not cut, takes longer for a row than all layers.
TEST(Stretches, PromptsWithScoresStallNobodyEither) {
  SlowModel model{.layers = 25, .step = 0.03, .row = 3e-3, .score = 1.5e-3};
  PlanLimits limits = SlowLimits(model.layers);
  for (int layer = 0; layer < model.layers; ++layer) {
    limits.layer_costs.push_back({layer + 1 < model.layers ? 1.0 : 0.01, 1.0});
  }
  for (uint32_t seed = 1; seed <= (kSanitized ? 5 : 20); ++seed) {
    SuspendingMachine machine(model, seed, 2, limits);
    machine.Run({{0, 4000, true}});
    ASSERT_GT(machine.gaps().size(), 20u);
    EXPECT_LE(*std::max_element(machine.gaps().begin(), machine.gaps().end()), 1.1 * kSlowBudget)
        << "seed " << seed;
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

// Nor does a page of another prompt, for which a step of small chunks has room left, keep it from
// large ones.
TEST(Stretches, TwoLongPromptsAloneAreReadInLargeChunksToo) {
  const SlowModel model{.layers = 24, .step = 0.03, .row = 1.6e-3, .pair = 1.9e-7};
  SuspendingMachine machine(model, 3, 0, SlowLimits(model.layers));
  machine.Run({{0, 32'000}});
  for (int32_t computed = 0; computed < 24'000; computed += 8 * kSlowPage) {
    const std::vector<PromptState> prompts = {
        {.sequence = 1, .computed = computed, .prompt_length = 30'000},
        {.sequence = 2, .computed = 0, .prompt_length = 31'000}};
    EXPECT_TRUE(machine.pacer().Next(prompts, {}, false).stretch.has_value()) << computed;
  }
}

// What operators allow above half a second counts where the streams alone need that.
TEST(Stretches, ALargeBudgetIsUsedBesideSlowStreams) {
  StepPacer pacer(5, SlowLimits(32));
  constexpr double kRow = 4e-3;
  constexpr double kStreams = 0.6;
  for (int step = 0; step < 40; ++step) {
    StepPlan plan;
    PlanItem& stream = plan.items.emplace_back();
    stream.sampled = true;
    stream.begin = 500 + step;
    stream.end = stream.begin + 1;
    stream.runs = {{0, stream.begin, 1}};
    const int rows = step % 2 == 0 ? 0 : kSlowPage;
    if (rows > 0) {
      PlanItem& chunk = plan.items.emplace_back();
      chunk.sequence = 1;
      chunk.end = rows;
      chunk.runs = {{0, 0, rows}};
    }
    pacer.Took(plan, {}, 1, kStreams + kRow * rows);
  }
  const std::vector<PromptState> prompts = {{.sequence = 1, .prompt_length = 3000}};
  const StepChoice choice = pacer.Next(prompts, std::vector<StreamRows>{{.position = 600}}, false);
  EXPECT_FALSE(choice.stretch.has_value());
  ASSERT_FALSE(choice.turns.empty());
  EXPECT_GE(choice.turns[0].end, kSlowPage);
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
