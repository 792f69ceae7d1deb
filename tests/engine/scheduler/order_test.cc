// Whose turn it is, and what decides that: shares, slots, standstill and pace.

#include "engine/scheduler/order.h"

#include <chrono>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "engine/scheduler/admission.h"
#include "engine/scheduler/owner_slots.h"
#include "engine/scheduler/prompt_pace.h"
#include "engine/scheduler/standstill.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

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
TEST(OwnerSlots, APassOverThousandsLooksAtEachOnce) {
  constexpr int kMost = 2000;
  class Counting final : public AdmissionHost {
   public:
    bool HasTime() override { return true; }
    bool HasSlot(const Contender& contender) override {
      ++asked;
      return slots.Has(contender.share.owner());
    }
    bool Waits(const Contender&, const Contender*) override { return false; }
    Answer TryAdmit(const Contender& contender, const Contender*) override {
      slots.Take(contender.share.owner());
      ++admitted;
      return Answer::kAdmitted;
    }
    OwnerSlots slots{kMost};
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
TEST(OwnerSlots, APassThatTakesLongIsCutAndTheNextGoesOn) {
  class Looking final : public AdmissionHost {
   public:
    bool HasTime() override { return looks < 16; }
    bool HasSlot(const Contender&) override { return true; }
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

TEST(OwnerSlots, TheLastEighthIsKeptForOthers) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    const int most = 1 + static_cast<int>(random() % 40);
    OwnerSlots slots(most);
    std::map<std::string, int> by_owner;
    int all = 0;
    for (int i = 0; i < 60; ++i) {
      const bool tenant = random() % 2 == 0;
      const std::string client(random() % 3, 'c');
      const ShareName share{tenant ? "t" : "default", client, std::to_string(i)};
      const std::string owner = tenant ? "t" : client;
      const bool has = all < most && (all < most - most / 8 || owner.empty() ||
                                      by_owner[owner] < most - most / 8);
      ASSERT_EQ(slots.Has(share.owner()), has) << "round " << round;
      if (!has) continue;
      slots.Take(share.owner());
      ++by_owner[owner];
      ASSERT_EQ(slots.taken(), ++all);
      if (random() % 4 != 0) continue;
      slots.Give(share.owner());
      --by_owner[owner];
      --all;
    }
  }
}

// A long step is none, nor is a short wait.
TEST(Standstill, IsToBeLeftOutOfManyStepsForSomeTime) {
  Standstill still;
  Standstill::Time now{};
  EXPECT_FALSE(still.StandsStill(1, 64, 10, now));
  EXPECT_FALSE(still.StandsStill(1, 64, 11, now += std::chrono::hours(1)));
  EXPECT_FALSE(still.StandsStill(1, 64, 25, now));
  EXPECT_TRUE(still.StandsStill(1, 64, 26, now));
  EXPECT_FALSE(still.StandsStill(1, 128, 27, now));
  EXPECT_FALSE(still.StandsStill(1, 128, 1000, now += std::chrono::milliseconds(1999)));
  EXPECT_TRUE(still.StandsStill(1, 128, 1000, now += std::chrono::milliseconds(1)));
  still.Forget(1);
  EXPECT_FALSE(still.StandsStill(1, 128, 1000, now));
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

}  // namespace
}  // namespace annulus
