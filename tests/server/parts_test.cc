// The small parts: log, digest, periodic thread, lifecycle.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <string>
#include <thread>

#include "server/base/sha256.h"
#include "server/log/log.h"
#include "server/process/periodic_thread.h"
#include "server/work/lifecycle.h"
#include "tests/server/fake_engine.h"

namespace annulus::server {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

std::string Logged(LogLevel least, const std::function<void(const Logger&)>& use,
                   LogFormat format = LogFormat::kText) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  use(Logger(least, ends[1], format));
  close(ends[1]);
  char buffer[4096];
  const ssize_t size = read(ends[0], buffer, sizeof(buffer));
  close(ends[0]);
  return std::string(buffer, static_cast<size_t>(size));
}

TEST(Logger, WritesOneLinePerEvent) {
  const std::string line = Logged(LogLevel::kInfo, [](const Logger& log) {
    log.Info("request_done", {{"id", "r-7"}, {"tokens", 12}, {"seconds", 0.5}});
  });
  EXPECT_THAT(line, MatchesRegex("[-0-9]+T[:.0-9]+Z info request_done id=r-7 tokens=12 "
                                 "seconds=0.5\n"));
}

TEST(Logger, QuotesWhatCouldBreakALine) {
  const std::string line = Logged(LogLevel::kInfo, [](const Logger& log) {
    log.Warning("x", {{"a", "two words"}, {"b", ""}, {"c", "line\nfeed \"q\""}, {"d", "\xff"}});
    log.Warning("y", {{"e", "a driver's log"}, {"f", "driver's"}, {"g", R"(\'\\')"}});
  });
  EXPECT_THAT(line, HasSubstr(R"(a="two words" b="" c="line\nfeed \"q\"" d="\xff")"));
  EXPECT_THAT(line, HasSubstr(R"(e="a driver's log" f=driver's g="\\'\\\\'")"));
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 2);
}

TEST(Logger, WritesJsonWhateverTheValuesAre) {
  const std::string line = Logged(
      LogLevel::kInfo,
      [](const Logger& log) {
        log.Info("request_done", {{"id", "a \"b\"\\\n\xff"},
                                  {"tokens", 12},
                                  {"seconds", 0.5},
                                  {"never", std::numeric_limits<double>::infinity()},
                                  {"number_in_text", "12"},
                                  LogField::IfAny("trace", "")});
      },
      LogFormat::kJson);
  EXPECT_THAT(line, MatchesRegex("\\{\"time\":\"[-0-9]+T[:.0-9]+Z\",\"level\":\"info\",.*\\}\n"));
  EXPECT_THAT(line, HasSubstr(R"("event":"request_done","id":"a \"b\"\\\u000a\u00ff","tokens":12,)"
                              R"("seconds":0.5,"never":"inf","number_in_text":"12"})"));
}

TEST(Logger, LevelsChangeWhileItIsUsed) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  {
    Logger log(LogLevel::kError, ends[1]);
    log.Info("before");
    log.SetLevel(LogLevel::kInfo);
    log.Info("after");
  }
  close(ends[1]);
  char buffer[4096];
  const ssize_t size = read(ends[0], buffer, sizeof(buffer));
  close(ends[0]);
  const std::string text(buffer, static_cast<size_t>(std::max<ssize_t>(size, 0)));
  EXPECT_EQ(text.find("before"), std::string::npos);
  EXPECT_THAT(text, HasSubstr(" info after"));
}

TEST(Logger, DropsWhatIsNotSevereEnough) {
  const std::string text = Logged(LogLevel::kWarning, [](const Logger& log) {
    log.Debug("no");
    log.Info("no");
    log.Warning("yes");
    log.Error("yes");
  });
  EXPECT_EQ(text.find("no"), std::string::npos);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
}

TEST(Sha256, KnowsTheStandardsVectors) {
  Sha256 empty;
  EXPECT_EQ(empty.FinishHex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  Sha256 pieces;  // FIPS 180-4's "abc"
  pieces.Update("a");
  pieces.Update("");
  pieces.Update("bc");
  EXPECT_EQ(pieces.FinishHex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(PeriodicThread, RunsAtOnceAndAgain) {
  std::atomic<int> runs{0};
  {
    PeriodicThread thread(milliseconds(1), [&] { ++runs; });
    while (runs < 3) std::this_thread::yield();
  }
  const int after = runs;
  std::this_thread::sleep_for(milliseconds(10));
  EXPECT_EQ(runs, after);
}

class FakeWork : public Abortable {
 public:
  void Abort(absl::Status status) override { aborted = status; }
  absl::Status aborted;
};

TEST(Lifecycle, AdmitsOnlyWhileServing) {
  FakeEngine engine;
  Lifecycle lifecycle;
  FakeWork work;
  EXPECT_TRUE(absl::IsUnavailable(lifecycle.engine().status()));
  EXPECT_TRUE(absl::IsUnavailable(lifecycle.Enter(work).status()));
  lifecycle.StartServing(engine);
  EXPECT_TRUE(lifecycle.Enter(work).ok());
  EXPECT_EQ(lifecycle.active(), 1);
  lifecycle.RequestDrain(milliseconds(7));
  lifecycle.RequestDrain(milliseconds(9));
  EXPECT_EQ(lifecycle.WaitForDrain(milliseconds(1)), milliseconds(7));
  FakeWork late;
  EXPECT_TRUE(absl::IsUnavailable(lifecycle.Enter(late).status()));
  EXPECT_TRUE(absl::IsUnavailable(lifecycle.engine_for_changes().status()));
  EXPECT_TRUE(lifecycle.engine().ok());
  EXPECT_FALSE(lifecycle.WaitIdle(milliseconds(1)));
  lifecycle.AbortAll(absl::UnavailableError("stop"));
  EXPECT_TRUE(absl::IsUnavailable(work.aborted));
  lifecycle.Leave(work);
  EXPECT_TRUE(lifecycle.WaitIdle(milliseconds(0)));
}

TEST(Lifecycle, WhatCannotServeSaysWhyAndStillDrains) {
  Lifecycle lifecycle;
  lifecycle.CannotServe(absl::NotFoundError("no device"));
  EXPECT_EQ(lifecycle.phase(), Phase::kFailed);
  FakeWork work;
  for (const absl::Status& status : {lifecycle.Enter(work).status(), lifecycle.engine().status()}) {
    EXPECT_TRUE(absl::IsUnavailable(status));
    EXPECT_THAT(std::string(status.message()), HasSubstr("no device"));
  }
  lifecycle.RequestDrain(std::nullopt);
  lifecycle.CannotServe(absl::NotFoundError("no device"));
  EXPECT_EQ(lifecycle.phase(), Phase::kDraining);
}

TEST(Lifecycle, ADrainBeforeServingStays) {
  FakeEngine engine;
  Lifecycle lifecycle;
  lifecycle.RequestDrain(std::nullopt);
  lifecycle.StartServing(engine);
  EXPECT_EQ(lifecycle.phase(), Phase::kDraining);
  EXPECT_EQ(lifecycle.WaitForDrain(milliseconds(5)), milliseconds(5));
}

}  // namespace
}  // namespace annulus::server
