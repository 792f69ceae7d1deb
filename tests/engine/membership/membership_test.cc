#include "engine/membership/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace annulus {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Role = Membership::Role;

class MembershipTest : public ::testing::Test {
 protected:
  MemberId Join(const std::string& name, int ranks) {
    const MemberId id = ring_.Dial(now_);
    EXPECT_EQ(ring_.Hello(id, name, ranks), absl::OkStatus());
    return id;
  }
  // Whoever got a seat opens its wires, the epoch begins, and all are ready.
  void Begin() {
    for (const MemberId id : ring_.Hosts()) {
      ring_.Wires(id, ring_.next_epoch()).status().IgnoreError();
    }
    ASSERT_TRUE(ring_.CanForm(now_));
    ring_.Form(now_);
    for (const MemberId id : ring_.Hosts()) {
      if (ring_.IsReady(id)) continue;
      EXPECT_EQ(ring_.Ready(id), absl::OkStatus());
    }
    ring_.Found();
  }
  // Of 4 ranks, the first is not at workers.
  void Found() {
    big_ = Join("b", 2);
    small_ = Join("a", 1);
    ASSERT_THAT(ring_.Fill(now_), ElementsAre(small_, big_));
    Begin();
    ASSERT_TRUE(ring_.is_up());
  }

  // They are heard, and these are late then.
  std::vector<MemberId> Late(const Membership::Work& of_small, const Membership::Work& of_big) {
    for (const MemberId id : {small_, big_}) {
      ring_.Hear(id, now_);
      EXPECT_TRUE(ring_.Advance(id, id == small_ ? of_small : of_big, now_).ok());
    }
    std::vector<MemberId> late;
    for (const Membership::Late& one : ring_.FindLate(now_)) late.push_back(one.id);
    return late;
  }
  std::string WhyLate() const { return std::string(ring_.FindLate(now_).at(0).why.message()); }

  SteadyTime now_{1h};
  Membership ring_{{.first_rank = 1,
                    .ranks = 4,
                    .silence = 2s,
                    .step_silence = 30s,
                    .step_limit = 1h,
                    .hello_timeout = 10s,
                    .forming_timeout = 7s,
                    .replacement_timeout = 60s}};
  MemberId big_ = 0;
  MemberId small_ = 0;
};

TEST_F(MembershipTest, SeatsAreCutByNamesOnceAllRanksHaveAWorker) {
  Join("b", 2);
  EXPECT_THAT(ring_.Fill(now_), IsEmpty());
  EXPECT_EQ(ring_.Missing(), 1);
  const MemberId small = Join("a", 1);
  EXPECT_THAT(ring_.Fill(now_), SizeIs(2));
  EXPECT_EQ(ring_.SeatOf(small)->first_rank, 1);
  EXPECT_EQ(ring_.SeatOfRank(3).first_rank, 2);
}

TEST_F(MembershipTest, TheSpareThatWaitedLongestAndFitsTakesTheSeat) {
  Found();
  const MemberId other_size = Join("c", 2);
  const MemberId first = Join("z", 1);
  const MemberId second = Join("d", 1);
  EXPECT_EQ(ring_.role(first), Role::kSpare);
  ring_.Leave(small_, now_);
  EXPECT_FALSE(ring_.is_up());
  EXPECT_THAT(ring_.Fill(now_), ElementsAre(first));
  EXPECT_EQ(ring_.SeatOf(first)->first_rank, 1);
  EXPECT_THAT(ring_.Spares(), ElementsAre(other_size, second));
  EXPECT_EQ(ring_.vacant_since(), std::nullopt);
}

TEST_F(MembershipTest, NothingIsUpBeforeTheLossWasTaken) {
  Found();
  ring_.Leave(big_, now_);
  Join("c", 2);
  ring_.Fill(now_);
  EXPECT_THAT(ring_.Abort(now_), ElementsAre(small_));
  Begin();
  EXPECT_FALSE(ring_.is_up());
  EXPECT_THAT(ring_.TakeLost(), ElementsAre(2, 3));
  EXPECT_TRUE(ring_.is_up());
  EXPECT_THAT(ring_.TakeLost(), IsEmpty());
}

TEST_F(MembershipTest, AWorkerThatFitsNoSeatIsRefusedWithTheSizes) {
  Found();
  const absl::Status refused = ring_.Hello(ring_.Dial(now_), "c", 3);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("hosts 3 ranks"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("host 1 or 2"));
}

TEST_F(MembershipTest, ANameIsFreeOnceItsWorkerIsGone) {
  Found();
  EXPECT_EQ(ring_.Hello(ring_.Dial(now_), "a", 1).code(), absl::StatusCode::kAlreadyExists);
  ring_.Leave(small_, now_);
  Join("a", 1);
}

TEST_F(MembershipTest, WhatBearsAnEarlierEpochIsLate) {
  Found();
  ring_.BeginStep(now_);
  ring_.Abort(now_);
  EXPECT_FALSE(ring_.Result(small_, 1, 1, now_).value());
  EXPECT_TRUE(ring_.Wires(small_, 2).value());
  EXPECT_TRUE(ring_.Wires(big_, 2).value());
  ring_.Form(now_);
  EXPECT_FALSE(ring_.Wires(small_, 2).value());
  EXPECT_FALSE(ring_.Result(small_, 1, 1, now_).value());
}

TEST_F(MembershipTest, WhatNoHostCanSendIsAFault) {
  Found();
  EXPECT_FALSE(ring_.Result(small_, 1, 1, now_).ok()) << "no step has begun";
  ring_.BeginStep(now_);
  EXPECT_FALSE(ring_.Result(small_, 2, 1, now_).ok()) << "an epoch to come";
  EXPECT_FALSE(ring_.Result(small_, 1, 2, now_).ok()) << "a step to come";
  EXPECT_TRUE(ring_.Result(small_, 1, 1, now_).value());
  EXPECT_FALSE(ring_.Result(small_, 1, 1, now_).ok()) << "twice";
  EXPECT_FALSE(ring_.Wires(small_, 2).ok()) << "the epoch lasts";
  EXPECT_FALSE(ring_.Ready(small_).ok()) << "twice";
  const MemberId spare = Join("c", 1);
  EXPECT_FALSE(ring_.Result(spare, 1, 1, now_).ok());
  EXPECT_FALSE(ring_.Ready(spare).ok());
  EXPECT_FALSE(ring_.Beat(ring_.Dial(now_)).ok()) << "before Hello";
}

TEST_F(MembershipTest, ASpareThatTakesASeatJoinsWithTheNextEpoch) {
  Found();
  ring_.BeginStep(now_);
  ring_.Leave(small_, now_);
  const MemberId spare = Join("c", 1);
  ring_.Fill(now_);
  EXPECT_FALSE(ring_.IsInEpoch(spare));
  EXPECT_FALSE(ring_.Result(spare, 1, 1, now_).ok());
  EXPECT_TRUE(ring_.Wires(spare, 2).value()) << "it need not wait for that";
  EXPECT_FALSE(ring_.CanForm(now_)) << "the epoch lasts until it is aborted";
}

TEST_F(MembershipTest, WhoeverIsLateIsFoundWithTheReason) {
  Found();
  const MemberId stranger = ring_.Dial(now_);
  const MemberId spare = Join("c", 1);
  ring_.Abort(now_);
  EXPECT_EQ(ring_.NextLate(), now_ + 2s);
  for (const MemberId id : {small_, big_, spare}) ring_.Hear(id, now_ + 6s);
  EXPECT_THAT(ring_.FindLate(now_ + 6999ms), IsEmpty());
  const auto late = ring_.FindLate(now_ + 7s);
  ASSERT_THAT(late, SizeIs(2));
  EXPECT_THAT(std::string(late[0].why.message()), HasSubstr("open its wires within 7000 ms"));
  const auto silent = ring_.FindLate(now_ + 10s);
  ASSERT_THAT(silent, SizeIs(4));
  EXPECT_THAT(std::string(silent[0].why.message()), HasSubstr("said nothing for 2000 ms"));
  EXPECT_EQ(silent[2].id, stranger);
  EXPECT_THAT(std::string(silent[2].why.message()), HasSubstr("Hello within 10000 ms"));
}

TEST_F(MembershipTest, WhoeverBeatsAndMakesNoProgressIsLate) {
  Found();
  now_ += 1h;
  EXPECT_THAT(Late({5}, {7}), IsEmpty()) << "no step is awaited";
  ring_.BeginStep(now_);
  for (uint64_t turn = 1; turn < 30; ++turn) {
    now_ += 1s;
    ASSERT_THAT(Late({5, 1, 0}, {7 + turn, 2, 1}), IsEmpty()) << turn;
  }
  EXPECT_EQ(ring_.NextLate(), now_ + 1s);
  now_ += 1s;
  EXPECT_THAT(Late({5, 1, 0}, {99, 2, 1}), ElementsAre(small_));
  EXPECT_THAT(WhyLate(), HasSubstr("its step has made no progress for 30000 ms"));
  EXPECT_THAT(Late({6, 1, 0}, {99, 2, 1}), IsEmpty()) << "slow, and it goes on";
  now_ += 29s;
  EXPECT_THAT(Late({6, 1, 0}, {100, 2, 1}), IsEmpty());
}

TEST_F(MembershipTest, WhoeverHasEndedItsStepAndDoesNotSaySoIsLate) {
  Found();
  ring_.BeginStep(now_);
  ring_.BeginStep(now_);
  now_ += 20s;
  EXPECT_TRUE(ring_.Result(small_, 1, 1, now_).value());
  EXPECT_THAT(Late({}, {}), IsEmpty());
  now_ += 10s;
  EXPECT_THAT(Late({}, {}), ElementsAre(big_));
  now_ += 20s;
  EXPECT_THAT(Late({}, {1}), ElementsAre(small_)) << "of its second step";
  EXPECT_TRUE(ring_.Result(small_, 1, 2, now_).value());
  EXPECT_THAT(Late({}, {1}), IsEmpty());
}

TEST_F(MembershipTest, WhoeverWaitsForOthersIsNotLate) {
  Found();
  ring_.BeginStep(now_);
  for (uint64_t turn = 1; turn <= 100; ++turn) {
    now_ += 1s;
    ASSERT_THAT(Late({5, 1, 1}, {turn, 2, 1}), IsEmpty()) << turn;
  }
  now_ += 29s;
  EXPECT_THAT(Late({5, 1, 0}, {200, 2, 1}), IsEmpty()) << "it had nothing to go on with before";
  now_ += 1s;
  EXPECT_THAT(Late({5, 1, 0}, {201, 2, 1}), ElementsAre(small_));
}

TEST_F(MembershipTest, WhoeverDoesNotLetGoOfAStepIsLate) {
  Found();
  ring_.BeginStep(now_);
  now_ += 25s;
  EXPECT_THAT(Late({0, 1, 0}, {1, 2, 2}), IsEmpty());
  ring_.Abort(now_);
  now_ += 5s;
  EXPECT_THAT(Late({0, 1, 0}, {1, 0, 0}), ElementsAre(small_));
  EXPECT_THAT(WhyLate(), HasSubstr("no progress"));
}

TEST_F(MembershipTest, AStepMayRunUntilItsHostOpensWires) {
  EXPECT_FALSE(ring_.MayRunStep(small_)) << "no epoch has begun";
  Found();
  ring_.BeginStep(now_);
  EXPECT_TRUE(ring_.MayRunStep(small_));
  ring_.Abort(now_);
  EXPECT_TRUE(ring_.MayRunStep(small_));
  EXPECT_TRUE(ring_.MayRunStep(big_));
  const MemberId spare = Join("c", 1);
  ring_.Leave(small_, now_);
  ASSERT_THAT(ring_.Fill(now_), ElementsAre(spare));
  EXPECT_FALSE(ring_.MayRunStep(small_)) << "it is gone";
  EXPECT_FALSE(ring_.MayRunStep(spare)) << "it had no step";
  EXPECT_EQ(*ring_.Wires(big_, 2), true);
  EXPECT_FALSE(ring_.MayRunStep(big_)) << "though the next epoch has yet to begin";
  Begin();
  EXPECT_TRUE(ring_.MayRunStep(big_)) << "those wires were for this epoch";
}

// Whatever it says.
TEST_F(MembershipTest, EveryStepEndsOrItsHostIsLate) {
  Found();
  ring_.BeginStep(now_);
  for (uint64_t turn = 1; turn <= 7200; ++turn) {
    now_ += 1s;
    const auto late = Late({turn, 1, 0}, {turn, 2, 2});
    std::vector<MemberId> expected;
    if (turn == 7200) expected.push_back(big_);
    if (turn >= 3600) expected.push_back(small_);
    ASSERT_EQ(late, expected) << turn;
    if (turn == 3600) {
      EXPECT_THAT(WhyLate(), HasSubstr("has not ended within 3600000 ms"));
    }
  }
}

TEST_F(MembershipTest, WhatNoRanksCanDoIsAFault) {
  Found();
  EXPECT_TRUE(ring_.Advance(small_, {7}, now_).value());
  EXPECT_FALSE(ring_.Advance(small_, {7}, now_).value());
  EXPECT_FALSE(ring_.Advance(small_, {6}, now_).ok()) << "progress that is undone";
  EXPECT_FALSE(ring_.Advance(small_, {8, 2, 0}, now_).ok()) << "more ranks than it has";
  EXPECT_FALSE(ring_.Advance(small_, {8, -1, -1}, now_).ok());
  EXPECT_FALSE(ring_.Advance(small_, {8, 0, 1}, now_).ok()) << "who waits has a step";
  EXPECT_FALSE(ring_.Advance(small_, {8, 1, -1}, now_).ok());
  EXPECT_FALSE(ring_.Advance(ring_.Dial(now_), {}, now_).ok()) << "before Hello";
}

TEST_F(MembershipTest, AVacancyLastsUntilTheRingIsWholeAgain) {
  Found();
  const SteadyTime lost = now_;
  ring_.Leave(small_, lost);
  ring_.Abort(now_);
  EXPECT_EQ(ring_.vacant_since(), lost);
  // One that comes and goes does not begin it anew.
  now_ += 5s;
  const MemberId flighty = Join("c", 1);
  ring_.Fill(now_);
  EXPECT_EQ(ring_.vacant_since(), std::nullopt);
  ring_.Leave(flighty, now_);
  EXPECT_EQ(ring_.vacant_since(), lost);
  Join("d", 1);
  ring_.Fill(now_);
  Begin();
  ring_.Leave(big_, now_);
  EXPECT_EQ(ring_.vacant_since(), now_);
}

TEST_F(MembershipTest, ASeatThatNobodyTakesIsLeftOutUntilSomebodyDoes) {
  Found();
  ring_.Leave(big_, now_);
  EXPECT_THAT(ring_.TakeLost(), ElementsAre(2, 3));
  ring_.Abort(now_);
  EXPECT_TRUE(ring_.Wires(small_, 2).value());
  EXPECT_FALSE(ring_.CanForm(now_ + 59s));
  now_ += 60s;
  Begin();
  EXPECT_TRUE(ring_.SeatOfRank(3).left_out);
  EXPECT_EQ(ring_.vacant_since(), std::nullopt);
  EXPECT_FALSE(ring_.is_up()) << "whoever plans must hear of it first";
  EXPECT_THAT(ring_.TakeLost(), ElementsAre(2, 3));
  EXPECT_TRUE(ring_.is_up());
  // One that comes and goes leaves it as it was.
  const MemberId flighty = Join("c", 2);
  EXPECT_THAT(ring_.Fill(now_), ElementsAre(flighty));
  EXPECT_FALSE(ring_.is_up()) << "it is to be formed anew";
  ring_.Leave(flighty, now_);
  EXPECT_THAT(ring_.TakeLost(), ElementsAre(2, 3));
  EXPECT_TRUE(ring_.is_up());
  EXPECT_EQ(ring_.vacant_since(), std::nullopt);
  Join("d", 2);
  ring_.Fill(now_);
  ring_.Abort(now_);
  Begin();
  EXPECT_FALSE(ring_.SeatOfRank(3).left_out);
  EXPECT_THAT(ring_.TakeLost(), ElementsAre(2, 3));
  EXPECT_TRUE(ring_.is_up());
}

TEST_F(MembershipTest, ARingWithoutAnyRankWaitsForOne) {
  Membership ring{{.ranks = 1, .silence = 2s, .replacement_timeout = 60s}};
  const MemberId only = ring.Dial(now_);
  EXPECT_EQ(ring.Hello(only, "a", 1), absl::OkStatus());
  ring.Fill(now_);
  EXPECT_TRUE(ring.Wires(only, 1).value());
  ring.Form(now_);
  EXPECT_EQ(ring.Ready(only), absl::OkStatus());
  ring.Found();
  ring.Leave(only, now_);
  ring.Abort(now_);
  EXPECT_FALSE(ring.CanShrink());
  EXPECT_FALSE(ring.CanForm(now_ + 61s));
}

// It has never served: nobody waits for answers, and its memory was counted with all ranks.
TEST_F(MembershipTest, ARingThatFormsFirstWaitsForAllRanks) {
  big_ = Join("b", 2);
  small_ = Join("a", 1);
  ring_.Fill(now_);
  EXPECT_TRUE(ring_.Wires(small_, 1).value());
  ring_.Leave(big_, now_);
  EXPECT_FALSE(ring_.CanForm(now_ + 61s));
}

// It takes its memory once the epoch begins, for which it waits as long as for the others.
TEST_F(MembershipTest, WhoeverWaitsForOthersIsNotLateWithItsMemory) {
  big_ = Join("b", 2);
  small_ = Join("a", 1);
  ring_.Fill(now_);
  EXPECT_TRUE(ring_.Wires(small_, 1).value());
  ring_.Leave(big_, now_);
  now_ += 60s;
  ring_.Hear(small_, now_);
  EXPECT_THAT(ring_.FindLate(now_ + 1s), IsEmpty());
  big_ = Join("c", 2);
  ring_.Fill(now_);
  EXPECT_TRUE(ring_.Wires(big_, 1).value());
  ring_.Form(now_);
  now_ += 7s;
  for (const MemberId id : {small_, big_}) ring_.Hear(id, now_);
  const auto late = ring_.FindLate(now_);
  ASSERT_THAT(late, SizeIs(2));
  EXPECT_THAT(std::string(late[0].why.message()), HasSubstr("take its memory within 7000 ms"));
}

// All were ready, but it was not founded by then.
TEST_F(MembershipTest, WhoeverLeavesARingThatWasNotFoundedTakesNothing) {
  big_ = Join("b", 2);
  small_ = Join("a", 1);
  ring_.Fill(now_);
  for (const MemberId id : {small_, big_}) EXPECT_TRUE(ring_.Wires(id, 1).value());
  ring_.Form(now_);
  for (const MemberId id : {small_, big_}) EXPECT_EQ(ring_.Ready(id), absl::OkStatus());
  ring_.Leave(big_, now_);
  ring_.Abort(now_);
  EXPECT_THAT(ring_.TakeLost(), IsEmpty());
  EXPECT_TRUE(ring_.Wires(small_, 2).value());
  EXPECT_FALSE(ring_.CanForm(now_ + 61s));
  Join("c", 2);
  ring_.Fill(now_);
  Begin();
  EXPECT_TRUE(ring_.is_up());
}

}  // namespace
}  // namespace annulus
