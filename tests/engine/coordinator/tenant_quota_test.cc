#include "engine/coordinator/admission/tenant_quota.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error_payloads.h"
#include "tests/engine/coordinator/engine_parts.h"

namespace annulus::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kPageBytes = 4096;  // of SimulatedRanks

class TenantQuotaTest : public ::testing::Test, protected EngineParts {
 protected:
  // A request of the tenant, which may have so many pages.
  static RequestSpec Of(const char* tenant, int64_t pages, int tokens, int32_t fill = 'x') {
    RequestSpec spec = Spec(tokens, 1, fill);
    spec.tenant = *TenantId::FromName(tenant);
    spec.tenant_room.kv_bytes = pages * kPageBytes;
    return spec;
  }
  RingChoice ChoiceFor(const RequestSpec& spec) const {
    return ChooseRing(needs_.Of(spec, nullptr), ledger_.FreePages(), {}, options_.limits).value();
  }
  int64_t PagesOf(const char* tenant) const {
    return ledger_.book().pages_of(*TenantId::FromName(tenant)).all;
  }
};

TEST_F(TenantQuotaTest, WithoutALimitATenantMayHaveAll) {
  const RequestSpec spec = Of("us", 0, 500);
  EXPECT_TRUE(quota_.MayHave(spec, ChoiceFor(spec)));
  EXPECT_TRUE(quota_.MakeRoom(spec, ChoiceFor(spec)));
}

TEST_F(TenantQuotaTest, RunningRequestsCountAndCachedPagesMakeRoom) {
  RunAlone(Of("us", 4, 48));  // leaves three pages cached
  ASSERT_EQ(PagesOf("us"), 3);
  const RequestSpec two = Of("us", 4, 31, 'y');
  EXPECT_TRUE(quota_.MayHave(two, ChoiceFor(two))) << "what is cached can go";
  EXPECT_TRUE(quota_.MakeRoom(two, ChoiceFor(two)));
  EXPECT_LE(PagesOf("us"), 2) << "and goes";
  const Request& running = Start(two);
  const RequestSpec three = Of("us", 4, 47, 'z');
  EXPECT_FALSE(quota_.MayHave(three, ChoiceFor(three)));
  EXPECT_FALSE(quota_.FindRoom(three, ChoiceFor(three)));
  EXPECT_FALSE(quota_.MakeRoom(three, ChoiceFor(three)));
  Leave(running.id());
  EXPECT_TRUE(quota_.MayHave(three, ChoiceFor(three)));
}

TEST_F(TenantQuotaTest, NobodyElsesPagesMakeRoom) {
  RunAlone(Of("them", 0, 48, 'y'));
  RunAlone(Of("us", 4, 48));
  const RequestSpec four = Of("us", 4, 63, 'z');
  EXPECT_TRUE(quota_.MakeRoom(four, ChoiceFor(four)));
  EXPECT_EQ(PagesOf("us"), 0);
  EXPECT_EQ(PagesOf("them"), 3);
}

// Waiting helps only if something of the tenant will end.
TEST_F(TenantQuotaTest, TheErrorHasTheNumbersAndSaysWhenToTryAgain) {
  const RequestSpec five = Of("us", 4, 79, 'z');
  const absl::Status never = quota_.FullError(five, ChoiceFor(five));
  EXPECT_EQ(never.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(never.GetPayload(kLimitPayload), absl::Cord("kv_bytes"));
  EXPECT_THAT(never.message(), HasSubstr(std::to_string(5 * kPageBytes)));
  EXPECT_FALSE(never.GetPayload(kRetryPayload).has_value());
  Start(Of("them", 0, 20, 'y'));
  EXPECT_FALSE(quota_.FullError(five, ChoiceFor(five)).GetPayload(kRetryPayload).has_value());
  Start(Of("us", 4, 20));
  EXPECT_TRUE(quota_.FullError(five, ChoiceFor(five)).GetPayload(kRetryPayload).has_value());
}

}  // namespace
}  // namespace annulus::testing
