// Room that is kept for the loss of ranks, as admission keeps it.
#include "engine/coordinator/admission/loss_reserve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "engine/base/error_payloads.h"
#include "engine/coordinator/step_recovery.h"
#include "engine/scheduler/repair.h"
#include "tests/engine/coordinator/engine_parts.h"

namespace annulus::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

CoordinatorOptions Tolerating(int ranks, int tolerated) {
  CoordinatorOptions options = EngineParts::Options(ranks);
  options.tolerated_ranks = tolerated;
  options.engine.max_pinned = options.engine.max_pinned_by_tenant = 1;
  return options;
}

// What a test does with parts.
class Parts : public EngineParts {
 public:
  using EngineParts::EngineParts;

  AdmissionPass::Outcome Pass() {
    serving_.NoteRoom();
    return PassAgain();
  }
  // Asks for none of those that found no room, unless some has come.
  AdmissionPass::Outcome PassAgain() {
    AdmissionPass pass(
        {ledger_, serving_, policies_, documents_, prefix_waits_, restore_waits_, starter_});
    return pass.Run(clock_.Now());
  }
  // A request whose prompt begins with `shared` times 'x' and goes on by itself.
  Request& AddAfter(int shared, int own, int32_t fill) {
    RequestSpec spec = Spec(shared);
    spec.prompt.insert(spec.prompt.end(), static_cast<size_t>(own), fill);
    return Add(std::move(spec));
  }
};

// Two ranks of 20 pages of 16 tokens; the loss of one is tolerated, so what runs fits on one.
class LossReserveTest : public ::testing::Test {
 protected:
  Parts parts_{Tolerating(2, 1)};
};

TEST_F(LossReserveTest, WhatDoesNotFitOnTheOtherRanksWaits) {
  const auto add = [](Parts& parts) {
    std::vector<RequestId> ids;
    ids.push_back(parts.Add(EngineParts::Spec(200)).id());          // 13 pages
    ids.push_back(parts.Add(EngineParts::Spec(120, 4, 'y')).id());  // eight
    ids.push_back(parts.Add(EngineParts::Spec(60, 4, 'z')).id());   // four
    return ids;
  };
  Parts without(EngineParts::Options(2));
  EXPECT_THAT(without.Pass().begun, IsEmpty());
  const std::vector<RequestId> all = add(without);
  EXPECT_THAT(without.Pass().begun, ::testing::UnorderedElementsAreArray(all));
  const std::vector<RequestId> ids = add(parts_);
  EXPECT_THAT(parts_.Pass().begun, UnorderedElementsAre(ids[0], ids[2]));
  EXPECT_THAT(parts_.ledger_.waiting(), ElementsAre(ids[1]));
  EXPECT_THAT(parts_.Pass().begun, IsEmpty());
  parts_.Leave(ids[0]);
  EXPECT_THAT(parts_.Pass().begun, ElementsAre(ids[1]));
}

TEST_F(LossReserveTest, OneThatBeginsInAPassCountsForTheNext) {
  const RequestId first = parts_.Add(EngineParts::Spec(156)).id();  // ten pages
  const RequestId second = parts_.Add(EngineParts::Spec(156, 4, 'y')).id();
  const RequestId third = parts_.Add(EngineParts::Spec(10, 4, 'z')).id();
  EXPECT_THAT(parts_.Pass().begun, UnorderedElementsAre(first, second));
  EXPECT_THAT(parts_.ledger_.waiting(), ElementsAre(third));
}

// Of a document that several ask about, each has a page of its own.
TEST_F(LossReserveTest, ABeginningThatSeveralShareCountsOnce) {
  parts_.RunAlone(EngineParts::Spec(160));
  std::vector<RequestId> ids;
  for (const int32_t fill : {'a', 'b', 'c', 'd'}) ids.push_back(parts_.AddAfter(160, 8, fill).id());
  EXPECT_EQ(parts_.Pass().begun.size(), 4u);  // 14 pages
  const RequestId seven = parts_.Add(EngineParts::Spec(106, 4, 'q')).id();
  EXPECT_THAT(parts_.Pass().begun, IsEmpty());
  // Somebody else counts for the beginning now.
  parts_.Leave(ids[0]);
  EXPECT_THAT(parts_.Pass().begun, ElementsAre(seven));
  parts_.Add(EngineParts::Spec(6, 4, 'r'));
  EXPECT_THAT(parts_.Pass().begun, IsEmpty()) << "all 20 pages are taken";
}

TEST_F(LossReserveTest, ABeginningCountsAsItsWritersWhileThatRuns) {
  const Request& writer = parts_.AddAfter(160, 8, 'a');
  EXPECT_EQ(parts_.Pass().begun.size(), 1u);
  for (int step = 0; step < 100 && writer.sequence()->in_prefill(); ++step) parts_.Step();
  ASSERT_FALSE(writer.sequence()->in_prefill());
  for (const int32_t fill : {'b', 'c', 'd'}) parts_.AddAfter(160, 8, fill);
  EXPECT_EQ(parts_.Pass().begun.size(), 3u);
  EXPECT_GT(parts_.ledger_.state().running.back()->computed, 0) << "nothing was shared";
  const RequestId seven = parts_.Add(EngineParts::Spec(106, 4, 'q')).id();
  EXPECT_THAT(parts_.Pass().begun, IsEmpty());
  parts_.Leave(writer.id());
  EXPECT_THAT(parts_.Pass().begun, ElementsAre(seven));
}

TEST_F(LossReserveTest, CachedPagesThatNobodyHoldsDoNotCount) {
  parts_.RunAlone(EngineParts::Spec(300));
  const RequestId other = parts_.Add(EngineParts::Spec(316, 4, 'y')).id();
  EXPECT_THAT(parts_.Pass().begun, ElementsAre(other));
}

TEST_F(LossReserveTest, PinnedDocumentsCount) {
  RequestSpec spec = EngineParts::ReadAhead(64, 'x', "a");
  spec.pin = true;
  parts_.RunAlone(spec);
  ASSERT_TRUE(parts_.documents_.KeepPrefilled(parts_.Add(spec)).ok());
  parts_.Leave(2);
  const RequestId never = parts_.Add(EngineParts::Spec(258, 4, 'y')).id();  // 17 pages
  const auto outcome = parts_.Pass();
  ASSERT_EQ(outcome.failed.size(), 1u);
  EXPECT_EQ(outcome.failed[0].first, never);
  EXPECT_THAT(std::string(outcome.failed[0].second.message()),
              HasSubstr("pinned documents leave 16 of 20 that 1 of 2 ranks have (--tolerate 1)"));
  parts_.Leave(never);
  const RequestId about = parts_.AddAfter(64, 194, 'y').id();  // of its 17 pages four are pinned
  EXPECT_THAT(parts_.Pass().begun, ElementsAre(about));
}

TEST_F(LossReserveTest, NothingIsPinnedInTheRoomOfWhatRuns) {
  const auto pin = [](int pages) {
    RequestSpec spec = EngineParts::ReadAhead(pages * EngineParts::kPage, 'x', "a");
    spec.pin = true;
    return spec;
  };
  parts_.RunAlone(pin(8));
  parts_.Add(EngineParts::Spec(200, 4, 'y'));
  ASSERT_EQ(parts_.Pass().begun.size(), 1u);
  const absl::Status refused = parts_.documents_.KeepPrefilled(parts_.Add(pin(8)));
  EXPECT_EQ(refused.GetPayload(kLimitPayload), absl::Cord("pinned"));
  EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr("--tolerate"), HasSubstr("pin: ")));
  EXPECT_EQ(parts_.documents_.KeepPrefilled(parts_.Add(pin(7))), absl::OkStatus());
}

// What runs keeps its place, so nothing else says that room has come.
TEST_F(LossReserveTest, WhatItHeldBackBeginsOncePinsAreLost) {
  const RequestSpec pinned = [] {
    RequestSpec spec = EngineParts::ReadAhead(64, 'x', "a");
    spec.pin = true;
    return spec;
  }();
  parts_.RunAlone(pinned);
  ASSERT_TRUE(parts_.documents_.KeepPrefilled(parts_.Add(pinned)).ok());
  parts_.Leave(2);
  const Request& running = parts_.Add(EngineParts::Spec(200, 40, 'y'));  // 15 pages
  ASSERT_THAT(parts_.Pass().begun, ElementsAre(running.id()));
  for (int step = 0; step < 4; ++step) parts_.Step();
  const RequestId held = parts_.Add(EngineParts::Spec(60, 4, 'z')).id();  // four, beside four pins
  ASSERT_THAT(parts_.Pass().begun, IsEmpty());
  const PageBook& book = parts_.ledger_.book();
  const int32_t rank = book.pinned_count(0) > 0 ? 0 : 1;
  StepRecovery recovery({parts_.options_, parts_.ledger_, parts_.serving_, parts_.growth_,
                         parts_.checks_, parts_.metrics_, [](const Request&) {},
                         [](RequestId, const absl::Status& status) { ADD_FAILURE() << status; }});
  parts_.ranks_.Become(RanksState::kUp, {rank});
  recovery.RecoverLost(absl::UnavailableError("a rank was lost"), parts_.ranks_.TakeLost());
  ASSERT_EQ(running.timings().repaired, 1);
  EXPECT_THAT(parts_.PassAgain().begun, ElementsAre(held));
}

// Without this the others would go on taking turns beside it for ever.
TEST_F(LossReserveTest, RoomIsGatheredThereForALargeRequest) {
  const RequestId running = parts_.Add(EngineParts::Spec(200)).id();  // 13 pages
  ASSERT_EQ(parts_.Pass().begun.size(), 1u);
  const RequestId large = parts_.Add(EngineParts::Spec(300, 4, 'l')).id();  // 19
  parts_.clock_.Advance(std::chrono::seconds(100));
  EXPECT_THAT(parts_.Pass().begun, IsEmpty());
  const RequestId small = parts_.Add(EngineParts::Spec(90, 4, 's')).id();  // six
  const RequestId tiny = parts_.Add(EngineParts::Spec(10, 4, 't')).id();   // one
  EXPECT_THAT(parts_.Pass().begun, ElementsAre(tiny));
  parts_.Leave(running);
  EXPECT_THAT(parts_.Pass().begun, ElementsAre(large));
  parts_.Leave(large);
  EXPECT_THAT(parts_.Pass().begun, ElementsAre(small));
}

TEST_F(LossReserveTest, APlanSaysThatTheRequestWaits) {
  parts_.Add(EngineParts::Spec(200));
  ASSERT_EQ(parts_.Pass().begun.size(), 1u);
  EXPECT_EQ(parts_.answers_.Answer(EngineParts::Spec(100, 4, 'y')).room, RoomFor::kNow);
  EXPECT_EQ(parts_.answers_.Answer(EngineParts::Spec(120, 4, 'y')).room, RoomFor::kLater);
}

// With --admission expected: the pages that an answer has now, not those that it may come to.
TEST(LossReserve, AnswersCountWithWhatTheyHave) {
  CoordinatorOptions options = Tolerating(2, 1);
  options.engine.admission = AdmissionMode::kExpected;
  Parts parts(options);
  for (int i = 0; i < AnswerLength::kLeastAnswers; ++i) parts.serving_.CountAnswer(20);
  for (const int32_t fill : {'a', 'b', 'c'}) parts.Add(EngineParts::Spec(20, 280, fill));
  EXPECT_EQ(parts.Pass().begun.size(), 3u);
  const auto& running = parts.ledger_.state().running;
  ASSERT_LT(running[0]->reserved, 300);
  const int32_t each = running[0]->reserved / EngineParts::kPage;
  const int left = 20 - 3 * each;
  ASSERT_GT(left, 1);
  const RequestId too_much = parts.Add(EngineParts::Spec(left * EngineParts::kPage, 1, 'y')).id();
  EXPECT_THAT(parts.Pass().begun, IsEmpty());
  parts.Leave(too_much);
  const RequestId fits = parts.Add(EngineParts::Spec(left * EngineParts::kPage - 1, 1, 'z')).id();
  EXPECT_THAT(parts.Pass().begun, ElementsAre(fits));
}

TEST(LossReserve, WhatIsLeftIsForUseOnceSoManyRanksAreLost) {
  Parts parts(Tolerating(3, 2));
  const RequestId first = parts.Add(EngineParts::Spec(200)).id();  // 13 pages
  const RequestId second = parts.Add(EngineParts::Spec(200, 4, 'y')).id();
  EXPECT_EQ(parts.Pass().begun.size(), 1u);
  parts.ledger_.book().SetUsable(2, false);
  EXPECT_THAT(parts.Pass().begun, IsEmpty()) << "another may be lost";
  parts.Leave(first);
  parts.ledger_.book().SetUsable(1, false);
  EXPECT_THAT(parts.Pass().begun, ElementsAre(second));
  const RequestId third = parts.Add(EngineParts::Spec(100, 4, 'z')).id();  // seven
  EXPECT_THAT(parts.Pass().begun, ElementsAre(third));
}

// Everything that runs is set back, as if all of it had pages on lost ranks, and begins again on
// what is left of the ring.
class RandomLoss {
 public:
  RandomLoss(uint64_t seed, bool tolerates) : random_(seed), tolerates_(tolerates) {}

  // Adds how many ran, and how many of them begin again at once.
  void Run(int& ran, int& again) {
    const int ranks = 2 + Draw(4);
    const int lost = 1 + Draw(ranks - 2);
    CoordinatorOptions options = Tolerating(ranks, tolerates_ ? lost : 0);
    if (Draw(1) == 0) options.limits.group_windows = {0, 40};
    Parts parts(options);
    const TrialRing left(parts.options_.limits,
                         std::vector<int32_t>(static_cast<size_t>(ranks - lost), 20));
    for (int i = 0; i < 8; ++i) {
      RequestSpec spec = EngineParts::Spec(1 + Draw(60 + 300 * Draw(1)), 1 + Draw(60), 'a' + i);
      if (left.Fits(parts.needs_.Of(spec, nullptr))) parts.Add(std::move(spec));
    }
    std::set<RequestId> begun;
    for (const RequestId id : parts.Pass().begun) begun.insert(id);
    for (int step = Draw(6); step > 0 && !parts.ledger_.state().running.empty(); --step) {
      parts.Step();
    }
    for (const auto& [id, reason] : parts.ended_) begun.erase(id);
    Lose(parts, lost);
    for (const RequestId id : begun) parts.growth_.SetBack(parts.ledger_.request(id));
    parts.ledger_.state().ended.clear();  // the ranks have forgotten all sequences
    const auto outcome = parts.Pass();
    EXPECT_THAT(outcome.failed, IsEmpty());
    ran += static_cast<int>(begun.size());
    for (const RequestId id : outcome.begun) again += begun.contains(id) ? 1 : 0;
    // The others follow as room comes.
    for (int step = 0; step < 5000 && !parts.ledger_.requests().empty(); ++step) {
      if (!parts.ledger_.state().running.empty()) parts.Step();
      EXPECT_THAT(parts.Pass().failed, IsEmpty());
    }
    EXPECT_TRUE(parts.ledger_.requests().empty());
  }

 private:
  void Lose(Parts& parts, int count) {
    std::vector<int32_t> lost(static_cast<size_t>(parts.options_.limits.ranks));
    std::iota(lost.begin(), lost.end(), 0);
    std::shuffle(lost.begin(), lost.end(), random_);
    lost.resize(static_cast<size_t>(count));
    parts.ranks_.LeaveOut(lost);
    parts.ranks_.Become(RanksState::kUp, lost);
    lost = parts.ranks_.TakeLost();
    parts.ledger_.ForgetPages(lost);
    LosePages(lost, parts.options_.limits, parts.ledger_.state(), parts.ledger_.book());
  }
  // From 0 to `most`.
  int Draw(int most) { return static_cast<int>(random_() % static_cast<uint64_t>(most + 1)); }

  std::mt19937_64 random_;
  const bool tolerates_;
};

TEST(LossReserve, WhatRunsHasRoomOnceRanksAreLost) {
  int ran[2] = {0, 0};
  int again[2] = {0, 0};
  for (uint64_t seed = 0; seed < 80; ++seed) {
    for (const bool tolerates : {false, true}) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << ", tolerates " << tolerates);
      RandomLoss(seed, tolerates).Run(ran[tolerates], again[tolerates]);
      if (::testing::Test::HasFailure()) return;
    }
  }
  EXPECT_LT(again[0], ran[0] * 8 / 10) << "nothing had to wait without the reserve either";
  // They begin in serving order, in which now and then one fewer fits.
  EXPECT_GT(again[1], ran[1] * 97 / 100);
}

}  // namespace
}  // namespace annulus::testing
