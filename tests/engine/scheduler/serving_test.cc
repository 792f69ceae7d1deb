// Whole days of serving on a virtual clock: who is admitted, whose prompt goes on. Each test has
// the name of a complaint about a server that has no such order.

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "engine/scheduler/admission.h"
#include "engine/scheduler/order.h"
#include "engine/scheduler/places.h"
#include "engine/scheduler/prompt_pace.h"
#include "engine/scheduler/standstill.h"
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
  bool HasPlace(const Contender&) override {
    return running_.size() < static_cast<size_t>(places_);
  }
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
    std::vector<ShareName> contending;
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
    // Nobody who fits waits, unless room is gathered for another one.
    if (admission_.gathering().has_value()) return;
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
    const size_t i = contenders[ServingOrder(contenders, shares_).front()].id;
    const double work = std::min(quantum_, left_[i]);
    const bool streams = contenders.size() < running_.size();
    const double step = work + (streams ? beside_ : 0);
    left_[i] = left_[i] - work < 1e-9 ? 0 : left_[i] - work;
    now_ += step;
    pace_.Learn(step, work);
    shares_.Charge(std::vector<ShareUse>{{jobs_[i].share, work, true}});
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

TEST(PromptPace, FollowsWhatRunsBesidePrompts) {
  PromptPace pace;
  EXPECT_EQ(pace.slowed(), 1);
  for (int i = 0; i < 100; ++i) pace.Learn(0.15, 0.1);
  EXPECT_NEAR(pace.slowed(), 1.5, 0.01);
  // Steps of streams between stretches of prompts count too.
  for (int i = 0; i < 200; ++i) pace.Learn(0.1, i % 2 == 0 ? 0.1 : 0);
  EXPECT_NEAR(pace.slowed(), 2, 0.1);
  for (int i = 0; i < 200; ++i) pace.Learn(1, 0);
  EXPECT_EQ(pace.slowed(), 4);
  for (int i = 0; i < 200; ++i) pace.Learn(0.05, 0.1);
  EXPECT_EQ(pace.slowed(), 1);
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

std::vector<ShareUse> Prompt(const ShareName& share, double seconds) {
  return {{share, seconds, /*prompt=*/true}};
}

TEST(FairShares, WhoComesBackStartsLevel) {
  FairShares shares;
  const ShareName a{"", "a"};
  const ShareName b{"", "b"};
  shares.SetContending(std::vector<ShareName>{a});
  shares.Charge(Prompt(a, 100));
  shares.SetContending(std::vector<ShareName>{a, b});
  EXPECT_EQ(shares.had(b, 2), 100);
  shares.Charge(Prompt(b, 7));
  shares.SetContending(std::vector<ShareName>{a});
  shares.Charge(Prompt(a, 3));
  shares.SetContending(std::vector<ShareName>{a, b});  // not below what it had
  EXPECT_EQ(shares.had(b, 2), 107);
  EXPECT_EQ(shares.had(b, 1), 110);
  // What streams took while others waited counts, and while nobody did it does not.
  shares.Charge(std::vector<ShareUse>{{b, 50, false}});
  EXPECT_EQ(shares.had(b, 2), 157);
  shares.SetContending({});
  shares.SetContending(std::vector<ShareName>{a, b});
  EXPECT_EQ(shares.had(a, 2), shares.had(b, 2));
}

// Beside somebody who has had little and asks for little, for every level: whoever comes under a
// new name each time has no more than its share, and neither has who goes and comes back.
TEST(FairShares, NobodyGainsByComingAnew) {
  for (size_t level = 0; level < ShareName::kLevels; ++level) {
    for (const bool renamed : {true, false}) {
      const auto name = [&](const std::string& own) {
        return ShareName{level == 0 ? own : "t", level == 1 ? own : "c", level == 2 ? own : "n"};
      };
      FairShares shares;
      const ShareName frugal = name("frugal");
      const ShareName honest = name("honest");
      double had_honest = 0;
      double had_sly = 0;
      for (int i = 0; i < 1000; ++i) {
        const ShareName sly = name(renamed ? "anew" + std::to_string(i) : "anew");
        std::vector<ShareName> contending = {honest, frugal};
        if (renamed || i % 2 == 0) contending.push_back(sly);
        shares.SetContending(contending);
        std::vector<Contender> contenders = {
            {.id = 1, .share = honest, .remaining = 1, .total = 1}};
        if (contending.size() == 3) {
          contenders.push_back({.id = 2, .share = sly, .remaining = 1, .total = 1});
        }
        const size_t next = ServingOrder(contenders, shares).front();
        (next == 0 ? had_honest : had_sly) += 1;
        std::vector<ShareUse> step = Prompt(contenders[next].share, 1);
        step.push_back({frugal, 0.001, false});
        shares.Charge(step);
      }
      EXPECT_LT(had_sly, had_honest + 2) << "level " << level;
      EXPECT_GT(had_sly, 300) << "level " << level;
    }
  }
}

// Over whole traces of turns: a step of priority is four times the share, of the own tenant's or
// client's alone.
TEST(FairShares, PriorityTakesFromTheOwnTenantAlone) {
  for (const bool anonymous : {false, true}) {
    FairShares shares;
    const auto name = [&](const std::string& owner, const std::string& connection) {
      return anonymous ? ShareName{"default", owner, connection} : ShareName{owner, connection};
    };
    std::vector<Contender> contenders = {{.id = 0, .share = name("t", "a"), .priority = 1},
                                         {.id = 1, .share = name("t", "b")},
                                         {.id = 2, .share = name("u", "c"), .priority = -2}};
    std::vector<ShareName> contending;
    for (Contender& one : contenders) {
      one.remaining = one.total = 1;
      contending.push_back(one.share);
    }
    std::vector<double> had(3, 0);
    for (int i = 0; i < 1000; ++i) {
      shares.SetContending(contending);
      const size_t next = ServingOrder(contenders, shares).front();
      had[next] += 1;
      shares.Charge(
          std::vector<ShareUse>{{contenders[next].share, 1, true, contenders[next].priority}});
    }
    EXPECT_NEAR(had[2], 500, 3);
    EXPECT_NEAR(had[0], 400, 5);
    EXPECT_NEAR(had[1], 100, 5);
  }
}

TEST(FairShares, MoreConnectionsBringNoMore) {
  std::vector<Contender> contenders;
  for (int i = 0; i < 6; ++i) {
    const std::string client = i < 4 ? "a" : "b";
    contenders.push_back({.id = contenders.size(),
                          .share = {"", client, client + std::to_string(i % 5)},
                          .remaining = 1,
                          .total = 1});
  }
  const std::vector<size_t> order = ServingOrder(contenders, FairShares());
  EXPECT_EQ(order, (std::vector<size_t>{0, 5, 1, 4, 2, 3}));
}

// A pass asks each that waits once, of a table that knows who has which place.
TEST(Places, APassOverThousandsLooksAtEachOnce) {
  constexpr int kMost = 2000;
  class Counting final : public AdmissionHost {
   public:
    bool HasTime() override { return true; }
    bool HasPlace(const Contender& contender) override {
      ++asked;
      return places.Has(contender.share);
    }
    bool Waits(const Contender&, const Contender*) override { return false; }
    Answer TryAdmit(const Contender& contender, const Contender*) override {
      places.Take(contender.share);
      ++admitted;
      return Answer::kAdmitted;
    }
    Places places{kMost};
    int asked = 0;
    int admitted = 0;
  };
  Counting host;
  std::vector<Contender> waiting;
  for (int i = 0; i < 5000; ++i) {
    const std::string client = i < 4000 ? "many" : std::to_string(i % 7);
    waiting.push_back({.id = waiting.size(), .share = {"default", client}, .total = 1});
  }
  Admission().Run(waiting, {}, FairShares(), host);
  EXPECT_EQ(host.asked, 5000);
  EXPECT_EQ(host.admitted, kMost);
}

// Those that wait for pages from a tier had no bound: each one's first look hashes its prompt.
TEST(Places, APassThatTakesLongIsCutAndTheNextGoesOn) {
  class Looking final : public AdmissionHost {
   public:
    bool HasTime() override { return looks < 16; }
    bool HasPlace(const Contender&) override { return true; }
    bool Waits(const Contender& contender, const Contender*) override {
      looks += known.insert(contender.id).second;  // who is known costs nothing more
      return contender.id < 100;
    }
    Answer TryAdmit(const Contender&, const Contender*) override {
      ++admitted;
      return Answer::kAdmitted;
    }
    std::set<SequenceId> known;
    int looks = 0;
    int admitted = 0;
  };
  Looking host;
  Admission admission;
  std::vector<Contender> waiting;
  for (int i = 0; i < 101; ++i) waiting.push_back({.id = waiting.size(), .total = 1});
  int passes = 0;
  for (; host.admitted == 0 && passes < 100; ++passes) {
    host.looks = 0;
    admission.Run(waiting, {}, FairShares(), host);
    EXPECT_LE(host.looks, 16);
  }
  EXPECT_LE(passes, 7);
}

TEST(Places, TheLastEighthIsKeptForOthers) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    const int most = 1 + static_cast<int>(random() % 40);
    Places places(most);
    std::map<std::string, int> by_owner;
    int all = 0;
    for (int i = 0; i < 60; ++i) {
      const bool tenant = random() % 2 == 0;
      const std::string client(random() % 3, 'c');
      const ShareName share{tenant ? "t" : "default", client, std::to_string(i)};
      const std::string owner = tenant ? "t" : client;
      const bool has = all < most && (all < most - most / 8 || owner.empty() ||
                                      by_owner[owner] < most - most / 8);
      ASSERT_EQ(places.Has(share), has) << "round " << round;
      if (!has) continue;
      places.Take(share);
      ++by_owner[owner];
      ++all;
    }
  }
}

// A long step is none, nor is a short wait.
TEST(Standstill, IsToBeLeftOutOfManyStepsForSomeTime) {
  Standstill still;
  Standstill::Time now{};
  EXPECT_FALSE(still.Look(1, 64, 10, now));
  EXPECT_FALSE(still.Look(1, 64, 11, now += std::chrono::hours(1)));
  EXPECT_FALSE(still.Look(1, 64, 25, now));
  EXPECT_TRUE(still.Look(1, 64, 26, now));
  EXPECT_FALSE(still.Look(1, 128, 27, now));
  EXPECT_FALSE(still.Look(1, 128, 1000, now += std::chrono::milliseconds(1999)));
  EXPECT_TRUE(still.Look(1, 128, 1000, now += std::chrono::milliseconds(1)));
  still.Forget(1);
  EXPECT_FALSE(still.Look(1, 128, 1000, now));
}

TEST(ServingOrder, SharesTakeTurns) {
  std::vector<Contender> contenders;
  for (const char* client : {"a", "a", "a", "b", "b", "b"}) {
    contenders.push_back(
        {.id = contenders.size(), .share = {"", client}, .remaining = 1, .total = 1});
  }
  FairShares shares;
  EXPECT_EQ(ServingOrder(contenders, shares), (std::vector<size_t>{0, 3, 1, 4, 2, 5}));
}

}  // namespace
}  // namespace annulus
