#include "engine/coordinator/admission/start_finder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/coordinator/engine_parts.h"

namespace annulus::testing {
namespace {

using ::testing::ElementsAre;

class StartFinderTest : public ::testing::Test, protected EngineParts {
 protected:
  // Finds a start for a waiting request, and gives its pages back.
  std::optional<annulus::Start> Find(const Request& request, const Request* large = nullptr) {
    auto start = finder_.Find(request, needs_.Of(request),
                              ledger_.prefixes().Find(request.spec(), nullptr), large);
    EXPECT_TRUE(start.ok()) << start.status();
    const PageOwner owner = OwnerOfRequest(request.id());
    EXPECT_EQ(ledger_.book().IsOpen(owner), start->has_value());
    if (start->has_value()) ledger_.book().Release(owner);
    return *std::move(start);
  }
};

TEST_F(StartFinderTest, ACachedBeginningIsReusedWhereItLies) {
  RunAlone(Spec(48));
  const auto start = Find(Add(Spec(60)));
  ASSERT_TRUE(start.has_value() && start->hit.has_value());
  EXPECT_EQ(start->cached, 48);
  EXPECT_EQ(start->choice.ring.size(), 1u);
  EXPECT_EQ(start->choice.ring[0], start->hit->groups[0][0].id.rank);
  // Beside two that run there, all of it takes less on the other rank.
  for (const int32_t fill : {'y', 'z'}) {
    Start(Spec(20, 4, fill));
    ledger_.state().running.back()->ring = start->choice.ring;
  }
  const auto elsewhere = Find(Add(Spec(100)));
  ASSERT_TRUE(elsewhere.has_value());
  EXPECT_FALSE(elsewhere->hit.has_value());
}

TEST_F(StartFinderTest, WhatDoesNotFitTakesNothing) {
  Start(Spec(400));
  const int64_t free = FreePages();
  EXPECT_FALSE(Find(Add(Spec(400, 4, 'y'))).has_value());
  EXPECT_EQ(FreePages(), free);
}

TEST_F(StartFinderTest, TheTenantsLimitIsAnError) {
  RequestSpec spec = Spec(60);
  spec.tenant = *TenantId::FromName("us");
  spec.tenant_room.kv_bytes = 3 * 4096;
  const Request& request = Add(std::move(spec));
  const auto start = finder_.Find(request, needs_.Of(request), {}, nullptr);
  EXPECT_EQ(start.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(ledger_.book().IsOpen(OwnerOfRequest(request.id())));
}

// What begins must leave the room that is gathered for a large request: all that ran before it
// will end, and what has begun since may not.
TEST_F(StartFinderTest, RoomThatIsGatheredIsNotTaken) {
  Start(Spec(200));
  const Request& large = Add(Spec(500, 4, 'l'));  // 16 of 20 pages on each rank
  EXPECT_FALSE(Find(large).has_value());
  const Request& small = Add(Spec(110, 4, 's'));  // four on each rank
  const auto start = Find(small, &large);
  ASSERT_TRUE(start.has_value());
  ASSERT_EQ(start->choice.ring.size(), 2u);
  finder_.NoteBegun(small.id(), *start);
  EXPECT_FALSE(Find(Add(Spec(10, 4, 't')), &large).has_value()) << "a page more is too much";
  EXPECT_TRUE(Find(Add(Spec(10, 4, 't'))).has_value()) << "there is room otherwise";
  finder_.Forget(small.id());
  EXPECT_TRUE(Find(Add(Spec(10, 4, 't')), &large).has_value()) << "the other has ended";
}

TEST_F(StartFinderTest, CachedPagesAreFreedOnlyIfTheyGiveARing) {
  RunAlone(Spec(300));
  const int64_t free = FreePages();
  ASSERT_LT(free, 40);
  const RequestSpec whole = Spec(600, 4, 'y');
  const PageDemand demand = needs_.Of(whole, nullptr);
  const auto refuse = [](const RingChoice&) { return false; };
  EXPECT_FALSE(finder_.MakeRoom(whole, demand, {}, refuse).has_value());
  EXPECT_EQ(FreePages(), free) << "the ring was refused";
  const RequestSpec never = Spec(700, 4, 'y');
  const auto accept = [](const RingChoice&) { return true; };
  EXPECT_FALSE(finder_.MakeRoom(never, needs_.Of(never, nullptr), {}, accept).has_value());
  EXPECT_EQ(FreePages(), free) << "it fits in no case";
  EXPECT_TRUE(finder_.MakeRoom(whole, demand, {}, accept).has_value());
  EXPECT_GT(FreePages(), free);
}

// A short text needs no page of its ring's last rank, but may have its home there.
TEST_F(StartFinderTest, RanksThatAreNotUsableAreOnNoRing) {
  const RequestSpec spec = Spec(10);
  const PageDemand demand = needs_.Of(spec, nullptr);
  const auto accept = [](const RingChoice&) { return true; };
  EXPECT_TRUE(finder_.MakeRoom(spec, demand, {0, 1}, accept).has_value());
  ledger_.book().SetUsable(1, false);
  EXPECT_FALSE(finder_.MakeRoom(spec, demand, {0, 1}, accept).has_value());
  EXPECT_TRUE(finder_.MakeRoom(spec, demand, {0}, accept).has_value());
}

TEST_F(StartFinderTest, RestoresGoOnBehindMemoryUnlessItsRankIsTooSmall) {
  RunAlone(Spec(32));
  std::optional<PrefixReuse::Found> before = ledger_.prefixes().FindFull(Spec(200), 32);
  ASSERT_TRUE(before.has_value());
  PageDemand demand = needs_.Of(Spec(60), nullptr);
  EXPECT_THAT(finder_.RestoreTargets(demand, 48, before), ElementsAre(&*before, nullptr));
  EXPECT_THAT(finder_.RestoreTargets(demand, 48, std::nullopt), ElementsAre(nullptr));
  // A long rest is computed by two ranks in less time than by the one that has the first pages.
  demand = needs_.Of(Spec(300), nullptr);
  EXPECT_THAT(finder_.RestoreTargets(demand, 48, before), ElementsAre(nullptr, &*before));
}

}  // namespace
}  // namespace annulus::testing
