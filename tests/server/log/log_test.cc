// The log where nobody reads it, and where clients flood it.

#include "server/log/log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/config/load_config.h"
#include "server/log/log_limiter.h"
#include "server/log/log_writer.h"
#include "server/server.h"
#include "tests/server/fake_engine.h"
#include "tests/support/temp_directory.h"

namespace annulus::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

std::string GapMark(uint64_t dropped) { return absl::StrCat("gap ", dropped, "\n"); }

class LogPipeTest : public ::testing::Test {
 protected:
  LogPipeTest() {
    signal(SIGPIPE, SIG_IGN);  // as the daemon does
    EXPECT_EQ(pipe2(ends_, O_CLOEXEC), 0);
  }
  ~LogPipeTest() override {
    CloseWriting();
    CloseReading();
  }
  void CloseReading() { Close(ends_[0]); }
  void CloseWriting() { Close(ends_[1]); }

  // All that was written, up to the end or to `last`.
  std::string ReadUntil(const std::string& last = "") {
    std::string text;
    char buffer[4096];
    for (ssize_t n; (n = read(ends_[0], buffer, sizeof(buffer))) > 0;) {
      text.append(buffer, static_cast<size_t>(n));
      if (!last.empty() && text.find(last) != std::string::npos) break;
    }
    return text;
  }

  int ends_[2];

 private:
  static void Close(int& descriptor) {
    if (descriptor >= 0) close(descriptor);
    descriptor = -1;
  }
};

// Each line is there, or counted at the place where it is missing.
TEST_F(LogPipeTest, AuditLinesAreNeverSuppressed) {
  constexpr int kLines = 1000;  // LogLimiter lets 200 through
  {
    const Logger log(LogLevel::kError, ends_[1]);
    for (int i = 0; i < kLines; ++i) log.Audit("admin_call", {{"number", i}});
    EXPECT_EQ(log.suppressed(), 0u);
    EXPECT_EQ(log.dropped(), 0u);
    log.Flush(seconds(10));
  }
  CloseWriting();
  const std::string text = ReadUntil();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), kLines);
  EXPECT_THAT(text, HasSubstr(" info admin_call number=999\n"));
}

TEST_F(LogPipeTest, WhereNobodyReadsLinesAreDroppedAndCounted) {
  constexpr int kLines = 100'000;
  LogWriter writer(ends_[1], GapMark);
  for (int i = 0; i < kLines; ++i) {
    writer.Post(absl::StrCat("line ", i, std::string(60, '.'), "\n"));
  }
  EXPECT_GT(writer.dropped(), 0u);
  EXPECT_LT(writer.dropped(), static_cast<uint64_t>(kLines));
  std::string text = ReadUntil("gap");
  writer.Post("last\n");
  text += ReadUntil("last\n");
  int64_t next = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    int64_t number = 0;
    if (absl::ConsumePrefix(&line, "line ")) {
      ASSERT_TRUE(absl::SimpleAtoi(line.substr(0, line.find('.')), &number));
      EXPECT_EQ(number, next++);
    } else if (absl::ConsumePrefix(&line, "gap ")) {
      ASSERT_TRUE(absl::SimpleAtoi(line, &number));
      next += number;
    }
  }
  EXPECT_EQ(next, kLines);
}

TEST_F(LogPipeTest, AWriteThatHangsDelaysNoEnd) {
  const auto start = steady_clock::now();
  {
    LogWriter writer(ends_[1], GapMark);
    for (int i = 0; i < 1000; ++i) writer.Post(std::string(1000, 'x'));
    EXPECT_FALSE(writer.Flush(milliseconds(10)));
  }
  EXPECT_LT(steady_clock::now() - start, seconds(10));
  CloseReading();  // ends the write that was left to itself
}

TEST_F(LogPipeTest, ANonBlockingDescriptorLosesNothing) {
  ASSERT_EQ(fcntl(ends_[1], F_SETFL, O_NONBLOCK), 0);
  std::string wanted;
  std::string got;
  std::thread reader([&] { got = ReadUntil(); });
  {
    LogWriter writer(ends_[1], GapMark);
    for (int i = 0; i < 500; ++i) {
      const std::string line = absl::StrCat(i, std::string(1000, '.'), "\n");
      wanted += line;
      writer.Post(line);
    }
    EXPECT_TRUE(writer.Flush(seconds(30)));
    EXPECT_EQ(writer.dropped(), 0u);
  }
  CloseWriting();
  reader.join();
  EXPECT_TRUE(got == wanted);
}

TEST_F(LogPipeTest, LinesThatTheDescriptorRefusesAreCounted) {
  LogWriter writer(ends_[1], GapMark);
  CloseReading();
  writer.Post("a\n");
  writer.Post("b\n");
  EXPECT_TRUE(writer.Flush(seconds(10)));
  EXPECT_EQ(writer.dropped(), 2u);
}

TEST_F(LogPipeTest, WhatClientsCauseIsLimitedAndTheRestCounted) {
  constexpr int kCalls = 1000;
  {
    const Logger log(LogLevel::kInfo, ends_[1]);
    for (int i = 0; i < kCalls; ++i) {
      log.FromClient(LogLevel::kInfo, "call_failed", {{"call", i}});
    }
    log.FromClient(LogLevel::kError, "call_failed", {{"cause", "ours"}});
    log.FromClient(LogLevel::kDebug, "call_done", {});
    EXPECT_GT(log.suppressed(), 0u);
  }
  CloseWriting();
  const std::string text = ReadUntil();
  uint64_t written = 0;
  uint64_t suppressed = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    uint64_t number = 0;
    if (absl::StrContains(line, " info call_failed ")) ++written;
    for (const absl::string_view key : {" suppressed=", " lines="}) {
      const size_t at = line.find(key);
      if (at == absl::string_view::npos) continue;
      EXPECT_TRUE(absl::SimpleAtoi(line.substr(at + key.size()), &number)) << line;
      suppressed += number;
    }
  }
  EXPECT_GE(written, static_cast<uint64_t>(LogLimiter::kBurst));
  EXPECT_LT(written, static_cast<uint64_t>(kCalls));
  EXPECT_EQ(written + suppressed, static_cast<uint64_t>(kCalls));
  EXPECT_THAT(text, HasSubstr("error call_failed cause=ours"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("call_done")));
}

TEST_F(LogPipeTest, OneTenantsLinesHoldBackNoOthers) {
  {
    const Logger log(LogLevel::kInfo, ends_[1]);
    for (int i = 0; i < 500; ++i) {
      log.FromClient(LogLevel::kInfo, "call_failed", {{"tenant", "loud"}});
    }
    log.FromClient(LogLevel::kInfo, "call_failed", {{"tenant", "quiet"}});
    log.FromClient(LogLevel::kInfo, "call_failed", {LogField::IfAny("tenant", "")});
    EXPECT_GT(log.suppressed(), 0u);
  }
  CloseWriting();
  const std::string text = ReadUntil();
  EXPECT_THAT(text, HasSubstr("call_failed tenant=quiet\n"));
  EXPECT_THAT(text, HasSubstr("call_failed\n"));
}

// With the number by which an operator chooses another budget.
TEST_F(LogPipeTest, AStallBudgetThatCannotBeKeptIsSaid) {
  const testing::TempDirectory folder;
  const auto loaded = LoadConfig({"--listen", "127.0.0.1:0", "--metrics", "off", "--admin-listen",
                                  absl::StrCat("unix:", (folder.path() / "admin.sock").string())},
                                 {});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  FakeEngine engine;
  const Logger log(LogLevel::kWarning, ends_[1]);
  auto server = Server::Start(loaded->config, log);
  ASSERT_TRUE(server.ok()) << server.status();
  (*server)->StartServing(engine);
  engine.set_smallest_chunk_seconds(0.75);
  const std::string text = ReadUntil("--threads");
  EXPECT_THAT(text, HasSubstr("stall_budget_not_kept stall_budget_seconds=0.25 "
                              "smallest_chunk_seconds=0.75 advice="));
  EXPECT_THAT(text, HasSubstr("raise it, or use a smaller --page-tokens or more --threads"));
}

TEST(LogLimiterTest, LetsABurstThroughAndThenItsRate) {
  LogLimiter limiter;
  const LogLimiter::Time start{};
  const auto passed = [&](absl::string_view event, LogLimiter::Time now, int calls) {
    int count = 0;
    for (int i = 0; i < calls; ++i) count += limiter.Ask(event, now).write ? 1 : 0;
    return count;
  };
  EXPECT_EQ(passed("a", start, 1000), LogLimiter::kBurst);
  EXPECT_EQ(passed("b", start, 10), 10);  // others have their own
  EXPECT_EQ(limiter.suppressed(), 800u);
  EXPECT_EQ(passed("a", start + seconds(1), 1000), LogLimiter::kPerSecond);
  EXPECT_EQ(passed("a", start + seconds(3600), 1000), LogLimiter::kBurst);
  EXPECT_EQ(passed("a", start, 10), 0);  // time that runs backwards gives nothing
}

TEST(LogLimiterTest, TellsHowManyWereHeldBackOnce) {
  LogLimiter limiter;
  const LogLimiter::Time start{};
  for (int i = 0; i < 203; ++i) limiter.Ask("a", start);
  EXPECT_THAT(limiter.TakeQuiet(start), ElementsAre());
  EXPECT_EQ(limiter.Ask("a", start + milliseconds(30)).suppressed, 3u);
  EXPECT_FALSE(limiter.Ask("a", start + milliseconds(30)).write);
  EXPECT_THAT(limiter.TakeQuiet(start + seconds(2)), ElementsAre(Pair("a", 1u)));
  EXPECT_THAT(limiter.TakeQuiet(start + seconds(4)), ElementsAre());
}

}  // namespace
}  // namespace annulus::server
