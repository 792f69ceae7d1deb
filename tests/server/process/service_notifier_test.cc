#include "server/process/service_notifier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "tests/support/notify_socket.h"
#include "tests/support/temp_directory.h"

namespace annulus::server {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::NotifySocket;

class ServiceNotifierTest : public ::testing::Test {
 protected:
  const testing::TempDirectory directory_;
  const std::string path_ = directory_.path() / "notify";
};

TEST_F(ServiceNotifierTest, SaysWhatSystemdReads) {
  NotifySocket manager(path_);
  ServiceNotifier notifier({path_, microseconds(0)});
  notifier.Ready("two\nlines");
  EXPECT_EQ(manager.Next(), "READY=1\nSTATUS=two lines\n");
  notifier.Stopping(milliseconds(2500));
  EXPECT_EQ(manager.Next(), "STOPPING=1\nEXTEND_TIMEOUT_USEC=7500000\n");
}

TEST_F(ServiceNotifierTest, SaysThatItReloadsUntilItStops) {
  NotifySocket manager(path_);
  ServiceNotifier notifier({path_, microseconds(0)});
  notifier.Reloading();
  const std::string message = manager.Next();
  ASSERT_THAT(message, ::testing::MatchesRegex("RELOADING=1\nMONOTONIC_USEC=[0-9]+\n"));
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const double said = std::stod(message.substr(message.rfind('=') + 1)) / 1e6;
  EXPECT_NEAR(said, static_cast<double>(now.tv_sec), 60);
  notifier.Ready("x");
  EXPECT_EQ(manager.Next(), "READY=1\nSTATUS=x\n");
  // A reload that ends while it stops does not make it ready again.
  notifier.Stopping(milliseconds(0));
  notifier.Ready("x");
  notifier.Reloading();
  EXPECT_EQ(manager.Next(), "STOPPING=1\nEXTEND_TIMEOUT_USEC=5000000\n");
  EXPECT_EQ(manager.Next(milliseconds(100)), "");
}

TEST_F(ServiceNotifierTest, KnowsAbstractNames) {
  const std::string name = "@" + path_;
  NotifySocket manager(name);
  ServiceNotifier({name, microseconds(0)}).Ready("x");
  EXPECT_EQ(manager.Next(), "READY=1\nSTATUS=x\n");
}

TEST_F(ServiceNotifierTest, AsksForTimeWhileItLoadsThenFeedsTheWatchdog) {
  NotifySocket manager(path_);
  ServiceNotifier notifier({path_, milliseconds(20)});
  std::atomic<bool> alive = true;
  notifier.StartSigns([&] { return alive.load(); });
  EXPECT_EQ(manager.Next(), "EXTEND_TIMEOUT_USEC=60000000\n");
  EXPECT_EQ(manager.Next(), "EXTEND_TIMEOUT_USEC=60000000\n");
  notifier.Ready("x");
  EXPECT_EQ(manager.NextWith("WATCHDOG"), "WATCHDOG=1\n");
  EXPECT_EQ(manager.Next(), "WATCHDOG=1\n");
  // One that is not alive is silent, so the manager ends it. At most one sign was under way.
  alive = false;
  while (!manager.Next(milliseconds(500)).empty()) {
  }
  EXPECT_EQ(manager.Next(milliseconds(100)), "");
}

TEST_F(ServiceNotifierTest, NobodyNeedListen) {
  ServiceNotifier({"", microseconds(0)}).Ready("x");
  ServiceNotifier({path_, milliseconds(10)}).Ready("x");
  ServiceNotifier({"/" + std::string(200, 'x'), milliseconds(10)}).Ready("x");
  auto manager = std::make_unique<NotifySocket>(path_);
  ServiceNotifier notifier({path_, milliseconds(10)});
  manager.reset();
  notifier.Ready("x");
  notifier.Stopping(seconds(1));
}

}  // namespace
}  // namespace annulus::server
