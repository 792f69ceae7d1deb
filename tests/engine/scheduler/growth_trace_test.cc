// Whole traces of serving on a virtual clock, with requests that reserve what their answers are
// expected to take, and with requests that reserve the worst case.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "engine/scheduler/admission.h"
#include "engine/scheduler/answer_length.h"
#include "engine/scheduler/growth.h"
#include "engine/scheduler/order.h"
#include "gtest/gtest.h"
#include "kernels/base/sanitizers.h"

namespace annulus {
namespace {

struct GrowthJob {
  double arrives = 0;
  int prompt = 1;   // tokens
  int answer = 1;   // tokens that it gives in the end
  int longest = 1;  // max_tokens
  std::string client = {};
  int priority = 0;
  // What becomes of it:
  int given = 0;
  int preemptions = 0;
  bool complete = false;
};

// One machine with pages of 16 tokens: prompts are read one after the other, 64 tokens a turn, and
// each turn gives every stream as many tokens as its pages have room for, at most 16.
class GrowthMachine final : public AdmissionHost, public GrowthHost {
 public:
  GrowthMachine(std::vector<GrowthJob> jobs, int pages, bool expects)
      : jobs_(std::move(jobs)), pages_(pages), free_(pages), expects_(expects) {
    std::stable_sort(jobs_.begin(), jobs_.end(),
                     [](const GrowthJob& a, const GrowthJob& b) { return a.arrives < b.arrives; });
    state_.resize(jobs_.size());
  }

  // Returns whether all ended before `limit`.
  bool Run(double limit) {
    while (ended_ < std::ssize(jobs_) && now_ < limit) {
      while (arrived_ < std::ssize(jobs_) && jobs_[arrived_].arrives <= now_) {
        waiting_.push_back(arrived_++);
      }
      Contend();
      GrowAll();
      if (!lacks_) Pass();
      Work();
      Check();
    }
    return ended_ == std::ssize(jobs_);
  }

  const std::vector<GrowthJob>& jobs() const { return jobs_; }
  double now() const { return now_; }
  double mean_running() const { return running_sum_ / turns_; }

  // ---- AdmissionHost
  bool HasTime() override { return true; }
  bool HasSlot(const Contender&) override { return true; }
  bool Waits(const Contender&, const Contender*) override { return false; }
  Answer TryAdmit(const Contender& contender, const Contender* large) override {
    const GrowthJob& job = jobs_[contender.id];
    const int most = PagesOf(job.prompt + job.longest);
    const int now = Wanted(contender.id);
    if (now > free_) return Answer::kNoRoom;
    if (large != nullptr) {
      if (gathering_for_ != large->id) newer_.clear();
      gathering_for_ = large->id;
      int left = pages_ - most;
      for (const auto& [id, held] : newer_) left -= held;
      if (left < Wanted(large->id)) return Answer::kLeavesNoRoom;
      newer_[contender.id] = most;
    }
    free_ -= now;
    state_[contender.id] = {.held = now, .to_read = job.prompt + job.given};
    running_.push_back(contender.id);
    std::erase(waiting_, contender.id);
    return Answer::kAdmitted;
  }

  // ---- GrowthHost
  bool Grow(SequenceId id) override {
    const int next = state_[id].held + 1;
    for (const int to : {std::max(next, Wanted(id)), next}) {
      if (to - state_[id].held > free_) continue;
      free_ -= to - state_[id].held;
      state_[id].held = to;
      return true;
    }
    return false;
  }
  bool Helps(SequenceId victim, SequenceId) override { return state_[victim].held > 0; }
  void Preempt(SequenceId victim) override {
    free_ += state_[victim].held;
    state_[victim] = {};
    std::erase(running_, victim);
    newer_.erase(victim);
    waiting_.push_back(victim);
    admission_.Forget(victim);
    admission_.RoomMayHaveCome();
    ++jobs_[victim].preemptions;
  }

 private:
  struct State {
    int held = 0;     // pages
    int to_read = 0;  // tokens
    int read = 0;
  };

  static int PagesOf(int64_t tokens) { return static_cast<int>((tokens + 15) / 16); }
  int Wanted(SequenceId id) const {
    const GrowthJob& job = jobs_[id];
    const int64_t answer = expects_ ? lengths_.Expect(0, job.longest, job.given) : job.longest;
    return PagesOf(job.prompt + answer);
  }
  bool Decodes(SequenceId id) const { return state_[id].read == state_[id].to_read; }

  Contender Of(SequenceId id) const {
    const GrowthJob& job = jobs_[id];
    const int all = job.prompt + job.given;
    const int left = running(id) && Decodes(id) ? 0 : all - state_[id].read;
    return {.id = id,
            .share = {"", job.client},
            .priority = job.priority,
            .elapsed = now_ - job.arrives,
            .remaining = left * kTokenSeconds,
            .total = all * kTokenSeconds};
  }
  bool running(SequenceId id) const {
    return std::find(running_.begin(), running_.end(), id) != running_.end();
  }
  std::vector<Contender> Contenders(const std::vector<SequenceId>& ids) const {
    std::vector<Contender> contenders;
    for (const SequenceId id : ids) contenders.push_back(Of(id));
    return contenders;
  }

  void Contend() {
    std::vector<ShareName> contending;
    for (const SequenceId id : waiting_) contending.push_back({"", jobs_[id].client});
    for (const SequenceId id : running_) {
      if (!Decodes(id)) contending.push_back({"", jobs_[id].client});
    }
    shares_.SetContending(contending);
  }

  void GrowAll() {
    std::vector<Grower> growers;
    for (const SequenceId id : running_) {
      const GrowthJob& job = jobs_[id];
      const bool grows = Decodes(id) && job.prompt + job.given >= 16 * state_[id].held;
      growers.push_back({.id = id, .grows = grows, .may_yield = expects_});
    }
    lacks_ = false;
    if (std::none_of(growers.begin(), growers.end(), [](const Grower& one) { return one.grows; })) {
      return;
    }
    const std::vector<size_t> order = ServingOrder(Contenders(running_), shares_);
    const std::vector<Grower> sorted = GrowthOrder(growers, order);
    lacks_ = GrowSequences(sorted, *this);
    EXPECT_FALSE(lacks_) << "all may yield, and each fits alone";
    EXPECT_TRUE(running(sorted.front().id));
  }

  void Pass() {
    if (waiting_.empty()) return;
    std::vector<SequenceId> reading;
    for (const SequenceId id : running_) {
      if (!Decodes(id)) reading.push_back(id);
    }
    admission_.Run(Contenders(waiting_), Contenders(reading), shares_, *this);
  }

  void Work() {
    running_sum_ += static_cast<double>(running_.size());
    ++turns_;
    now_ += kTurnSeconds;
    std::vector<SequenceId> reading;
    std::vector<SequenceId> ended;
    for (const SequenceId id : running_) {
      if (!Decodes(id)) {
        reading.push_back(id);
      } else if (GiveTokens(id)) {
        ended.push_back(id);
      }
    }
    if (!reading.empty()) {
      const auto contenders = Contenders(reading);
      const SequenceId next = reading[ServingOrder(contenders, shares_).front()];
      const int tokens = std::min(64, state_[next].to_read - state_[next].read);
      state_[next].read += tokens;
      now_ += tokens * kTokenSeconds;
      shares_.Charge(
          std::vector<ShareUse>{{{"", jobs_[next].client}, tokens * kTokenSeconds, true}});
    }
    for (const SequenceId id : ended) {
      free_ += state_[id].held;
      state_[id] = {};
      std::erase(running_, id);
      newer_.erase(id);
      admission_.Forget(id);
      admission_.RoomMayHaveCome();
      lengths_.Learn(jobs_[id].answer);
      jobs_[id].complete = true;
      ++ended_;
    }
  }

  // Returns whether they end the answer. Each needs room for the token before it.
  bool GiveTokens(SequenceId id) {
    GrowthJob& job = jobs_[id];
    const int room = 16 * state_[id].held - job.prompt - job.given;
    EXPECT_GT(room, 0) << "a row without a page";
    job.given += std::min({16, room, job.answer - job.given});
    return job.given == job.answer;
  }

  void Check() {
    int held = 0;
    for (const SequenceId id : running_) held += state_[id].held;
    ASSERT_GE(free_, 0);
    ASSERT_EQ(free_ + held, pages_);
  }

  static constexpr double kTokenSeconds = 0.001;
  static constexpr double kTurnSeconds = 0.2;
  std::vector<GrowthJob> jobs_;
  std::vector<State> state_;
  const int pages_;
  int free_;
  const bool expects_;
  double now_ = 0;
  std::ptrdiff_t arrived_ = 0;
  std::ptrdiff_t ended_ = 0;
  bool lacks_ = false;
  std::vector<SequenceId> waiting_;
  std::vector<SequenceId> running_;
  FairShares shares_;
  Admission admission_;
  AnswerLength lengths_;
  SequenceId gathering_for_ = std::numeric_limits<SequenceId>::max();
  std::map<SequenceId, int> newer_;
  double running_sum_ = 0;
  double turns_ = 0;
};

std::vector<GrowthJob> GrowthTrace(uint32_t seed, int& pages) {
  std::mt19937 random(seed);
  const auto uniform = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  std::vector<GrowthJob> jobs(10 + random() % 40);
  int most = 0;
  const double length = uniform(2, 5);
  for (GrowthJob& job : jobs) {
    job.arrives = uniform(0, 5);
    job.prompt = 1 + static_cast<int>(std::exp(uniform(1, 6)));
    job.longest = 16 + static_cast<int>(random() % 500);
    job.answer = std::clamp(static_cast<int>(std::exp(length + uniform(-1, 1))), 1, job.longest);
    job.client = std::string(1, static_cast<char>('a' + random() % 3));
    job.priority = static_cast<int>(random() % 5) - 2;
    most = std::max(most, (job.prompt + job.longest + 15) / 16);
  }
  pages = most + static_cast<int>(random() % (2 * most));
  return jobs;
}

// Nobody starves, every request ends with all of its answer, and pages never run over (Check); over
// the traces together more run at once than if each took the worst case, and all is over sooner.
TEST(Growth, EveryRequestEndsInThousandsOfTraces) {
  double running[2] = {0, 0};
  double seconds[2] = {0, 0};
  int64_t preemptions = 0;
  for (uint32_t seed = 1; seed <= (kSanitized ? 100 : 1000); ++seed) {
    int pages = 0;
    const std::vector<GrowthJob> jobs = GrowthTrace(seed, pages);
    for (const bool expects : {false, true}) {
      GrowthMachine machine(jobs, pages, expects);
      ASSERT_TRUE(machine.Run(1e4)) << "seed " << seed << ", expects " << expects;
      for (const GrowthJob& job : machine.jobs()) {
        ASSERT_TRUE(job.complete) << "seed " << seed;
        ASSERT_EQ(job.given, job.answer) << "seed " << seed;
        preemptions += job.preemptions;
        ASSERT_TRUE(expects || job.preemptions == 0) << "seed " << seed;
      }
      running[expects] += machine.mean_running();
      seconds[expects] += machine.now();
    }
  }
  EXPECT_GT(preemptions, kSanitized ? 10 : 100);
  EXPECT_GT(running[1], running[0]);
  EXPECT_LT(seconds[1], seconds[0]);
}

// All grow to the longest though the answers before them were short: the estimate is as wrong as
// it can be, and all still end, the eldest without ever giving up anything.
TEST(Growth, AnswersMuchLongerThanExpectedAllEnd) {
  std::vector<GrowthJob> jobs(8, GrowthJob{.prompt = 10, .answer = 2, .longest = 10});
  for (int i = 0; i < 12; ++i) {
    jobs.push_back({.arrives = 5, .prompt = 20, .answer = 600, .longest = 600});
  }
  GrowthMachine machine(jobs, 44, /*expects=*/true);
  ASSERT_TRUE(machine.Run(1e4));
  EXPECT_EQ(machine.jobs()[8].preemptions, 0);
  int preemptions = 0;
  for (const GrowthJob& job : machine.jobs()) preemptions += job.preemptions;
  EXPECT_GT(preemptions, 5);
}

}  // namespace
}  // namespace annulus
