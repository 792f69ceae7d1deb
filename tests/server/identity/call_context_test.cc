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

TEST(TraceParentTest, ReadsAWellFormedHeader) {
  const TraceParent parent = ParseTraceParent(Parent(kTrace));
  EXPECT_EQ(parent.trace, kTrace);
  EXPECT_EQ(parent.span, "b7ad6b7169203331");
  EXPECT_TRUE(parent.sampled);
  std::string future = Parent(kTrace);
  future[1] = '1';  // a later version begins in the same way
  EXPECT_EQ(ParseTraceParent(future).trace, kTrace);
  std::string unsampled = Parent(kTrace);
  unsampled[54] = '2';
  EXPECT_FALSE(ParseTraceParent(unsampled).sampled);
}

TEST(TraceParentTest, ReadsNothingOfAMalformedOne) {
  EXPECT_EQ(ParseTraceParent("").trace, "");
  EXPECT_EQ(ParseTraceParent(Parent(kTrace) + "0").trace, "");
  EXPECT_EQ(ParseTraceParent(Parent(std::string(32, '0'))).trace, "");
  std::string reserved = Parent(kTrace);
  reserved.replace(0, 2, "ff");
  EXPECT_EQ(ParseTraceParent(reserved).trace, "");
  std::string upper = Parent(kTrace);
  upper[4] = 'A';
  EXPECT_EQ(ParseTraceParent(upper).trace, "");
  std::string dash = Parent(kTrace);
  dash[35] = '0';
  EXPECT_EQ(ParseTraceParent(dash).trace, "");
  std::string no_span = Parent(kTrace);
  no_span.replace(36, 16, 16, '0');
  EXPECT_EQ(ParseTraceParent(no_span).trace, "");
}

}  // namespace
}  // namespace annulus::server
