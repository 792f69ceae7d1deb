#include "engine/coordinator/document_keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "engine/base/error_payloads.h"
#include "tests/engine/coordinator/engine_parts.h"

namespace annulus::testing {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

class DocumentKeeperTest : public ::testing::Test, protected EngineParts {
 protected:
  static DocumentTag Tag(const std::string& content) { return TagOf(TenantId(), content); }
  // A request whose prompt was read ahead, so that it is cached.
  Request& Prefilled(RequestSpec spec) {
    RunAlone(spec);
    return Add(std::move(spec));
  }
};

TEST_F(DocumentKeeperTest, OrdersAreCarriedOutByTheLoop) {
  RunAlone(ReadAhead(64, 'x', "a"));
  RunAlone(ReadAhead(64, 'y', "b"));
  EXPECT_EQ(documents_.Find(Tag("a")).memory_tokens, 64);
  documents_.Forget(Tag("a"));
  EXPECT_EQ(wakes_, 1);
  EXPECT_EQ(PagesWithoutUse() - FreePages(), 8) << "the loop has not turned";
  documents_.Tend();
  EXPECT_EQ(documents_.Find(Tag("a")).memory_tokens, 0);
  EXPECT_EQ(documents_.Find(Tag("b")).memory_tokens, 64);
  EXPECT_EQ(PagesWithoutUse() - FreePages(), 4);
}

TEST_F(DocumentKeeperTest, APinKeepsWhatWasReadUntilItIsUnpinned) {
  RequestSpec spec = ReadAhead(64, 'x', "a");
  spec.pin = true;
  Request& request = Prefilled(spec);
  ASSERT_TRUE(documents_.KeepPrefilled(request).ok());
  EXPECT_TRUE(documents_.Find(Tag("a")).pinned);
  EXPECT_FALSE(ledger_.prefixes().index().Evict([] { return false; }));
  EXPECT_EQ(FreePages(), 36);
  documents_.Unpin(Tag("a"));
  documents_.Tend();
  EXPECT_FALSE(documents_.Find(Tag("a")).pinned);
  EXPECT_EQ(documents_.Find(Tag("a")).memory_tokens, 64) << "until room is needed";
}

TEST_F(DocumentKeeperTest, ForgettingWinsOverUnpinning) {
  RequestSpec spec = ReadAhead(64, 'x', "a");
  spec.pin = true;
  ASSERT_TRUE(documents_.KeepPrefilled(Prefilled(spec)).ok());
  documents_.Forget(Tag("a"));
  documents_.Unpin(Tag("a"));
  documents_.Tend();
  EXPECT_FALSE(documents_.Find(Tag("a")).pinned);
  EXPECT_EQ(documents_.Find(Tag("a")).memory_tokens, 0);
}

TEST_F(DocumentKeeperTest, ATimeToLiveEndsByItself) {
  RequestSpec spec = ReadAhead(64, 'x', "a");
  spec.ttl = seconds(30);
  ASSERT_TRUE(documents_.KeepPrefilled(Prefilled(spec)).ok());
  EXPECT_EQ(documents_.Find(Tag("a")).expires_in, 30);
  EXPECT_EQ(documents_.NextDue(), clock_.Now() + seconds(30));
  clock_.Advance(seconds(29));
  documents_.Tend();
  EXPECT_EQ(documents_.Find(Tag("a")).memory_tokens, 64);
  clock_.Advance(seconds(1));
  documents_.Tend();
  EXPECT_EQ(documents_.Find(Tag("a")).memory_tokens, 0);
  EXPECT_EQ(documents_.NextDue(), SteadyTime::max());
}

TEST_F(DocumentKeeperTest, WhatWasDeletedMeanwhileIsNotKept) {
  RequestSpec spec = ReadAhead(64, 'x', "a");
  spec.pin = true;
  Request& request = Prefilled(spec);
  clock_.Advance(seconds(1));
  documents_.Forget(Tag("a"));
  documents_.Tend();
  const absl::Status deleted = documents_.KeepPrefilled(request);
  EXPECT_EQ(deleted.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(deleted.message(), HasSubstr("deleted during the prefill"));
  EXPECT_FALSE(documents_.Find(Tag("a")).pinned);
}

TEST_F(DocumentKeeperTest, WhatHasLeftMemoryCannotBePinned) {
  RequestSpec spec = ReadAhead(64, 'x', "a");
  spec.pin = true;
  Request& request = Prefilled(spec);
  ledger_.prefixes().index().Evict([] { return false; });
  EXPECT_THAT(documents_.KeepPrefilled(request).message(), HasSubstr("were evicted"));
}

TEST_F(DocumentKeeperTest, PinsHaveAQuota) {
  RequestSpec spec = ReadAhead(11 * kPage, 'x', "a");  // a tenant may pin ten of 40
  EXPECT_TRUE(documents_.CheckPinRoom(spec).ok()) << "it asks for no pin";
  spec.pin = true;
  EXPECT_EQ(documents_.CheckPinRoom(spec).GetPayload(kLimitPayload), absl::Cord("pinned"));
  spec.prompt.resize(10 * kPage);
  EXPECT_TRUE(documents_.CheckPinRoom(spec).ok());
}

// A request that fits only without the pins ends, unless something else will make room.
TEST_F(DocumentKeeperTest, PinsAreToBlameOnlyIfNothingRuns) {
  const Request& large = Add(Spec(500, 100, 'z'));
  EXPECT_TRUE(documents_.CheckRoomBesidePins(large).ok()) << "nothing is pinned";
  RequestSpec spec = ReadAhead(64, 'x', "a");
  spec.pin = true;
  ASSERT_TRUE(documents_.KeepPrefilled(Prefilled(spec)).ok());
  const absl::Status full = documents_.CheckRoomBesidePins(large);
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(full.message(), HasSubstr("needs 38 pages"));
  EXPECT_THAT(full.message(), HasSubstr("pinned documents leave 36 of 40"));
  Start(Spec(20));
  EXPECT_TRUE(documents_.CheckRoomBesidePins(large).ok());
}

}  // namespace
}  // namespace annulus::testing
