// Steps within a budget of time, on a virtual clock.

#include "engine/scheduler/step_pacer.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace annulus {
namespace {

constexpr double kPairsInRows = 4e-5;

PlanLimits LimitsOf(int ranks = 1) {
  PlanLimits limits;
  limits.ranks = ranks;
  limits.page_tokens = 64;
  limits.prefill_rows_per_rank = 2048 / ranks;
  limits.group_windows = {0};
  return limits;
}

// What steps really take: few rows are slower each than many, and it is noisy. `pair`: what a dense
// pair takes, in rows.
class StepMachine {
 public:
  StepMachine(double row, uint32_t seed, double noise = 0.03, double pair = kPairsInRows)
      : row_(row), noise_(noise), pair_(pair), random_(seed) {}
  double Seconds(const StepWork& work) {
    const auto& a = work.amount;
    const double rows = a[StepWork::kRows];
    const double few = 0.03 * rows / (rows + 100);
    const double pairs = a[StepWork::kDensePairs] + 0.3 * a[StepWork::kPatternPairs] +
                         0.5 * a[StepWork::kContentPairs];
    const double seconds = 0.03 + few + row_ * rows + row_ * pair_ * pairs +
                           0.002 * a[StepWork::kSampled] + 2e-7 * a[StepWork::kKeys];
    return seconds * std::exp(std::normal_distribution<double>(0, noise_)(random_));
  }

 private:
  const double row_;
  const double noise_;
  const double pair_;
  std::mt19937 random_;
};

StepPlan PlanOf(const std::vector<PrefillTurn>& turns, const std::vector<PromptState>& prompts,
                const std::vector<StreamRows>& streams) {
  StepPlan plan;
  for (const StreamRows& stream : streams) {
    PlanItem& item = plan.items.emplace_back();
    item.begin = stream.position;
    item.end = stream.position + stream.rows;
    item.sampled = true;
    item.runs = {{0, stream.position, stream.rows}};
  }
  for (size_t i = 0; i < turns.size(); ++i) {
    PlanItem& item = plan.items.emplace_back();
    item.sequence = turns[i].sequence;
    item.begin = prompts[i].computed;
    item.end = turns[i].end;
    item.runs = {{0, item.begin, item.end - item.begin}};
  }
  return plan;
}

struct Reading {
  std::vector<double> steps;  // seconds
  double seconds = 0;
  double error = 0;
  double eta = 0;  // foreseen over real rest, once a tenth is done
};

// A prompt of `tokens` is read, alone or while a stream runs.
Reading Read(int32_t tokens, double row, double budget, uint32_t seed, bool stream,
             double pair = kPairsInRows) {
  PlanLimits limits = LimitsOf();
  limits.pairs_in_rows = kPairsInRows;
  StepMachine machine(row, seed, 0.03, pair);
  StepPacer pacer(budget, limits);
  std::vector<PromptState> prompts = {{.sequence = 1, .prompt_length = tokens}};
  PromptState& prompt = prompts[0];
  Reading reading;
  double tenth = 0;
  int32_t position = 100;
  while (prompt.computed < tokens) {
    const std::vector<StreamRows> streams(stream ? 1 : 0, StreamRows{.position = position});
    std::vector<PrefillTurn> turns = pacer.Next(prompts, streams, false).turns;
    EXPECT_EQ(turns.size(), 1u);
    EXPECT_GT(turns[0].end, prompt.computed);
    EXPECT_TRUE(turns[0].end % 64 == 0 || turns[0].end == tokens);
    // As the scheduler cuts it.
    turns[0].end = std::min(turns[0].end, prompt.computed + limits.prefill_rows_per_rank);
    const StepPlan plan = PlanOf(turns, prompts, streams);
    reading.steps.push_back(machine.Seconds(WorkOf(plan, {}, 1)));
    reading.seconds += reading.steps.back();
    pacer.Took(plan, {}, stream ? 1 : 0, reading.steps.back());
    prompt.computed = turns[0].end;
    ++position;
    if (tenth > 0 || prompt.computed < tokens / 10) continue;
    tenth = reading.seconds;  // and the rest is foreseen as by Serving::ShareWithSteps
    const double done = pacer.PromptSeconds(prompt, 0, prompt.computed) +
                        static_cast<double>(reading.steps.size()) * pacer.StepSeconds();
    const double left = pacer.PromptSeconds(prompt, prompt.computed, tokens) +
                        pacer.StepSecondsLeft(prompt, streams);
    reading.eta = tenth * left / done;
  }
  reading.error = pacer.costs().error();
  reading.eta /= reading.seconds - tenth;
  return reading;
}

double Percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

TEST(StallBudget, AStreamIsNotStalledByALongPrompt) {
  double wrong = 0;
  for (uint32_t seed = 1; seed <= 100; ++seed) {
    std::mt19937 random(seed);
    const double row = std::exp(std::uniform_real_distribution<double>(-9, -6.8)(random));
    const Reading alone = Read(32768, row, 0.25, seed, false);
    const Reading beside = Read(32768, row, 0.25, seed, true);
    EXPECT_LE(Percentile(beside.steps, 0.99), 0.25) << "seed " << seed << ", row " << row;
    EXPECT_LE(beside.steps.front(), 0.25) << "seed " << seed;
    EXPECT_LT(beside.seconds, alone.seconds / 0.6) << "seed " << seed << ", row " << row;
    EXPECT_LT(beside.error, 0.15) << "seed " << seed;
    EXPECT_NEAR(alone.eta, 1, 0.15) << "seed " << seed << ", row " << row;
    wrong += std::abs(alone.eta - 1) / 100;
  }
  EXPECT_LT(wrong, 0.05);
}

// Guesses come and go from step to step: prompts leave time for those of their own step.
TEST(StallBudget, RowsThatAreGuessedAheadHaveTheirTime) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    StepPacer pacer(0.25, LimitsOf());
    StepMachine machine(2e-4, seed);
    std::vector<PromptState> prompts = {{.sequence = 1, .prompt_length = 16'384}};
    std::vector<double> steps;
    while (prompts[0].computed < prompts[0].prompt_length) {
      const int32_t rows = steps.size() % 2 == 0 ? 1 : kMostSampledRows;
      const std::vector<StreamRows> streams(4, StreamRows{.position = 500, .rows = rows});
      const auto turns = pacer.Next(prompts, streams, false).turns;
      ASSERT_EQ(turns.size(), 1u);
      const StepPlan plan = PlanOf(turns, prompts, streams);
      steps.push_back(machine.Seconds(WorkOf(plan, {}, 1)));
      pacer.Took(plan, {}, 4, steps.back());
      prompts[0].computed = turns[0].end;
    }
    EXPECT_LE(Percentile(steps, 0.99), 0.25) << "seed " << seed;
    EXPECT_GE(Percentile(steps, 0.5), 0.15) << "seed " << seed << ": time is left over";
  }
}

// On a fresh daemon, though pairs do not take what the model's shape makes expect: of a long prompt
// from half to twice as much. The first tenth of a shorter one has hardly any.
TEST(StallBudget, AfterATenthTheRestIsForeseen) {
  struct Case {
    int32_t tokens;
    double most;  // times that pairs take more or less than expected
  };
  for (const auto& [tokens, most] : {Case{131'072, 2}, Case{32'768, std::sqrt(2)}}) {
    double wrong = 0;
    for (uint32_t seed = 1; seed <= 40; ++seed) {
      std::mt19937 random(seed);
      const double row = std::exp(std::uniform_real_distribution<double>(-9, -6.8)(random));
      const double power = std::uniform_real_distribution<double>(-1, 1)(random);
      const double pair = std::pow(most, power) * kPairsInRows;
      const Reading alone = Read(tokens, row, 0.25, seed, false, pair);
      EXPECT_NEAR(alone.eta, 1, 0.2) << tokens << " tokens, seed " << seed;
      wrong += std::abs(alone.eta - 1) / 40;
    }
    EXPECT_LT(wrong, 0.1) << tokens << " tokens";
  }
}

// The client of a prompt hears of it after every step: twice a second, however long streams would
// be allowed to wait ("no event for 38 s").
TEST(StallBudget, PromptsAreToldOfTwiceASecondWhateverTheBudget) {
  for (const double budget : {0.05, 0.25, 5.0}) {
    for (uint32_t seed = 1; seed <= 20; ++seed) {
      for (const bool stream : {false, true}) {
        std::mt19937 random(seed);
        const double row = std::exp(std::uniform_real_distribution<double>(-9, -6.8)(random));
        const Reading reading = Read(32768, row, budget, seed, stream);
        const auto steps = static_cast<double>(reading.steps.size());
        const std::string where = "budget " + std::to_string(budget) + ", seed " +
                                  std::to_string(seed) + (stream ? ", beside a stream" : "");
        EXPECT_LE(reading.seconds / steps, 0.5) << where;
        EXPECT_LE(Percentile(reading.steps, 0.99), 0.65) << where;
      }
    }
  }
}

// What SecondsBeside foresees over what a prompt then takes, once an earlier prompt was read.
double Foreseen(int32_t cached, int32_t tokens, double row, int streams, uint32_t seed,
                double noise = 0.03) {
  StepMachine machine(row, seed, noise);
  StepPacer pacer(0.25, LimitsOf());
  const std::vector<StreamRows> positions(static_cast<size_t>(streams),
                                          StreamRows{.position = 500});
  const auto read = [&](PromptState prompt) {
    double seconds = 0;
    while (prompt.computed < prompt.prompt_length) {
      std::vector<PromptState> prompts = {prompt};
      auto turns = pacer.Next(prompts, positions, false).turns;
      turns[0].end = std::min(turns[0].end, prompt.computed + 2048);  // as the scheduler cuts it
      const StepPlan plan = PlanOf(turns, prompts, positions);
      const double step = machine.Seconds(WorkOf(plan, {}, 1));
      pacer.Took(plan, {}, streams, step);
      prompt.computed = turns[0].end;
      seconds += step;
    }
    return seconds;
  };
  EXPECT_EQ(pacer.SecondsBeside({.prompt_length = tokens}, positions), 0);
  read({.sequence = 1, .prompt_length = 20'000});
  const PromptState prompt{.sequence = 2, .computed = cached, .prompt_length = tokens};
  const double foreseen = pacer.SecondsBeside(prompt, positions);
  return foreseen / read(prompt);
}

TEST(StallBudget, TheTimeToTheFirstTokenIsForeseen) {
  struct Case {
    int32_t cached;
    int32_t tokens;
    int streams;
  };
  for (const Case& one :
       {Case{0, 300, 0}, Case{0, 5000, 0}, Case{0, 40'000, 0}, Case{19'968, 20'010, 0},
        Case{10'048, 30'000, 0}, Case{0, 5000, 3}, Case{0, 40'000, 3}, Case{19'968, 20'010, 8}}) {
    for (uint32_t seed = 1; seed <= 20; ++seed) {
      std::mt19937 random(seed);
      const double row = std::exp(std::uniform_real_distribution<double>(-9, -6.8)(random));
      const double ratio = Foreseen(one.cached, one.tokens, row, one.streams, seed);
      EXPECT_GT(ratio, 0.75) << one.cached << " " << one.tokens << " " << one.streams << " " << row;
      EXPECT_LT(ratio, 1.25) << one.cached << " " << one.tokens << " " << one.streams << " " << row;
    }
  }
}

// Steps beside other programs take now this long, now that: what they take on the whole is
// foreseen, not what the quickest took.
TEST(StallBudget, OnABusyMachineTheTimeIsNotForeseenTooShort) {
  constexpr int kSeeds = 200;
  double sum = 0;
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    sum += Foreseen(0, 40'000, 1e-3, 0, seed, /*noise=*/0.4);
  }
  EXPECT_NEAR(sum / kSeeds, 1, 0.1);
}

TEST(StallBudget, ChunksGrowToTheLargestWithNothingElseRunning) {
  StepPacer pacer(0.25, LimitsOf());
  StepMachine machine(1e-5, 3);
  std::vector<PromptState> prompts = {{.sequence = 1, .prompt_length = 100'000}};
  int32_t chunk = 0;
  while (prompts[0].computed < 60'000) {
    const auto turns = pacer.Next(prompts, {}, false).turns;
    const StepPlan plan = PlanOf(turns, prompts, {});
    pacer.Took(plan, {}, 0, machine.Seconds(WorkOf(plan, {}, 1)));
    chunk = turns[0].end - prompts[0].computed;
    prompts[0].computed = turns[0].end;
  }
  EXPECT_GE(chunk, 2048);
}

TEST(StallBudget, WithoutABudgetThePlansLimitAloneCounts) {
  const StepPacer pacer(0, LimitsOf());
  const std::vector<PromptState> prompts = {{.sequence = 1, .prompt_length = 100'000},
                                            {.sequence = 2, .computed = 64, .prompt_length = 70}};
  const std::vector<StreamRows> streams = {{.position = 7}};
  const auto turns = pacer.Next(prompts, streams, false).turns;
  ASSERT_EQ(turns.size(), 2u);
  EXPECT_EQ(turns[0].end, 100'000);
  EXPECT_EQ(turns[1].end, 70);
}

// Where not even one page fits, the prompt goes on all the same, and the figure says so.
TEST(StallBudget, ABudgetThatCannotBeKeptIsSaid) {
  StepPacer pacer(0.05, LimitsOf());
  StepMachine machine(0.01, 5);
  std::vector<PromptState> prompts = {{.sequence = 1, .prompt_length = 1000}};
  while (prompts[0].computed < 1000) {
    const std::vector<StreamRows> streams = {{.position = 50}};
    const auto turns = pacer.Next(prompts, streams, false).turns;
    ASSERT_EQ(turns.size(), 1u);
    EXPECT_LE(turns[0].end - prompts[0].computed, 64);
    const StepPlan plan = PlanOf(turns, prompts, streams);
    pacer.Took(plan, {}, 1, machine.Seconds(WorkOf(plan, {}, 1)));
    prompts[0].computed = turns[0].end;
  }
  EXPECT_NEAR(pacer.smallest_chunk_seconds(), 0.69, 0.15);
}

TEST(SolveQuantum, FillsTheTimeInOrderAndEndsOnRoundsOfTheRing) {
  StepCostModel costs;
  for (int i = 1; i <= 60; ++i) {
    StepWork work = EvenWork(0, 64 * (i % 20 + 1), AttentionClass::kDense);
    work.amount[StepWork::kStep] = 1;
    costs.Learn(work, 0.01 + 1e-3 * work.amount[StepWork::kRows]);
  }
  EXPECT_LT(costs.error(), 0.02);
  StepWork rest;
  rest.amount[StepWork::kStep] = 1;
  const std::vector<PromptState> prompts = {
      {.sequence = 1, .computed = 64, .prompt_length = 300},
      {.sequence = 2, .computed = 0, .prompt_length = 5000, .degree = 1},
      {.sequence = 3, .computed = 0, .prompt_length = 5000}};
  const auto turns = SolveQuantum(prompts, rest, costs, {.seconds = 0.5}, LimitsOf());
  ASSERT_EQ(turns.size(), 2u);
  EXPECT_EQ(turns[0].end, 300);
  EXPECT_NEAR(turns[1].end, 490 - 236, 70);
  EXPECT_EQ(turns[1].end % 64, 0);
  // Two rounds of four ranks fit.
  const std::vector<PromptState> ring = {
      {.sequence = 1, .computed = 256, .prompt_length = 5000, .degree = 4}};
  EXPECT_EQ(SolveQuantum(ring, rest, costs, {.most_rows = 700}, LimitsOf(4))[0].end, 768);
  EXPECT_EQ(SolveQuantum(ring, rest, costs, {.most_rows = 200}, LimitsOf(4))[0].end, 448);
}

// Rings that do not divide the virtual shards too: what is foreseen is where pages really lie.
TEST(SolveQuantum, ForeseesTheFullestRankOfEveryRing) {
  std::mt19937 random(7);
  for (int degree = 1; degree <= 8; ++degree) {
    PlanLimits limits = LimitsOf(8);
    limits.shards = ShardsFor(8);
    for (int round = 0; round < 50; ++round) {
      const auto begin = static_cast<int32_t>(random() % 4000);
      const auto end = begin + 1 + static_cast<int32_t>(random() % 2000);
      std::vector<int> rows(degree, 0);
      for (int32_t position = begin; position < end; ++position) {
        ++rows[PlaceOnRing(position, 64, degree, limits.shards)];
      }
      const StepWork work = PromptWork(begin, end, AttentionClass::kDense, degree, limits);
      EXPECT_NEAR(work.amount[StepWork::kFullest],
                  8.0 * *std::max_element(rows.begin(), rows.end()), 1e-6)
          << begin << " to " << end << " over " << degree;
    }
    // In whole rounds every rank has the share that its shards are.
    const int32_t round = RoundTokens(degree, limits);
    std::vector<int> pages(degree, 0);
    for (int32_t first = 0; first < round; first += 64) {
      ++pages[PlaceOnRing(first, 64, degree, limits.shards)];
    }
    EXPECT_EQ(*std::max_element(pages.begin(), pages.end()) * 8,
              MostLeaves(degree, 8) * round / 64);
    const std::vector<PromptState> ring = {
        {.sequence = 1, .computed = 0, .prompt_length = 50'000, .degree = degree}};
    const auto turns = SolveQuantum(ring, {}, {}, {.most_rows = 1700}, limits);
    EXPECT_EQ(turns[0].end % round, 0) << degree;
  }
}

TEST(StepCostModel, LearnsEachKindOfWorkAndFollowsAChange) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    StepCostModel costs;
    StepMachine slow(4e-4, seed);
    StepMachine fast(2e-4, seed);
    const auto draw = [&] {
      StepWork work;
      const auto begin = static_cast<int32_t>(random() % 30'000);
      const auto kind = static_cast<AttentionClass>(random() % 3);
      if (random() % 3 > 0) {
        work += EvenWork(begin, begin + 64 * (1 + static_cast<int32_t>(random() % 16)), kind);
      }
      for (size_t i = random() % 8; i > 0; --i) {
        const auto position = static_cast<int32_t>(random() % 30'000);
        work += SampledWork(position, position + 1);
      }
      work.amount[StepWork::kStep] = 1;
      return work;
    };
    for (StepMachine* const machine : {&slow, &fast}) {
      for (int i = 0; i < 200; ++i) {
        const StepWork work = draw();
        costs.Learn(work, machine->Seconds(work));
      }
      EXPECT_LT(costs.error(), 0.2) << "seed " << seed;
      for (int i = 0; i < 20; ++i) {
        const StepWork work = draw();
        const double real = machine->Seconds(work);
        EXPECT_LT(std::abs(costs.Predict(work) - real), 0.5 * real) << "seed " << seed;
      }
    }
  }
}

// What steps show counts more than the guess, and stays when later steps show nothing of pairs, nor
// does the guess come back when short prompts follow that hardly have any.
TEST(StepCostModel, TheGuessGivesWayToEvidence) {
  for (const double times : {0.25, 4.0}) {
    for (uint32_t seed = 1; seed <= 5; ++seed) {
      constexpr double kRow = 4e-4;
      std::mt19937 random(seed);
      StepCostModel costs(kPairsInRows);
      StepMachine machine(kRow, seed, /*noise=*/1e-6, times * kPairsInRows);
      StepWork pairs;
      pairs.amount[StepWork::kDensePairs] = 1e8;
      const double real = kRow * times * kPairsInRows * 1e8;
      for (int step = 1; step <= 2000; ++step) {
        const auto begin = static_cast<int32_t>(random() % 30'000);
        StepWork work = step <= 150   ? EvenWork(begin, begin + 1024, AttentionClass::kDense)
                        : step < 1950 ? SampledWork(begin, begin + 1)
                                      : EvenWork(0, 64, AttentionClass::kDense);
        work.amount[StepWork::kStep] = 1;
        costs.Learn(work, machine.Seconds(work));
        if (step < 150) continue;
        ASSERT_NEAR(costs.Predict(pairs) / real, 1, 0.05) << "seed " << seed << ", step " << step;
      }
    }
  }
}

// However many there are: they have hardly any pairs, and say as little of what these take.
TEST(StepCostModel, ShortPromptsDoNotEndTheGuess) {
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    constexpr double kRow = 1.6e-3;
    StepCostModel costs(kPairsInRows);
    StepMachine machine(kRow, seed, /*noise=*/0.3);
    for (int prompt = 0; prompt < 300; ++prompt) {
      for (int32_t position = 199; position < 400; ++position) {
        StepWork work = position == 199 ? EvenWork(0, 200, AttentionClass::kDense)
                                        : SampledWork(position, position + 1);
        work.amount[StepWork::kStep] = 1;
        costs.Learn(work, machine.Seconds(work));
      }
    }
    StepWork pairs;
    pairs.amount[StepWork::kDensePairs] = 1e8;
    const double times = costs.Predict(pairs) / (kRow * kPairsInRows * 1e8);
    EXPECT_GT(times, 0.5) << "seed " << seed;
    EXPECT_LT(times, 2) << "seed " << seed;
  }
}

// Steps at depth hardly tell pairs from rows. What rows take stays as it was before, however wrong
// the guess of pairs is.
TEST(StepCostModel, AWrongGuessOfPairsDoesNotMoveWhatRowsTake) {
  for (const double times : {0.5, 2.0}) {
    double wrong = 0;
    for (uint32_t seed = 1; seed <= 20; ++seed) {
      constexpr double kRow = 1e-3;
      StepCostModel costs(kPairsInRows);
      StepMachine machine(kRow, seed, /*noise=*/0.2, times * kPairsInRows);
      for (int32_t begin = 0; begin < 131'072; begin += 512) {
        StepWork work = EvenWork(begin, begin + 512, AttentionClass::kDense);
        work.amount[StepWork::kStep] = 1;
        costs.Learn(work, machine.Seconds(work));
      }
      const StepWork rows = EvenWork(0, 512, AttentionClass::kDense);
      StepMachine steady(kRow, seed, /*noise=*/0, times * kPairsInRows);
      StepWork step = rows;
      step.amount[StepWork::kStep] = 1;
      wrong += (costs.Predict(step) / steady.Seconds(step) - 1) / 20;
    }
    EXPECT_NEAR(wrong, 0, 0.1) << times;
  }
}

// With no steps to tell, a pair takes its share of a row.
TEST(StepCostModel, APairIsGuessedUntilStepsShowIt) {
  StepCostModel costs(kPairsInRows);
  for (int step = 0; step < 20; ++step) {
    StepWork work = EvenWork(0, 64 * (1 + step % 4), AttentionClass::kDense);
    work.amount[StepWork::kDensePairs] = 0;
    work.amount[StepWork::kStep] = 1;
    costs.Learn(work, 0.01 + 1e-3 * work.amount[StepWork::kRows]);
  }
  StepWork pairs;
  pairs.amount[StepWork::kDensePairs] = 1e6;
  EXPECT_NEAR(costs.Predict(pairs), 1e6 * kPairsInRows * 1e-3, 1e-3);
}

}  // namespace
}  // namespace annulus
