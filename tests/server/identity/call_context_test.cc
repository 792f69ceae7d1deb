#include "server/identity/call_context.h"

#include <gtest/gtest.h>

#include <string>

namespace annulus::server {
namespace {

constexpr char kTrace[] = "0af7651916cd43dd8448eb211c80319c";

std::string Parent(const std::string& trace) { return "00-" + trace + "-b7ad6b7169203331-01"; }

TEST(CallContextTest, FindsTheFirstHeaderOfAName) {
  const CallContext call{.method = "Generate",
                         .headers = {{"a", "1"}, {"authorization", "x"}, {"authorization", "y"}}};
  ASSERT_NE(call.FindHeader("authorization"), nullptr);
  EXPECT_EQ(*call.FindHeader("authorization"), "x");
  EXPECT_EQ(call.FindHeader("Authorization"), nullptr);
  EXPECT_EQ(call.header_bytes(), 3 * 32 + 1 + 1 + 2 * (13 + 1));
  EXPECT_EQ(CallContext().header_bytes(), 0);
}

TEST(CallContextTest, CountsForItsTenantOrElseItsAddress) {
  CallContext call{.method = "Generate", .peer = "ipv6:[2001:db8::1]:80"};
  EXPECT_EQ(ClientOf(call), "ipv6:[2001:db8::]/64");
  call.caller.tenant = *TenantId::FromName("acme");
  EXPECT_EQ(ClientOf(call), "tenant:acme");
}

TEST(TraceIdTest, TakesTheIdOfAWellFormedHeader) {
  EXPECT_EQ(TraceId(Parent(kTrace)), kTrace);
  std::string future = Parent(kTrace);
  future[1] = '1';  // a later version begins in the same way
  EXPECT_EQ(TraceId(future), kTrace);
}

TEST(TraceIdTest, TakesNothingOfAMalformedOne) {
  EXPECT_EQ(TraceId(""), "");
  EXPECT_EQ(TraceId(Parent(kTrace) + "0"), "");
  EXPECT_EQ(TraceId(Parent(std::string(32, '0'))), "");
  std::string reserved = Parent(kTrace);
  reserved.replace(0, 2, "ff");
  EXPECT_EQ(TraceId(reserved), "");
  std::string upper = Parent(kTrace);
  upper[4] = 'A';
  EXPECT_EQ(TraceId(upper), "");
  std::string dash = Parent(kTrace);
  dash[35] = '0';
  EXPECT_EQ(TraceId(dash), "");
}

}  // namespace
}  // namespace annulus::server
