// Whole days of serving on a virtual clock: who is admitted, whose prompt goes on. Each test has
// the name of a complaint about a server that has no such order.

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "engine/scheduler/admission.h"
#include "engine/scheduler/lent_turns.h"
#include "engine/scheduler/order.h"
#include "engine/scheduler/prompt_pace.h"
#include "gtest/gtest.h"
#include "kernels/base/sanitizers.h"
#include "tests/support/thinned.h"

namespace annulus {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

struct ServedJob {
  double arrives = 0;
  double prompt = 1;  // seconds of work
  double answer = 0;  // seconds that it decodes, beside all others
  int pages = 1;
  ShareName share = {};
  int priority = 0;
  double deadline = kNever;  // a time
  bool ends = false;         // at its deadline, complete or not
  // What becomes of it:
  double admitted = kNever;
  double first_token = kNever;
  bool complete = false;
};

// One machine: memory, places, and one prompt at a time that goes on, a quantum at a time. Beside
// streams each quantum takes `beside` seconds more.
class ServingMachine final : public AdmissionHost {
 public:
  ServingMachine(std::vector<ServedJob> jobs, int pages, int places, double quantum = 0.05,
                 double beside = 0)
      : quantum_(quantum),
        beside_(beside),
        jobs_(std::move(jobs)),
        free_(pages),
        pages_(pages),
        places_(places) {
    std::stable_sort(jobs_.begin(), jobs_.end(),
                     [](const ServedJob& a, const ServedJob& b) { return a.arrives < b.arrives; });
    left_.resize(jobs_.size());
    for (size_t i = 0; i < jobs_.size(); ++i) left_[i] = jobs_[i].prompt;
  }

  // Runs until all have ended, or until `limit`. Returns the time.
  double Run(double limit) {
    while (now_ < limit && (arrived_ < jobs_.size() || !waiting_.empty() || !running_.empty())) {
      Arrive();
      Pass();
      Work();
      End();
    }
    return now_;
  }

  const std::vector<ServedJob>& jobs() const { return jobs_; }

  // ---- AdmissionHost
  bool HasTime() override { return true; }
  bool HasSlot(const Contender&) override { return running_.size() < static_cast<size_t>(places_); }
  bool Waits(const Contender&, const Contender*) override { return false; }
  Answer TryAdmit(const Contender& contender, const Contender* large) override {
    ServedJob& job = jobs_[contender.id];
    if (job.pages > free_) return Answer::kNoRoom;
    if (large != nullptr) {
      if (large->id != gathering_for_) newer_ = 0;
      gathering_for_ = large->id;
      if (pages_ - newer_ - job.pages < jobs_[large->id].pages) return Answer::kLeavesNoRoom;
      newer_ += job.pages;
      newer_ids_.push_back(contender.id);
    }
    free_ -= job.pages;
    job.admitted = now_;
    running_.push_back(contender.id);
    waiting_.erase(std::find(waiting_.begin(), waiting_.end(), contender.id));
    return Answer::kAdmitted;
  }

 private:
  Contender Of(size_t i) const {
    const ServedJob& job = jobs_[i];
    return {.id = i,
            .share = job.share,
            .priority = job.priority,
            .elapsed = now_ - job.arrives,
            .remaining = left_[i],
            .total = job.prompt,
            .answer = job.answer,
            .slowed = pace_.slowed(),
            .until_deadline = job.deadline - now_,
            .ends_at_deadline = job.ends};
  }

  void Arrive() {
    if (waiting_.empty() && running_.empty() && arrived_ < jobs_.size()) {
      now_ = std::max(now_, jobs_[arrived_].arrives);
    }
    while (arrived_ < jobs_.size() && jobs_[arrived_].arrives <= now_) {
      waiting_.push_back(arrived_++);
    }
    lent_turns_.Keep([this](SequenceId id) { return left_[id] > 0; });
    std::vector<ShareName> contending = lent_turns_.Owing();
    for (const size_t i : waiting_) contending.push_back(jobs_[i].share);
    for (const size_t i : running_) {
      if (left_[i] > 0) contending.push_back(jobs_[i].share);
    }
    shares_.SetContending(contending);
  }

  void Pass() {
    std::vector<Contender> contenders;
    for (const size_t i : waiting_) contenders.push_back(Of(i));
    std::vector<Contender> begun;
    for (const size_t i : running_) {
      if (left_[i] > 0) begun.push_back(Of(i));
    }
    admission_.Run(contenders, begun, shares_, *this);
    // Nobody who fits waits, unless room may be gathered for another one, which has waited enough.
    if (std::any_of(contenders.begin(), contenders.end(), [this](const Contender& each) {
          const bool waits = std::find(waiting_.begin(), waiting_.end(), each.id) != waiting_.end();
          return waits && each.elapsed >= std::max(each.total, 1.0);
        })) {
      return;
    }
    for (const size_t i : waiting_) {
      if (jobs_[i].pages <= free_ && running_.size() < static_cast<size_t>(places_)) {
        ++fits_and_waits;
      }
    }
  }

  void Work() {
    std::vector<Contender> contenders;
    for (const size_t i : running_) {
      if (left_[i] > 0) contenders.push_back(Of(i));
    }
    if (contenders.empty()) {
      now_ += quantum_;
      return;
    }
    const LentTurns::Turn turn = lent_turns_.Next(contenders, shares_);
    const size_t i = turn.served.id;
    const double work = std::min(quantum_, left_[i]);
    const bool streams = contenders.size() < running_.size();
    const double step = work + (streams ? beside_ : 0);
    left_[i] = left_[i] - work < 1e-9 ? 0 : left_[i] - work;
    now_ += step;
    pace_.Learn(step, work);
    lent_turns_.Charge(turn, work);
    shares_.Charge(std::vector<ShareUse>{{turn.lender.share, work, true}});
    if (left_[i] == 0) jobs_[i].first_token = now_;
  }

  bool IsLost(size_t i) const { return jobs_[i].ends && now_ > jobs_[i].deadline; }

  void End() {
    const size_t before = running_.size();
    std::erase_if(waiting_, [&](size_t i) {
      if (IsLost(i)) admission_.Forget(i);
      return IsLost(i);
    });
    std::erase_if(running_, [&](size_t i) {
      const bool done = left_[i] == 0 && now_ >= jobs_[i].first_token + jobs_[i].answer;
      if (!done && !IsLost(i)) return false;
      if (done && !IsLost(i)) jobs_[i].complete = true;
      free_ += jobs_[i].pages;
      if (std::erase(newer_ids_, i) > 0) newer_ -= jobs_[i].pages;
      admission_.Forget(i);
      return true;
    });
    if (running_.size() < before) admission_.RoomMayHaveCome();
  }

  const double quantum_;  // seconds
  const double beside_;
  PromptPace pace_;
  std::vector<ServedJob> jobs_;
  std::vector<double> left_;  // seconds of each prompt
  int free_;
  const int pages_;
  const int places_;
  double now_ = 0;
  size_t arrived_ = 0;
  std::vector<size_t> waiting_;
  std::vector<size_t> running_;
  FairShares shares_;
  LentTurns lent_turns_;
  Admission admission_;
  SequenceId gathering_for_ = 0;
  int newer_ = 0;
  std::vector<size_t> newer_ids_;

 public:
  int fits_and_waits = 0;
};

double WaitOf(const ServedJob& job) { return job.first_token - job.arrives; }

TEST(Serving, AShortRequestDoesNotQueueBehindALongPrompt) {
  for (const char* client : {"same", "other"}) {
    ServingMachine machine({{.arrives = 0, .prompt = 600, .share = {"", "same"}},
                            {.arrives = 100, .prompt = 0.5, .share = {"", client}}},
                           10, 64);
    machine.Run(1e4);
    EXPECT_LT(WaitOf(machine.jobs()[1]), 1.2) << client;
    EXPECT_LT(WaitOf(machine.jobs()[0]), 601) << client;
  }
}

// What is nearly done goes first only if that is quick: the last seconds of a minute held short
// requests for three.
TEST(Serving, TheEndOfALongPromptHoldsNobodyForLong) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    std::exponential_distribution<double> gap(0.2);
    std::vector<ServedJob> jobs = {{.prompt = 80}};
    for (double at = gap(random); at < 120; at += gap(random)) {
      jobs.push_back({.arrives = at, .prompt = 0.2});
    }
    jobs.push_back({.prompt = 0.1, .answer = 1000});  // a stream
    ServingMachine machine(jobs, 1000, 64, 0.12, 0.06);
    machine.Run(1e4);
    double longest = 0;  // wait of a short request
    for (const ServedJob& job : machine.jobs()) {
      if (job.prompt < 1) longest = std::max(longest, WaitOf(job));
    }
    EXPECT_LT(longest, 2) << "seed " << seed;
    EXPECT_LT(WaitOf(machine.jobs().front()), 80 * 1.7) << "seed " << seed;
  }
}

// Prompts of 200 to 128K tokens, as many of each order of magnitude, at 0.8 of what can be read,
// against first come, first served.
TEST(Serving, TheShortHalfOfAMixedTraceDoesNotQueueBehindTheLongHalf) {
  constexpr int kJobs = 120;
  const auto mean = [](const std::vector<double>& times) {
    return std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
  };
  const auto p99 = [](std::vector<double> times) {
    std::sort(times.begin(), times.end());
    return times[static_cast<size_t>(0.99 * static_cast<double>(times.size() - 1))];
  };
  for (uint32_t seed = 1; seed <= (kSanitized ? 2 : 5); ++seed) {
    std::mt19937 random(seed);
    std::vector<double> prompts;
    for (int i = 0; i < kJobs; ++i) {
      const double tokens = 200 * std::pow(131'072.0 / 200, (i + 0.5) / kJobs);
      prompts.push_back(1e-3 * tokens * (1 + 2e-5 * tokens));
    }
    const double middle = prompts[kJobs / 2];
    const double work = std::accumulate(prompts.begin(), prompts.end(), 0.0);
    std::shuffle(prompts.begin(), prompts.end(), random);
    std::exponential_distribution<double> gap(0.8 * kJobs / work);
    std::vector<ServedJob> jobs;
    std::vector<double> in_turn;  // seconds to the first token, first come, first served
    double now = 0;
    double free = 0;
    for (const double prompt : prompts) {
      now += gap(random);
      free = std::max(free, now) + prompt;
      jobs.push_back({.arrives = now, .prompt = prompt});
      in_turn.push_back(free - now);
    }
    ServingMachine machine(jobs, 1000, 64, 0.25);
    machine.Run(1e6);
    std::vector<double> before[2];  // [0] of the short half, [1] of the long one
    std::vector<double> here[2];
    for (int i = 0; i < kJobs; ++i) {
      const int half = prompts[i] < middle ? 0 : 1;
      before[half].push_back(in_turn[i]);
      here[half].push_back(WaitOf(machine.jobs()[i]));
    }
    EXPECT_LT(mean(here[0]), mean(before[0]) / 10) << "seed " << seed;
    EXPECT_LT(p99(here[0]), p99(before[0]) / 10) << "seed " << seed;
    EXPECT_LT(mean(here[1]), mean(before[1]) * 1.3) << "seed " << seed;
    EXPECT_LT(p99(here[1]), p99(before[1]) * 1.3) << "seed " << seed;
  }
}

// All at the end of all would be the worst that equal ones can have.
TEST(Serving, EqualPromptsAreReadOneAfterTheOther) {
  std::vector<ServedJob> jobs(8, ServedJob{.prompt = 10});
  ServingMachine machine(jobs, 10, 64);
  machine.Run(1e4);
  double sum = 0;
  for (const ServedJob& job : machine.jobs()) sum += WaitOf(job);
  EXPECT_LT(sum / 8, 50);
}

TEST(Serving, AHundredLongRequestsOfOneClientDoNotLeaveAnotherUnanswered) {
  for (const bool tenants : {false, true}) {
    std::vector<ServedJob> jobs;
    const auto share = [&](const char* name) {
      return tenants ? ShareName{name, "one"} : ShareName{"", name};
    };
    for (int i = 0; i < 100; ++i) jobs.push_back({.prompt = 5, .share = share("many")});
    jobs.push_back({.arrives = 20, .prompt = 5, .share = share("alone")});
    ServingMachine machine(jobs, 1000, 128);
    machine.Run(1e5);
    EXPECT_LT(WaitOf(machine.jobs().back()), 11) << tenants;
  }
}

TEST(Serving, ARequestThatFitsIsNotHeldByOneThatDoesNot) {
  ServingMachine machine({{.prompt = 30, .answer = 60, .pages = 6},
                          {.arrives = 1, .prompt = 100, .pages = 8},
                          {.arrives = 2, .prompt = 1, .pages = 2}},
                         10, 64);
  machine.Run(1e4);
  EXPECT_LT(WaitOf(machine.jobs()[2]), 3);
}

// Small requests come for ever, and together they would always leave too little.
TEST(Serving, TheLargeOnesTurnComesWhateverArrives) {
  std::vector<ServedJob> jobs = {{.arrives = 5, .prompt = 20, .pages = 9, .share = {"", "large"}}};
  for (int i = 0; i < 4000; ++i) {
    jobs.push_back({.arrives = 0.5 * i, .prompt = 0.2, .answer = 4, .share = {"", "small"}});
  }
  ServingMachine machine(jobs, 10, 64);
  machine.Run(1e5);
  for (const ServedJob& job : machine.jobs()) {
    if (job.pages != 9) continue;
    EXPECT_LT(job.admitted, 5 + 20 + 8);
    EXPECT_LT(WaitOf(job), 90);
  }
}

TEST(Serving, ADeadlineThatCanBeMetIsMetAndALostOneTakesNothing) {
  ServingMachine machine(
      {{.prompt = 20}, {.prompt = 10, .deadline = 12}, {.prompt = 10, .deadline = 4}}, 10, 64);
  machine.Run(1e4);
  EXPECT_LE(machine.jobs()[1].first_token, 12);
}

// One that fits beside a long prompt of the same client is not taken for lost behind it.
TEST(Serving, AShortDeadlineIsMetBesideALongPrompt) {
  for (const int priority : {0, 1}) {
    ServingMachine machine(
        {{.arrives = 0, .prompt = 600, .priority = priority},
         {.arrives = 100, .prompt = 0.5, .answer = 1, .deadline = 110, .ends = true}},
        10, 64);
    machine.Run(1e4);
    EXPECT_TRUE(machine.jobs()[1].complete) << "priority " << priority;
  }
}

// Five times what the machine can read, and clients that give up: "goodput falls to nothing".
TEST(Serving, OverloadServesThoseWhoCanStillBeServed) {
  for (const double patience : testing::ThinnedIfSanitized<double>({3, 5, 20}, 1)) {
    std::mt19937 random(7);
    std::exponential_distribution<double> gap(50);
    std::vector<ServedJob> jobs;
    for (double time = gap(random); time < 60; time += gap(random)) {
      jobs.push_back({.arrives = time,
                      .prompt = 0.1,
                      .answer = 1.5,
                      .deadline = time + patience,
                      .ends = true});
    }
    ServingMachine machine(jobs, 1000, 64);
    const double end = machine.Run(1e4);
    int complete = 0;
    for (const ServedJob& job : machine.jobs()) complete += job.complete ? 1 : 0;
    // One prompt in 0.1 s, as long as any request is there.
    EXPECT_GE(complete, 0.9 * 10 * std::min(end, 60.0)) << "patience " << patience;
  }
}

// Beside the streams that earlier ones became, prompts take a third longer than alone. Whoever
// counts on less begins too many, and gives most up when they are nearly read: 0.7 of what is
// possible is left.
TEST(Serving, OverloadBesideStreamsIsNotReadInVain) {
  constexpr double kQuantum = 0.13;
  constexpr double kBeside = 0.045;
  constexpr double kPromptBesideStreams = 1 + 8 * kBeside;  // a second is 7.7 quanta
  constexpr double kSeconds = 120;
  for (const double patience : {10, 20}) {
    std::mt19937 random(7);
    std::exponential_distribution<double> gap(5 / kPromptBesideStreams);
    std::vector<ServedJob> jobs;
    for (double time = gap(random); time < kSeconds; time += gap(random)) {
      jobs.push_back(
          {.arrives = time, .prompt = 1, .answer = 2.5, .deadline = time + patience, .ends = true});
    }
    ServingMachine machine(jobs, 1000, 16, kQuantum, kBeside);
    machine.Run(1e4);
    const auto complete = std::count_if(machine.jobs().begin(), machine.jobs().end(),
                                        [](const ServedJob& job) { return job.complete; });
    EXPECT_GE(static_cast<double>(complete), 0.9 * kSeconds / kPromptBesideStreams)
        << "patience " << patience;
  }
}

TEST(Serving, PriorityGoesFirstAndTheRestAgesPastIt) {
  std::vector<ServedJob> jobs = {{.prompt = 10, .priority = -2}, {.prompt = 10}};
  for (int i = 0; i < 2000; ++i) jobs.push_back({.arrives = 1.0 * i, .prompt = 0.9, .priority = 2});
  ServingMachine machine(jobs, 1000, 64);
  machine.Run(1e5);
  for (const ServedJob& job : machine.jobs()) {
    if (job.priority == 2) continue;
    EXPECT_LT(WaitOf(job), job.priority == 0 ? 700 : 2200);
  }
  ServingMachine two({{.prompt = 10}, {.prompt = 10, .priority = 1}}, 10, 64);
  two.Run(1e4);
  EXPECT_LT(WaitOf(two.jobs()[1]), 10.1);
}

// Whatever comes, everyone is served, in a time that its own work and that of those present bound.
TEST(Serving, NobodyStarvesInThousandsOfTraces) {
  int held = 0;
  for (uint32_t seed = 1; seed <= (kSanitized ? 200 : 1000); ++seed) {
    std::mt19937 random(seed);
    const auto uniform = [&](double low, double high) {
      return std::uniform_real_distribution<double>(low, high)(random);
    };
    const int pages = 4 + static_cast<int>(random() % 20);
    std::vector<ServedJob> jobs(5 + random() % 30);
    double work = 0;
    for (ServedJob& job : jobs) {
      job.arrives = uniform(0, 20);
      job.prompt = std::exp(uniform(-3, 2.5));
      job.answer = random() % 2 == 0 ? 0 : uniform(0, 5);
      job.pages = 1 + static_cast<int>(random() % pages);
      job.share = {std::string(1, static_cast<char>('a' + random() % 2)),
                   std::string(1, static_cast<char>('a' + random() % 3))};
      job.priority = static_cast<int>(random() % 5) - 2;
      if (random() % 4 == 0) job.deadline = job.arrives + uniform(0, 20);
      work += job.prompt + job.answer + 0.5;
    }
    ServingMachine machine(jobs, pages, 1 + static_cast<int>(random() % 8), 0.2);
    const double end = machine.Run(1e5);
    ASSERT_LT(end, 20 + work + 1) << "seed " << seed;  // no turn passes idle while work waits
    for (const ServedJob& job : machine.jobs()) {
      ASSERT_LT(job.first_token, kNever) << "seed " << seed;
    }
    held += machine.fits_and_waits;
  }
  EXPECT_EQ(held, 0);
}

}  // namespace
}  // namespace annulus
