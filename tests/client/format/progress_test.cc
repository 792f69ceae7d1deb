#include "client/format/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <sstream>
#include <thread>

namespace annulus::client {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

ProgressSample Reading(int64_t done, int64_t total) {
  ProgressSample sample;
  sample.phase = "Reading";
  sample.done = done;
  sample.total = total;
  sample.elapsed = 2;
  return sample;
}

TEST(ProgressLine, ShowsTokensRateAndEta) {
  ProgressSample sample = Reading(32768, 65536);
  sample.eta = 6.2;
  EXPECT_EQ(ProgressLine(sample, 100),
            "Reading    [##############--------------]   50%  32,768/65,536 tokens  16,384 tok/s  "
            "ETA 6.20 s");
  EXPECT_EQ(ProgressLine(sample, 0),
            "Reading     50%  32,768/65,536 tokens  16,384 tok/s  ETA 6.20 s");
}

TEST(ProgressLine, KeepsABlankAfterALongPhase) {
  ProgressSample sample = Reading(400, 400);
  sample.phase = "Reading densely";
  EXPECT_THAT(ProgressLine(sample, 0), StartsWith("Reading densely 100%  400/400 tokens"));
}

TEST(ProgressLine, EstimatesTheEndFromTheRate) {
  EXPECT_THAT(ProgressLine(Reading(100, 400), 0), EndsWith("50.0 tok/s  ETA 6.00 s"));
}

TEST(ProgressLine, CountsRequestsWithoutARate) {
  ProgressSample sample = Reading(30, 50);
  sample.phase = "Answering";
  sample.unit = ProgressSample::Unit::kItems;
  sample.cached = 10;
  EXPECT_EQ(ProgressLine(sample, 0), "Answering   60%  30/50  10 from before  ETA 2.00 s");
}

TEST(ProgressLine, LeavesCachedTokensOutOfTheRate) {
  ProgressSample sample = Reading(300, 400);
  sample.cached = 200;
  EXPECT_EQ(ProgressLine(sample, 0),
            "Reading     75%  300/400 tokens  50.0 tok/s  200 cached  ETA 2.00 s");
}

TEST(ProgressLine, FitsTheTerminal) {
  for (int columns = 30; columns < 200; ++columns) {
    EXPECT_LT(ProgressLine(Reading(32768, 65536), columns).size(), columns);
  }
  EXPECT_THAT(ProgressLine(Reading(1, 2), 200), HasSubstr("[####################-----"));
}

TEST(ProgressLine, KeepsTheEndLongest) {
  ProgressSample sample = Reading(32768, 65536);
  sample.eta = 6.2;
  EXPECT_EQ(ProgressLine(sample, 64),
            "Reading     50%  32,768/65,536 tokens  16,384 tok/s  ETA 6.20 s");
  EXPECT_EQ(ProgressLine(sample, 63), "Reading     50%  32,768/65,536 tokens  ETA 6.20 s");
  EXPECT_EQ(ProgressLine(sample, 40), "Reading     50%  ETA 6.20 s");
}

TEST(ProgressLine, HasNoBarOrEtaWithoutATotal) {
  ProgressSample sample;
  sample.phase = "Answering";
  sample.done = 42;
  sample.elapsed = 4;
  EXPECT_EQ(ProgressLine(sample, 100), "Answering  42 tokens  10.5 tok/s");
}

TEST(ProgressLine, ShowsBytes) {
  ProgressSample sample = Reading(1 << 20, 2 << 20);
  sample.unit = ProgressSample::Unit::kBytes;
  EXPECT_EQ(ProgressLine(sample, 0), "Reading     50%  1.0 MiB/2.0 MiB  512.0 KiB/s  ETA 2.00 s");
}

TEST(ProgressLine, BearsOddNumbers) {
  ProgressSample sample = Reading(0, 0);
  sample.elapsed = 0;
  EXPECT_EQ(ProgressLine(sample, 100), "Reading    0/0 tokens");
  sample = Reading(9, 3);
  EXPECT_THAT(ProgressLine(sample, 0), HasSubstr("100%"));
  sample.cached = 100;
  EXPECT_THAT(ProgressLine(sample, 0), HasSubstr("0.00 tok/s"));
}

class Display : public ::testing::Test {
 protected:
  ProgressDisplay Make(ProgressDisplay::Mode mode, int columns = 80) {
    columns_ = columns;
    return ProgressDisplay(
        out_, mode, [this] { return columns_; }, [this] { return now_; });
  }
  void Wait(int milliseconds) { now_ += std::chrono::milliseconds(milliseconds); }
  std::string Take() {
    const std::string text = out_.str();
    out_.str("");
    return text;
  }

  std::ostringstream out_;
  int columns_ = 80;
  std::chrono::steady_clock::time_point now_{};
};

TEST_F(Display, BarIsRedrawnInPlaceAndTakenAway) {
  {
    auto display = Make(ProgressDisplay::Mode::kBar);
    display.Show(Reading(1, 100));
    EXPECT_THAT(Take(), HasSubstr("\r\x1b[KReading"));
    display.Show(Reading(2, 100));
    EXPECT_EQ(Take(), "") << "too soon";
    Wait(100);
    display.Show(Reading(3, 100));
    EXPECT_THAT(Take(), HasSubstr("3/100"));
    display.Show(Reading(100, 100));
    EXPECT_THAT(Take(), HasSubstr("100/100")) << "the end is always shown";
  }
  EXPECT_EQ(Take(), "\r\x1b[K");
}

TEST_F(Display, BarNeverWraps) {
  auto display = Make(ProgressDisplay::Mode::kBar, 20);
  display.Show(Reading(32768, 65536));
  EXPECT_LT(Take().size(), 20 + std::string("\r\x1b[K").size());
}

// Nothing is heard, and the bar goes on: what is left gets less, and never less than nothing.
TEST_F(Display, BarTicksBetweenTwoWords) {
  auto display = Make(ProgressDisplay::Mode::kBar);
  display.Tick();
  EXPECT_EQ(Take(), "") << "there is no bar yet";
  ProgressSample sample = Reading(50, 100);
  sample.eta = 3;
  display.Show(sample);
  EXPECT_THAT(Take(), HasSubstr("ETA 3.00 s"));
  Wait(999);
  display.Tick();
  EXPECT_EQ(Take(), "") << "too soon";
  Wait(1);
  display.Tick();
  EXPECT_THAT(Take(), AllOf(HasSubstr("50/100 tokens  25.0 tok/s"), HasSubstr("ETA 2.00 s")));
  Wait(4000);
  display.Tick();
  EXPECT_THAT(Take(), AllOf(HasSubstr("50/100 tokens"), Not(HasSubstr("ETA"))));
  display.Clear();
  Take();
  Wait(5000);
  display.Tick();
  EXPECT_EQ(Take(), "") << "something else may be there now";
}

TEST_F(Display, RemarksAndAnswersTellTheTime) {
  auto display = Make(ProgressDisplay::Mode::kBar);
  display.Note("2 requests ahead");
  Wait(2000);
  display.Note("1 request ahead");
  EXPECT_THAT(Take(), HasSubstr("1 request ahead, 2.00 s"));
  Wait(3000);
  display.Tick();
  EXPECT_THAT(Take(), HasSubstr("1 request ahead, 5.00 s"));
  ProgressSample answer;
  answer.phase = "Answering";
  answer.done = 10;
  answer.elapsed = 1;
  display.Show(answer);
  EXPECT_THAT(Take(), HasSubstr("10.0 tok/s"));
  Wait(4000);
  display.Tick();
  EXPECT_THAT(Take(), HasSubstr("2.00 tok/s"));
}

TEST_F(Display, BarObeysTheWindow) {
  auto display = Make(ProgressDisplay::Mode::kBar);
  display.Show(Reading(50, 100));
  EXPECT_THAT(Take(), HasSubstr("[####----]"));
  columns_ = 40;
  display.Tick();
  EXPECT_EQ(Take(), "\r\x1b[KReading     50%  ETA 2.00 s");
}

TEST(ProgressTicker, TicksUntilItEnds) {
  std::atomic<int> looks = 0;
  std::ostringstream out;
  ProgressDisplay display(out, ProgressDisplay::Mode::kBar, [&] { return 80 + looks++; });
  display.Show(Reading(1, 2));
  {
    const ProgressTicker ticker(display);
    while (looks < 4) std::this_thread::yield();
  }
  const int seen = looks;
  std::this_thread::yield();
  EXPECT_EQ(looks, seen);
}

TEST_F(Display, LinesComeNowAndThen) {
  auto display = Make(ProgressDisplay::Mode::kLines);
  display.Show(Reading(1, 100));
  Wait(4999);
  display.Show(Reading(40, 100));
  EXPECT_EQ(Take(), "") << "short waits leave no trace in a log";
  Wait(1);
  display.Show(Reading(50, 100));
  EXPECT_EQ(Take(), "Reading     50%  50/100 tokens  25.0 tok/s  ETA 2.00 s\n");
  display.Show(Reading(100, 100));
  EXPECT_THAT(Take(), HasSubstr("100/100")) << "what began a line ends with one";
}

TEST_F(Display, QuickPhasesLeaveNoLines) {
  auto display = Make(ProgressDisplay::Mode::kLines);
  display.Show(Reading(100, 100));
  display.Note("waiting");
  EXPECT_EQ(Take(), "");
  Wait(6000);
  display.Note("waiting");
  EXPECT_EQ(Take(), "waiting\n");
}

TEST_F(Display, NoneIsSilent) {
  auto display = Make(ProgressDisplay::Mode::kNone);
  Wait(60000);
  display.Show(Reading(1, 2));
  display.Note("waiting");
  display.Clear();
  EXPECT_EQ(Take(), "");
}

}  // namespace
}  // namespace annulus::client
