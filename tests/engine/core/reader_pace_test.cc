#include "engine/request/reader_pace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace annulus {
namespace {

using ::testing::HasSubstr;

constexpr double kSilence = 30;

// Looks at a reader every half second until it is found too slow, for an hour at most.
class ReaderPaceTest : public ::testing::Test {
 protected:
  // `room(half seconds)`: whether there is room then; there comes a token where there is.
  template <typename Room>
  double SecondsUntilEnded(const Room& room) {
    ReaderPace pace;
    int64_t tokens = 0;
    for (int half = 0; half < 7200; ++half) {
      const bool has_room = room(half);
      const absl::Status status =
          pace.Check(has_room, tokens, kSilence, SteadyTime(std::chrono::milliseconds(500) * half));
      if (!status.ok()) {
        message_ = std::string(status.message());
        return half / 2.0;
      }
      tokens += has_room;
    }
    return 0;
  }
  std::string message_;
};

TEST_F(ReaderPaceTest, AReaderThatTakesNothingEnds) {
  EXPECT_EQ(SecondsUntilEnded([](int half) { return half < 200; }), 100 + 30.5);
  EXPECT_THAT(message_, HasSubstr("nothing for 30 s"));
}

// One token just before each time limit kept the pages for as long as the answer lasted.
TEST_F(ReaderPaceTest, ATokenBeforeEachTimeLimitIsNotEnough) {
  EXPECT_EQ(SecondsUntilEnded([](int half) { return half % 58 == 0; }), 300);
  EXPECT_THAT(message_, HasSubstr("read 11 tokens in 300 s"));
}

TEST_F(ReaderPaceTest, ATokenASecondIsEnough) {
  EXPECT_EQ(SecondsUntilEnded([](int half) { return half % 2 == 0; }), 0);
}

// It waits for others, or for a long step: that is not its reader's fault.
TEST_F(ReaderPaceTest, ARequestWithRoomNeverEnds) {
  ReaderPace pace;
  for (int second = 0; second < 7200; ++second) {
    const SteadyTime now(std::chrono::seconds(1) * second);
    EXPECT_TRUE(pace.Check(second % 3 > 0, 5, kSilence, now).ok()) << second;
  }
}

}  // namespace
}  // namespace annulus
