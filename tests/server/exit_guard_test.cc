#include "server/exit_guard.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "tests/server/test_server.h"

namespace annulus {
namespace {

using std::chrono::milliseconds;

TEST(ExitGuardTest, AStopInTimeIsLeftAlone) {
  const Logger log(LogLevel::kError);
  ExitGuard unarmed(log);
  ExitGuard guard(log);
  guard.Arm(std::chrono::hours(1));
  guard.WaitingFor([] { return "this test"; });
}

TEST(ExitGuardDeathTest, AnEndlessStopIsCutShort) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto stop = [] {
    const Logger log(LogLevel::kWarning);
    ExitGuard guard(log);
    guard.Arm(milliseconds(10));
    guard.WaitingFor([] { return "for ever"; });
    for (;;) pause();
  };
  EXPECT_EXIT(stop(), ::testing::ExitedWithCode(0), "stop_cut_short.*waiting_for=\"for ever\"");
}

// A worker that ignores everything.
TEST(ExitGuardDeathTest, AJobThatNeverEndsHoldsNoStopUp) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto stop = [] {
    const Logger log(LogLevel::kWarning);
    ExitGuard guard(log);
    TestServer server({"--grace-time", "10ms"});
    server.engine().set_tokenize_delay(std::chrono::hours(1));
    server.Serve();
    std::thread client([&] {
      grpc::ClientContext context;
      v1::TokenizeRequest request;
      v1::TokenizeResponse response;
      (void)server.inference()->Tokenize(&context, request, &response);
    });
    if (!Eventually([&] { return server.engine().tokenizing() == 1; })) _exit(8);
    server.server().RequestDrain(std::nullopt);
    server.server().WaitUntilDrained();
    guard.Arm(milliseconds(100));
    server.server().Stop(&guard);
    _exit(9);
  };
  EXPECT_EXIT(stop(), ::testing::ExitedWithCode(0), "stop_cut_short.*jobs: Tokenize");
}

}  // namespace
}  // namespace annulus
