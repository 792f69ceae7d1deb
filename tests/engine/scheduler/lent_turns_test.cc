// Prompts that are read one after the other: what lending turns brings, and what it costs others.

#include "engine/scheduler/lent_turns.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "engine/scheduler/order.h"
#include "gtest/gtest.h"
#include "kernels/base/sanitizers.h"

namespace annulus {
namespace {

constexpr double kNoTime = std::numeric_limits<double>::infinity();
constexpr double kReadStep = 0.01;  // seconds of a step

struct ReadJob {
  double arrives = 0;
  double prompt = 1;  // seconds of work
  ShareName share = {};
  int priority = 0;
  int after = -1;   // a job; this one arrives when that one is done
  double done = 0;  // a time
};

enum class Rule { kTurns, kLentTurns };

// One machine that reads one prompt at a time, a quantum at a time. It is `slower` than predicted.
std::vector<ReadJob> Read(std::vector<ReadJob> jobs, Rule rule, double slower = 1) {
  std::vector<double> left;
  for (const ReadJob& job : jobs) left.push_back(job.prompt);
  FairShares shares;
  LentTurns lent;
  double now = 0;
  for (;;) {
    std::vector<Contender> contenders;
    std::vector<ShareName> contending;
    double next = kNoTime;  // arrival
    for (size_t i = 0; i < jobs.size(); ++i) {
      if (left[i] == 0) continue;
      if (jobs[i].after >= 0) jobs[i].arrives = jobs[jobs[i].after].done;
      if (jobs[i].after >= 0 && left[jobs[i].after] > 0) continue;
      if (jobs[i].arrives > now) {
        next = std::min(next, jobs[i].arrives);
        continue;
      }
      contending.push_back(jobs[i].share);
      contenders.push_back({.id = i,
                            .share = jobs[i].share,
                            .priority = jobs[i].priority,
                            .elapsed = now - jobs[i].arrives,
                            .remaining = left[i],
                            .total = jobs[i].prompt});
    }
    if (contenders.empty() && next == kNoTime) return jobs;
    lent.Keep([&](SequenceId id) { return left[id] > 0; });
    for (const ShareName& share : lent.Owing()) contending.push_back(share);
    shares.SetContending(contending);
    if (contenders.empty()) {
      now = next;
      continue;
    }
    const Contender& first = contenders[ServingOrder(contenders, shares).front()];
    const LentTurns::Turn turn =
        rule == Rule::kTurns ? LentTurns::Turn{first, first} : lent.Next(contenders, shares);
    const size_t i = turn.served.id;
    const double work = std::min(kReadStep, left[i]);
    left[i] = left[i] - work < 1e-9 ? 0 : left[i] - work;
    now += work * slower;
    if (left[i] == 0) jobs[i].done = now;
    lent.Charge(turn, work * slower);
    shares.Charge(
        std::vector<ShareUse>{{turn.lender.share, work * slower, true, turn.lender.priority}});
  }
}

// Mean of the first tokens' times over the last one.
double MeanOverLast(std::span<const ReadJob> jobs) {
  double sum = 0;
  double last = 0;
  for (const ReadJob& job : jobs) {
    sum += job.done;
    last = std::max(last, job.done);
  }
  return sum / static_cast<double>(jobs.size()) / last;
}

double SecondsOf(const ReadJob& job) { return job.done - job.arrives; }

TEST(LentTurns, EqualPromptsAreReadOneAfterTheOther) {
  for (const int count : {8, 32}) {
    for (const int tenants : {1, 8}) {
      std::vector<ReadJob> jobs;
      for (int i = 0; i < count; ++i) {
        const std::string tenant = "t" + std::to_string(i % tenants);
        jobs.push_back({.prompt = 0.5, .share = {tenant, "c", std::to_string(i)}});
      }
      EXPECT_GT(MeanOverLast(Read(jobs, Rule::kTurns)), 0.9);
      for (const double slower : {0.8, 1.0, 1.3}) {
        EXPECT_LT(MeanOverLast(Read(jobs, Rule::kLentTurns, slower)), 0.6)
            << count << " prompts of " << tenants << " tenants, " << slower << " times as slow";
      }
    }
  }
}

std::vector<ReadJob> RandomReadJobs(std::mt19937& random) {
  const auto uniform = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  const auto name = [&](uint32_t most) {
    return std::string(1, static_cast<char>('a' + random() % most));
  };
  const auto tenants = static_cast<uint32_t>(1 + random() % 4);
  const auto connections = static_cast<uint32_t>(1 + random() % 20);
  const int priorities = 1 + static_cast<int>(random() % 3);
  const double span = uniform(0, 30);
  const double lengths = random() % 3 == 0 ? 0.1 : 2;  // of their logarithms
  std::vector<ReadJob> jobs(2 + random() % 30);
  for (ReadJob& job : jobs) {
    job.arrives = uniform(0, span);
    job.prompt = 0.7 * std::exp(uniform(-lengths, lengths));
    job.share = {name(tenants), name(2), name(connections)};
    job.priority = static_cast<int>(random() % priorities);
  }
  return jobs;
}

TEST(LentTurns, NobodyTakesTwiceTheTimeOfTurnsAlone) {
  const uint32_t rounds = kSanitized ? 10 : 100;
  double sum = 0;
  double sum_of_turns = 0;
  for (uint32_t seed = 1; seed <= rounds; ++seed) {
    std::mt19937 random(seed);
    const std::vector<ReadJob> jobs = RandomReadJobs(random);
    const std::vector<ReadJob> turns = Read(jobs, Rule::kTurns);
    const std::vector<ReadJob> lent = Read(jobs, Rule::kLentTurns);
    for (size_t i = 0; i < jobs.size(); ++i) {
      sum += SecondsOf(lent[i]);
      sum_of_turns += SecondsOf(turns[i]);
      EXPECT_LE(SecondsOf(lent[i]), 2 * SecondsOf(turns[i]) + 4 * kReadStep)
          << "seed " << seed << ", prompt " << i << " of " << jobs[i].prompt << " s";
    }
  }
  EXPECT_LT(sum, 0.8 * sum_of_turns);
}

// Many long prompts of a tenant cost the short ones of another no more than by turns.
TEST(LentTurns, ShortPromptsDoNotWaitForTheLongOnesOfOthers) {
  std::mt19937 random(1);
  std::exponential_distribution<double> gap(0.4);
  std::vector<ReadJob> jobs;
  for (int i = 0; i < 30; ++i) {
    jobs.push_back({.prompt = 2, .share = {"many", "c", std::to_string(i)}});
  }
  double at = 0;
  for (int i = 0; i < 20; ++i) {
    at += gap(random);
    jobs.push_back({.arrives = at, .prompt = 0.2, .share = {"few", "c", std::to_string(i)}});
  }
  const std::vector<ReadJob> turns = Read(jobs, Rule::kTurns);
  const std::vector<ReadJob> lent = Read(jobs, Rule::kLentTurns);
  const auto longest = [](const std::vector<ReadJob>& all) {
    double most = 0;  // wait of a short one
    for (const ReadJob& job : all) most = std::max(most, job.prompt < 1 ? SecondsOf(job) : 0);
    return most;
  };
  EXPECT_LE(longest(lent), longest(turns) + 2 * kReadStep);
}

// Who comes back under a new name whenever it has been served, to the cost of one that waits.
TEST(LentTurns, NewNamesDoNotHoldUpALongPrompt) {
  std::vector<ReadJob> jobs = {{.prompt = 10, .share = {"t", "c", "long"}}};
  for (int i = 0; i < 400; ++i) {
    const std::string name = "new " + std::to_string(i);
    jobs.push_back({.prompt = 0.2, .share = {"t", "c", name}, .after = i == 0 ? -1 : i});
  }
  const double turns = SecondsOf(Read(jobs, Rule::kTurns)[0]);
  EXPECT_NEAR(turns, 20, 0.5);
  EXPECT_LT(SecondsOf(Read(jobs, Rule::kLentTurns)[0]), 2.1 * turns);
}

TEST(LentTurns, OnlyThoseThatCanWaitLend) {
  const Contender begun{.id = 1, .share = {"t", "c", "1"}, .remaining = 5, .total = 10};
  Contender other{.id = 2, .share = {"t", "c", "2"}, .remaining = 10, .total = 10};
  FairShares shares;
  shares.SetContending(std::vector<ShareName>{begun.share, other.share});
  shares.Charge(std::vector<ShareUse>{{begun.share, 5, true}});
  const auto served = [&] {
    const LentTurns::Turn turn = LentTurns().Next(std::vector<Contender>{begun, other}, shares);
    EXPECT_EQ(turn.lender.id, other.id);
    return turn.served.id;
  };
  EXPECT_EQ(served(), begun.id);
  other.priority = 1;
  EXPECT_EQ(served(), other.id);
  other.priority = 0;
  other.until_deadline = 12;
  EXPECT_EQ(served(), other.id);
  other.until_deadline = kNoTime;
  other.remaining = other.total = 6;
  EXPECT_EQ(served(), begun.id);
  other.remaining = other.total = 5;
  EXPECT_EQ(served(), other.id);
}

// What was lent is paid back after the end, and one that is due goes before what was begun.
TEST(LentTurns, DebtsOutliveThePrompt) {
  const Contender begun{.id = 1, .share = {"t", "c", "1"}, .remaining = 5, .total = 10};
  const Contender other{.id = 2, .share = {"t", "c", "2"}, .remaining = 10, .total = 10};
  FairShares shares;
  LentTurns lent;
  lent.Charge({begun, other}, 4);
  lent.Keep([](SequenceId id) { return id == 2; });
  ASSERT_EQ(lent.Owing(), std::vector<ShareName>{begun.share});
  const LentTurns::Turn paid = lent.Next(std::vector<Contender>{other}, shares);
  EXPECT_EQ(paid.lender.id, begun.id);
  EXPECT_EQ(paid.served.id, other.id);
  lent.Charge(paid, 4);
  lent.Keep([](SequenceId id) { return id == 2; });
  EXPECT_TRUE(lent.Owing().empty());

  lent.Charge({begun, other}, 10);
  const LentTurns::Turn due = lent.Next(std::vector<Contender>{begun, other}, shares);
  EXPECT_EQ(due.lender.id, begun.id);
  EXPECT_EQ(due.served.id, other.id);
  lent.Keep([](SequenceId) { return false; });  // nobody is left to be paid
  EXPECT_TRUE(lent.Owing().empty());
}

}  // namespace
}  // namespace annulus
