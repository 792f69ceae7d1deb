#include "server/config/wire_devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace annulus::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(IsPrivateAddressTest, KnowsTheBlocksAndTheirEdges) {
  for (const char* address :
       {"127.0.0.1", "127.255.255.255", "10.0.0.0", "10.255.255.255", "172.16.0.0",
        "172.31.255.255", "192.168.0.1", "100.64.0.0", "100.127.255.255", "169.254.1.1", "::1",
        "fe80::1", "febf::1", "fc00::1", "fdff:ffff::1", "::ffff:10.1.2.3"}) {
    EXPECT_TRUE(IsPrivateAddress(address)) << address;
  }
  for (const char* address : {"8.8.8.8",         "9.255.255.255",
                              "11.0.0.0",        "126.255.255.255",
                              "128.0.0.0",       "172.15.255.255",
                              "172.32.0.0",      "192.167.255.255",
                              "192.169.0.0",     "100.63.255.255",
                              "100.128.0.0",     "169.253.255.255",
                              "169.255.0.0",     "0.0.0.0",
                              "255.255.255.255", "2001:db8::1",
                              "fec0::1",         "fe00::1",
                              "fbff::1",         "::",
                              "::ffff:8.8.8.8",  "",
                              "localhost",       "10.0.0",
                              "10.0.0.1:7"}) {
    EXPECT_FALSE(IsPrivateAddress(address)) << address;
  }
}

class ChooseWireDevicesTest : public ::testing::Test {
 protected:
  std::string Choose(const std::string& wanted) const {
    const auto chosen = ChooseWireDevices(config_, wanted, addresses_);
    EXPECT_TRUE(chosen.ok()) << chosen.status();
    return chosen.value_or("");
  }
  absl::Status Refusal(const std::string& wanted) const {
    return ChooseWireDevices(config_, wanted, addresses_).status();
  }

  ServerConfig config_ = [] {
    ServerConfig config;
    config.join = "ring.example:7000";
    return config;
  }();
  std::vector<DeviceAddress> addresses_ = {{"lo", "127.0.0.1"},     {"lo", "::1"},
                                           {"eth0", "203.0.113.7"}, {"eth1", "10.1.0.7"},
                                           {"eth1", "2001:db8::7"}, {"wg0", "fd00::7"}};
};

TEST_F(ChooseWireDevicesTest, ARingOfOneMachineUsesLoopback) {
  config_.join = "127.0.0.1:7000";
  EXPECT_EQ(Choose("eth0"), "lo");
  config_.join = "";
  config_.workers_listen = "[::1]:7000";
  EXPECT_EQ(Choose(""), "lo");
}

TEST_F(ChooseWireDevicesTest, APublicAddressIsRefusedAndOthersAreNamed) {
  for (const char* wanted : {"", "all", "eth0", "eth1,eth0"}) {
    const absl::Status refusal = Refusal(wanted);
    EXPECT_EQ(refusal.code(), absl::StatusCode::kFailedPrecondition) << wanted;
    EXPECT_THAT(std::string(refusal.message()),
                AllOf(HasSubstr("over eth0 at 203.0.113.7"), HasSubstr("does not encrypt"),
                      HasSubstr("UCX_NET_DEVICES=eth1,wg0"), HasSubstr("--allow-public-wire")));
  }
  // UCX takes the private IPv4 address.
  EXPECT_EQ(Choose("eth1,wg0"), "eth1,wg0");
  config_.allow_public_wire = true;
  EXPECT_EQ(Choose(""), "eth0,eth1,wg0");
  EXPECT_EQ(Choose("eth0"), "eth0");
}

TEST_F(ChooseWireDevicesTest, OneOfSeveralAddressesIsEnoughToRefuse) {
  addresses_ = {{"eth0", "10.1.0.7"}, {"eth0", "198.51.100.7"}};
  EXPECT_THAT(std::string(Refusal("").message()),
              AllOf(HasSubstr("eth0 at 198.51.100.7"), HasSubstr("WireGuard"),
                    Not(HasSubstr("UCX_NET_DEVICES="))));
  addresses_ = {{"eth0", "2001:db8::7"}};
  EXPECT_THAT(std::string(Refusal("").message()), HasSubstr("eth0 at 2001:db8::7"));
}

TEST_F(ChooseWireDevicesTest, DevicesMustBeThere) {
  EXPECT_THAT(std::string(Refusal("eth1,eth9").message()),
              AllOf(HasSubstr("names \"eth9\""), HasSubstr("there are: eth0, eth1, wg0")));
  addresses_ = {{"lo", "127.0.0.1"}, {"lo", "::1"}};
  const absl::Status none = Refusal("");
  EXPECT_EQ(none.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(none.message()), HasSubstr("ring.example:7000"));
}

}  // namespace
}  // namespace annulus::server
