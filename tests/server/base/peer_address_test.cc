#include "server/base/peer_address.h"

#include <gtest/gtest.h>

namespace annulus::server {
namespace {

// A client of one /64 has 2^64 addresses, and is one client.
TEST(AddressOfTest, CutsIpv6ToItsNetwork) {
  EXPECT_EQ(AddressOf("ipv4:10.0.0.1:80"), "ipv4:10.0.0.1");
  EXPECT_EQ(AddressOf("ipv6:[2001:db8:1:2:3:4:5:6]:80"), "ipv6:[2001:db8:1:2::]/64");
  EXPECT_EQ(AddressOf("ipv6:[2001:db8:1:2::ffff]:81"), "ipv6:[2001:db8:1:2::]/64");
  EXPECT_EQ(AddressOf("ipv6:[2001:db8:1:3::ffff]:81"), "ipv6:[2001:db8:1:3::]/64");
  EXPECT_EQ(AddressOf("ipv6:[fe80::1%eth0]:80"), "ipv6:[fe80::]/64");
  EXPECT_EQ(AddressOf("ipv6:[::1]:80"), "ipv6:[::]/64");
  EXPECT_EQ(AddressOf("ipv6:[::ffff:10.0.0.1]:80"), "ipv4:10.0.0.1");
  EXPECT_EQ(AddressOf("ipv6:[::ffff:10.0.0.2]:80"), "ipv4:10.0.0.2");
  EXPECT_EQ(AddressOf("unix:"), "unix");
  EXPECT_EQ(AddressOf("unknown"), "unknown");
}

}  // namespace
}  // namespace annulus::server
