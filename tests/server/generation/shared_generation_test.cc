// Requests with a name, without a server: who holds up whom, and whose answers stay.

#include "server/generation/shared_generation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/errors.h"
#include "tests/server/generation/sink_fixture.h"
#include "tests/server/test_server.h"

namespace annulus::server {
namespace {

using ::testing::HasSubstr;

class SharedGenerationTest : public SinkFixture {
 protected:
  void NewTable(size_t memory) {
    table_ = std::make_unique<AttachTable>(AttachLimits{memory, std::chrono::hours(1)});
  }
  std::shared_ptr<SharedGeneration> Claim(const RequestKey& key,
                                          const std::shared_ptr<BoundedSink>& sink) {
    const auto claimed = table_->Claim(key, "content", sink, {});
    EXPECT_TRUE(claimed.ok() && claimed->is_new) << claimed.status();
    return claimed->generation;
  }
  absl::StatusOr<std::shared_ptr<SharedGeneration>> Follow(
      const RequestKey& key, const std::shared_ptr<BoundedSink>& sink) {
    return table_->Follow(key, "content", sink, {});
  }
  // Whether the answer is there, complete.
  bool IsThere(const RequestKey& key) {
    const auto sink = NewSink();
    const auto found = Follow(key, sink);
    if (!found.ok() || *found == nullptr) return false;
    const auto events = ReadAll(**found, sink);
    (*found)->Leave(*sink);
    return !events.empty() && std::holds_alternative<Completion>(events.back());
  }

  // A whole answer whose reader keeps up and leaves.
  void Answer(const RequestKey& key, int deltas) {
    const auto sink = NewSink();
    const auto generation = Claim(key, sink);
    for (int i = 0; i < deltas; ++i) {
      generation->OnDelta(Number(i));
      ReadAll(*generation, sink);
    }
    generation->OnDone({});
    ReadAll(*generation, sink);
    generation->Leave(*sink);
  }

  std::unique_ptr<AttachTable> table_;
};

// Whether it was behind when the memory became full, or stops only then.
TEST_F(SharedGenerationTest, WithoutMemoryASlowCallIsEndedAndHoldsNobodyUp) {
  constexpr size_t kMemory = 20'000;
  for (const int stops_after : {0, 50}) {
    SCOPED_TRACE(stops_after);
    NewTable(kMemory);
    const auto fast = NewSink();
    const auto slow = NewSink();
    const auto generation = Claim({"t", "a"}, fast);
    ASSERT_TRUE(Follow({"t", "a"}, slow).ok());
    int next = 0;
    for (int i = 0; i < 100; ++i) {
      ASSERT_TRUE(generation->HasRoom()) << i;
      generation->OnDelta(Number(i));
      for (const SinkEvent& event : ReadAll(*generation, fast)) {
        EXPECT_EQ(std::get<Delta>(event).text, Number(next++).text);
      }
      if (i < stops_after) {
        EXPECT_EQ(ReadAll(*generation, slow).size(), 1u);
      }
      EXPECT_LE(table_->bytes(), kMemory);
    }
    EXPECT_EQ(next, 100);
    const auto told = ReadAll(*generation, slow);
    ASSERT_EQ(told.size(), 1u);
    const absl::Status status = std::get<Completion>(told[0]).status;
    EXPECT_EQ(Details(ToGrpcStatus(status)).reason, "SLOW_READER");
    EXPECT_THAT(std::string(status.message()), HasSubstr("--max-replay-memory"));
    // It is gone: with the other the work ends, whether or not it heard so.
    EXPECT_TRUE(generation->Wanted());
    generation->Leave(*fast);
    EXPECT_FALSE(generation->Wanted());
    generation->Leave(*slow);
  }
}

// A call alone stands still as one of a request without a name does: the engine ends it in time.
TEST_F(SharedGenerationTest, WithoutMemoryASlowCallAloneStandsStill) {
  NewTable(8'000);
  const auto sink = NewSink();
  const auto generation = Claim({"t", "a"}, sink);
  int sent = 0;
  while (generation->HasRoom()) generation->OnDelta(Number(sent++));
  generation->OnDelta(Number(sent++));  // of a step under way
  EXPECT_FALSE(generation->HasRoom());
  for (; sent < 50; ++sent) {
    ReadAll(*generation, sink);
    ASSERT_TRUE(generation->HasRoom());
    generation->OnDelta(Number(sent));
  }
  generation->OnDone({});
  const auto last = ReadAll(*generation, sink);
  EXPECT_EQ(std::get<Delta>(last.front()).text, Number(49).text);
  EXPECT_TRUE(std::get<Completion>(last.back()).status.ok());
  generation->Leave(*sink);
}

// Its sink is filled again at once, so it is full whenever the engine looks; the engine ends a
// request whose readers take nothing for a while.
TEST_F(SharedGenerationTest, ALateCallThatReadsIsNotTakenForAStalledOne) {
  NewTable(1 << 20);
  const auto first = NewSink();
  const auto late = NewSink();
  const auto generation = Claim({"t", "a"}, first);
  for (int i = 0; i < 50; ++i) {
    generation->OnDelta(Number(i));
    ReadAll(*generation, first);
  }
  ASSERT_TRUE(Follow({"t", "a"}, late).ok());
  generation->Leave(*first);
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(generation->HasRoom()) << i << ": it reads nothing";
    ASSERT_TRUE(late->Pop().has_value());
    generation->Refill(*late);
    EXPECT_TRUE(generation->HasRoom()) << i;
  }
  generation->OnDone({});
  ReadAll(*generation, late);
  generation->Leave(*late);
}

// To forget an answer that a slow call still reads frees nothing, whatever else is forgotten after
// it.
TEST_F(SharedGenerationTest, AnAnswerThatIsBeingReadIsNotDroppedForOthers) {
  NewTable(26'000);
  Answer({"t", "read"}, 8);
  Answer({"t", "other"}, 8);
  const auto slow = NewSink();
  const auto reading = Follow({"t", "read"}, slow);
  ASSERT_TRUE(reading.ok());
  Answer({"t", "new"}, 8);
  EXPECT_TRUE(IsThere({"t", "read"}));
  EXPECT_FALSE(IsThere({"t", "other"}));
  EXPECT_TRUE(IsThere({"t", "new"}));
  EXPECT_EQ(ReadAll(**reading, slow).size(), 9u);
  (*reading)->Leave(*slow);
}

TEST_F(SharedGenerationTest, SlowReadersOfWholeAnswersMakeRoomForAnotherTenant) {
  NewTable(30'000);  // two answers of nine
  Answer({"slow", "one"}, 9);
  Answer({"slow", "two"}, 9);
  std::vector<std::pair<std::shared_ptr<BoundedSink>, std::shared_ptr<SharedGeneration>>> reading;
  for (const char* id : {"one", "two"}) {
    const auto sink = NewSink();
    const auto found = Follow({"slow", id}, sink);
    ASSERT_TRUE(found.ok() && *found != nullptr);
    reading.emplace_back(sink, *found);
  }
  table_->Expire(SteadyTime::max());  // their time is over, and they still take memory
  Answer({"other", "new"}, 9);
  EXPECT_TRUE(IsThere({"other", "new"}));
  // The oldest made room, and the other one is read on.
  const auto ended = ReadAll(*reading[0].second, reading[0].first);
  const absl::Status status = std::get<Completion>(ended.back()).status;
  EXPECT_EQ(Details(ToGrpcStatus(status)).reason, "SLOW_READER");
  const auto whole = ReadAll(*reading[1].second, reading[1].first);
  EXPECT_EQ(whole.size(), 10u);
  EXPECT_TRUE(std::get<Completion>(whole.back()).status.ok());
  for (auto& [sink, generation] : reading) generation->Leave(*sink);
}

// One that comes between a claim and the end of the call that made it is not left without work.
TEST_F(SharedGenerationTest, IsWantedWhileACallFollows) {
  NewTable(1 << 20);
  const auto first = NewSink();
  const auto second = NewSink();
  const auto generation = Claim({"t", "a"}, first);
  ASSERT_TRUE(Follow({"t", "a"}, second).ok());
  generation->Leave(*first);
  EXPECT_TRUE(generation->Wanted());
  generation->Leave(*second);
  EXPECT_FALSE(generation->Wanted());
}

TEST_F(SharedGenerationTest, ATenantThatKeepsMuchDisplacesItsOwn) {
  constexpr size_t kMemory = 100'000;
  NewTable(kMemory);
  Answer({"small", "only"}, 10);
  for (int i = 0; i < 100; ++i) {
    Answer({i % 2 == 0 ? "large" : "vast", absl::StrCat(i)}, 10);
  }
  EXPECT_TRUE(IsThere({"small", "only"}));
  EXPECT_TRUE(IsThere({"vast", "99"}));
  EXPECT_FALSE(IsThere({"large", "0"}));
  EXPECT_LE(table_->bytes(), kMemory);
}

TEST_F(SharedGenerationTest, ARunningRequestThatTakesMostMakesRoomForAnotherTenant) {
  NewTable(100'000);
  const auto sink = NewSink();
  const auto running = Claim({"large", "runs"}, sink);
  int next = 0;
  const auto go_on = [&](int deltas) {
    for (const int end = next + deltas; next < end; ++next) {
      running->OnDelta(Number(next));
      const auto events = ReadAll(*running, sink);
      ASSERT_EQ(events.size(), 1u);
      EXPECT_EQ(std::get<Delta>(events[0]).text, Number(next).text);
    }
  };
  go_on(70);
  ASSERT_TRUE(Follow({"large", "runs"}, NewSink()).ok());
  Answer({"small", "only"}, 40);
  EXPECT_TRUE(IsThere({"small", "only"}));
  go_on(100);
  EXPECT_TRUE(IsThere({"small", "only"}));
  EXPECT_THAT(std::string(Follow({"large", "runs"}, NewSink()).status().message()),
              HasSubstr("--max-replay-memory"));
}

// Whatever others do, a tenant within its share keeps all that it asked for.
TEST_F(SharedGenerationTest, SharesHoldInRandomOrders) {
  constexpr size_t kMemory = 120'000;
  constexpr int kSmallOnes = 10;  // of 3 KB, so well under a third
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    NewTable(kMemory);
    std::mt19937_64 random(seed);
    int small = 0;
    for (int i = 0; i < 300; ++i) {
      const uint64_t drawn = random();
      if (drawn % 20 == 0 && small < kSmallOnes) {
        Answer({"small", absl::StrCat(small++)}, 1);
      } else {
        Answer({drawn % 2 == 0 ? "first" : "last", absl::StrCat(i)},
               static_cast<int>(drawn / 2 % 30));
      }
      ASSERT_LE(table_->bytes(), kMemory);
    }
    for (int i = 0; i < small; ++i) EXPECT_TRUE(IsThere({"small", absl::StrCat(i)})) << i;
  }
}

// Without a place of its own a call follows only what needs none, or lends it one.
TEST_F(SharedGenerationTest, ACallWithoutAPlaceFollowsWhatRunsForNobody) {
  table_ = std::make_unique<AttachTable>(
      AttachLimits{20'000, std::chrono::hours(1), std::chrono::hours(1)});
  const auto quotas = std::make_shared<QuotaBook>();
  const absl::Status unplaced = absl::ResourceExhaustedError("no place");
  const RequestKey key{"t", "a"};
  const auto follow = [&](const std::shared_ptr<BoundedSink>& sink) {
    return table_->Follow(key, "content", sink, std::chrono::steady_clock::now(), unplaced);
  };
  const auto first = NewSink();
  const auto claimed =
      table_->Claim(key, "content", first, std::chrono::steady_clock::now(), {.lingers = true});
  ASSERT_TRUE(claimed.ok());
  SharedGeneration& generation = *claimed->generation;
  EXPECT_EQ(follow(NewSink()).status(), unplaced) << "the place is the first call's";
  EXPECT_EQ(
      table_->FollowNamed(key, NewSink(), std::chrono::steady_clock::now(), unplaced).status(),
      unplaced);

  std::optional<QuotaRefusal> refusal;
  std::shared_ptr<QuotaPlace> place = quotas->Begin({}, refusal);
  generation.Leave(*first, &place);
  const auto second = NewSink();
  ASSERT_TRUE(follow(second).ok());
  EXPECT_EQ(follow(NewSink()).status(), unplaced) << "there is one place, and the second takes it";
  EXPECT_NE(generation.TakePlace(), nullptr);

  generation.OnDone({});
  const auto third = NewSink();
  EXPECT_TRUE(follow(third).ok()) << "it runs no more";
  generation.Leave(*second);
  generation.Leave(*third);
}

}  // namespace
}  // namespace annulus::server
