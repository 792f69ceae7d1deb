#include "server/process/exit_guard.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>

#include "tests/server/test_server.h"
#include "tests/support/temp_directory.h"

namespace annulus::server {
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

// Folders that a child makes and has no time to remove lie in one of the parent's. The child runs
// the test from its start, and has the variable from the parent.
class FolderOfChildren {
 public:
  FolderOfChildren() { setenv("TMPDIR", folder_.path().c_str(), 1); }
  ~FolderOfChildren() {
    if (before_.has_value()) {
      setenv("TMPDIR", before_->c_str(), 1);
    } else {
      unsetenv("TMPDIR");
    }
  }

 private:
  static std::optional<std::string> Variable() {
    const char* const value = std::getenv("TMPDIR");
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  }

  const std::optional<std::string> before_ = Variable();
  const testing::TempDirectory folder_;
};

// A worker that ignores everything.
TEST(ExitGuardDeathTest, AJobThatNeverEndsHoldsNoStopUp) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const FolderOfChildren folder;
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
}  // namespace annulus::server
