#include "server/config/notify_address.h"

#include <gtest/gtest.h>

namespace annulus::server {
namespace {

using std::chrono::microseconds;

TEST(NotifyAddressTest, TakesWhatSystemdSets) {
  const NotifyAddress both = ParseNotifyAddress("/run/systemd/notify", "30000000", "17", 17);
  EXPECT_EQ(both.socket, "/run/systemd/notify");
  EXPECT_EQ(both.watchdog, microseconds(30000000));
  EXPECT_EQ(ParseNotifyAddress("@name", "5", nullptr, 17).watchdog, microseconds(5));
  EXPECT_EQ(ParseNotifyAddress("@name", nullptr, nullptr, 17).watchdog, microseconds(0));
}

TEST(NotifyAddressTest, PassesOverWhatIsNotForIt) {
  EXPECT_EQ(ParseNotifyAddress(nullptr, "30000000", "17", 17).socket, "");
  EXPECT_EQ(ParseNotifyAddress(nullptr, "30000000", "17", 17).watchdog, microseconds(0));
  EXPECT_EQ(ParseNotifyAddress("", nullptr, nullptr, 17).socket, "");
  EXPECT_EQ(ParseNotifyAddress("vsock:2:1234", nullptr, nullptr, 17).socket, "");
  for (const char* watchdog : {"", "x", "-1", "0", "99999999999999999999"}) {
    EXPECT_EQ(ParseNotifyAddress("@a", watchdog, nullptr, 17).watchdog, microseconds(0))
        << watchdog;
  }
  for (const char* pid : {"", "x", "18"}) {
    EXPECT_EQ(ParseNotifyAddress("@a", "5", pid, 17).watchdog, microseconds(0)) << pid;
  }
}

}  // namespace
}  // namespace annulus::server
