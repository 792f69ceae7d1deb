// annulusd under a service manager, which here is a socket of the test.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <string>

#include "tests/integration/daemon.h"
#include "tests/support/notify_socket.h"
#include "tests/support/temp_directory.h"

namespace annulus::server {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(ServiceManagerTest, HearsOfEveryPhase) {
  const testing::TempDirectory directory;
  const std::string path = directory.path() / "notify";
  testing::NotifySocket manager(path);
  Daemon daemon({"--kv-memory", "64MiB", "--grace-time", "2s"},
                {"NOTIFY_SOCKET=" + path, "WATCHDOG_USEC=100000"});
  EXPECT_THAT(manager.Next(), StartsWith("EXTEND_TIMEOUT_USEC="));
  const std::string ready = manager.NextWith("READY=1");
  ASSERT_THAT(ready, StartsWith("READY=1\nSTATUS=serves recall on 127.0.0.1:"));
  // It says so when it has begun to serve, not before.
  ASSERT_TRUE(daemon.WaitUntilReady()) << daemon.output();
  EXPECT_EQ(manager.NextWith("WATCHDOG"), "WATCHDOG=1\n");
  daemon.Signal(SIGTERM);
  // Grace, the most that a stop takes, and 5 s more.
  EXPECT_EQ(manager.NextWith("STOPPING"), "STOPPING=1\nEXTEND_TIMEOUT_USEC=9500000\n");
  EXPECT_EQ(daemon.WaitForExit(seconds(20)), 0);
}

TEST(ServiceManagerTest, HearsWhenAReloadBeginsAndEnds) {
  const testing::TempDirectory directory;
  const std::string path = directory.path() / "notify";
  testing::NotifySocket manager(path);
  directory.Write("annulusd.yaml", "log_level: warning\nmax_waiting: 7\n");
  Daemon daemon({"--kv-memory", "64MiB", "--config", directory.path() / "annulusd.yaml"},
                {"NOTIFY_SOCKET=" + path});
  const std::string ready = manager.NextWith("READY=1");
  ASSERT_NE(ready, "");
  directory.Write("annulusd.yaml", "log_level: info\nmax_waiting: 8\n");
  daemon.Signal(SIGHUP);
  EXPECT_THAT(manager.NextWith("RELOADING=1"), HasSubstr("\nMONOTONIC_USEC="));
  EXPECT_EQ(manager.NextWith("READY=1"), ready);
  // What the table says can be taken is, and the rest is named.
  EXPECT_TRUE(daemon.WaitForOutput("options_reloaded taken=log-level need_restart=max-waiting",
                                   seconds(10)))
      << daemon.output();
  daemon.Signal(SIGHUP);
  EXPECT_TRUE(daemon.WaitForOutput("options_reloaded need_restart=max-waiting", seconds(10)))
      << daemon.output();
}

TEST(ServiceManagerTest, WithoutADeviceItHasStartedAndSaysWhy) {
  const testing::TempDirectory directory;
  const std::string path = directory.path() / "notify";
  testing::NotifySocket manager(path);
  Daemon daemon({"--device", "cuda", "--ranks", "64", "--kv-memory", "64MiB"},
                {"NOTIFY_SOCKET=" + path, "CUDA_VISIBLE_DEVICES="});
  EXPECT_THAT(manager.NextWith("READY=1"),
              HasSubstr("STATUS=cannot serve: device: cuda was asked"));
}

TEST(PrintConfigTest, WhatItPrintsIsReadBack) {
  const testing::TempDirectory directory;
  const std::string annulusd = testing::BuildFolder() / "annulusd";
  Program first({annulusd, "--print-config", "--ranks", "2", "--auth-token-file", "a \"b\": #c"});
  ASSERT_EQ(first.WaitForExit(seconds(20)), 0) << first.output();
  EXPECT_THAT(first.output(), HasSubstr("\nranks: 2\n"));
  EXPECT_THAT(first.output(), HasSubstr("\n#max_waiting: 256\n"));
  directory.Write("annulusd.yaml", first.output());
  Program again({annulusd, "--print-config", "--config", directory.path() / "annulusd.yaml"});
  ASSERT_EQ(again.WaitForExit(seconds(20)), 0) << again.output();
  EXPECT_EQ(again.output(), first.output());
}

}  // namespace
}  // namespace annulus::server
