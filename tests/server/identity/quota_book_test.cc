#include "server/identity/quota_book.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace annulus::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

QuotaBook::Time now_of_test;

Caller CallerOf(const std::string& tenant, const Quotas& quotas) {
  Caller caller;
  caller.tenant = *TenantId::FromName(tenant);
  caller.quotas = quotas;
  return caller;
}

class QuotaBookTest : public ::testing::Test {
 protected:
  QuotaBookTest() { now_of_test = QuotaBook::Time() + seconds(1000); }

  // A generation that has begun; null with `refusal_` set.
  std::unique_ptr<QuotaPlace> Begin(const Caller& caller) { return book_->Begin(caller, refusal_); }

  std::optional<QuotaRefusal> refusal_;
  const std::shared_ptr<QuotaBook> book_ = std::make_shared<QuotaBook>([] { return now_of_test; });
};

TEST_F(QuotaBookTest, WithoutQuotasAllIsAllowed) {
  const Caller caller = CallerOf("a", {});
  std::vector<std::unique_ptr<QuotaPlace>> places;
  for (int i = 0; i < 1000; ++i) {
    places.push_back(Begin(caller));
    ASSERT_NE(places.back(), nullptr);
    places.back()->CountTokens(1'000'000);
  }
}

TEST_F(QuotaBookTest, RequestsAMinuteFillUpEvenly) {
  const Caller caller = CallerOf("a", {.requests_per_minute = 6});
  for (int i = 0; i < 6; ++i) EXPECT_NE(Begin(caller), nullptr);
  EXPECT_EQ(Begin(caller), nullptr);
  ASSERT_TRUE(refusal_);
  EXPECT_EQ(refusal_->quota, Quota::kRequestsPerMinute);
  EXPECT_EQ(refusal_->limit, 6);
  EXPECT_GE(refusal_->retry, seconds(10));
  EXPECT_LE(refusal_->retry, milliseconds(10'002));
  EXPECT_EQ(book_->refusals(Quota::kRequestsPerMinute), 1u);
  const milliseconds retry = refusal_->retry;
  EXPECT_NE(Begin(CallerOf("b", {.requests_per_minute = 6})), nullptr) << "another tenant's";
  now_of_test += retry;  // to come back then is enough
  EXPECT_NE(Begin(caller), nullptr);
  EXPECT_EQ(Begin(caller), nullptr);
  now_of_test += std::chrono::hours(1);  // holds a minute's worth at most
  for (int i = 0; i < 6; ++i) EXPECT_NE(Begin(caller), nullptr);
  EXPECT_EQ(Begin(caller), nullptr);
}

TEST_F(QuotaBookTest, TokensBeyondTheQuotaAreOwed) {
  const Caller caller = CallerOf("a", {.tokens_per_minute = 60});
  Begin(caller)->CountTokens(180);
  EXPECT_EQ(Begin(caller), nullptr);
  ASSERT_TRUE(refusal_);
  EXPECT_EQ(refusal_->quota, Quota::kTokensPerMinute);
  EXPECT_GE(refusal_->retry, seconds(121));
  now_of_test += seconds(120);
  EXPECT_EQ(Begin(caller), nullptr);
  ASSERT_TRUE(refusal_);
  now_of_test += refusal_->retry;
  EXPECT_NE(Begin(caller), nullptr);
}

TEST_F(QuotaBookTest, ANewRateHoldsForWhatRunsTooOnceACallHasComeUnderIt) {
  const auto old = Begin(CallerOf("a", {.tokens_per_minute = 1'000'000}));
  const Caller less = CallerOf("a", {.tokens_per_minute = 60});
  EXPECT_NE(Begin(less), nullptr);
  old->CountTokens(100);
  for (int second = 0; second < 10; ++second) {
    now_of_test += seconds(1);
    old->CountTokens(1);
    EXPECT_EQ(Begin(less), nullptr) << second;
  }
  EXPECT_GE(refusal_->retry, seconds(40));

  const auto unlimited = Begin(CallerOf("b", {}));
  const Caller limited = CallerOf("b", {.tokens_per_minute = 60});
  EXPECT_NE(Begin(limited), nullptr);
  unlimited->CountTokens(100);
  EXPECT_EQ(Begin(limited), nullptr);
}

TEST_F(QuotaBookTest, RunningOnesAreCountedUntilTheyEnd) {
  const Caller caller = CallerOf("a", {.running_requests = 2});
  auto first = Begin(caller);
  auto second = Begin(caller);
  EXPECT_EQ(Begin(caller), nullptr);
  EXPECT_EQ(refusal_->quota, Quota::kRunningRequests);
  EXPECT_GT(refusal_->retry, seconds(0));
  first->End();
  first.reset();  // counts once
  auto third = Begin(caller);
  EXPECT_NE(third, nullptr);
  EXPECT_EQ(Begin(caller), nullptr);
}

TEST_F(QuotaBookTest, DocumentBytesAreGivenBack) {
  const Caller caller = CallerOf("a", {.document_bytes = 10});
  DocumentShare first(book_, caller);
  EXPECT_FALSE(first.Grow(6));
  {
    DocumentShare second(book_, caller);
    const auto refusal = second.Grow(5);
    ASSERT_TRUE(refusal);
    EXPECT_EQ(refusal->quota, Quota::kDocumentBytes);
    EXPECT_EQ(refusal->retry, milliseconds(0)) << "time alone does not help";
    EXPECT_FALSE(second.Grow(4));
    DocumentShare moved(std::move(second));
    EXPECT_TRUE(first.Grow(1));
  }
  EXPECT_FALSE(first.Grow(4));
  // A reload set the limit below what is used.
  DocumentShare less(book_, CallerOf("a", {.document_bytes = 3}));
  EXPECT_TRUE(less.Grow(1));
}

TEST_F(QuotaBookTest, DocumentsAreCountedOnceAndGivenBack) {
  const Caller caller = CallerOf("a", {.documents = 2});
  DocumentShare first(book_, caller);
  EXPECT_FALSE(first.Grow(6));
  EXPECT_FALSE(first.Grow(6)) << "the same document";
  {
    DocumentShare second(book_, caller);
    EXPECT_FALSE(second.Grow(1));
    DocumentShare third(book_, caller);
    const auto refusal = third.Grow(1);
    ASSERT_TRUE(refusal);
    EXPECT_EQ(refusal->quota, Quota::kDocuments);
    EXPECT_EQ(refusal->limit, 2);
    EXPECT_EQ(refusal->retry, milliseconds(0)) << "time alone does not help";
    DocumentShare others(book_, CallerOf("b", {.documents = 1}));
    EXPECT_FALSE(others.Grow(1));
  }
  DocumentShare third(book_, caller);
  EXPECT_FALSE(third.Grow(1));
}

}  // namespace
}  // namespace annulus::server
