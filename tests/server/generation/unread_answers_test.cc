#include "server/generation/unread_answers.h"

#include <gtest/gtest.h>

namespace annulus::server {
namespace {

using std::chrono::seconds;

class FakeCall final : public Answering {
 public:
  explicit FakeCall(bool gone = false) : gone_(gone) {}
  void CutOff() override { ++cut_off_; }
  bool ClientIsGone() const override { return gone_; }
  int cut_off() const { return cut_off_; }

 private:
  const bool gone_;
  int cut_off_ = 0;
};

TEST(UnreadAnswersTest, CutsOffOnceWhatNobodyReads) {
  UnreadAnswers unread;
  FakeCall slow, read;
  unread.Begin(slow);
  unread.Begin(read);
  unread.End(read);
  const SteadyTime now = std::chrono::steady_clock::now() + seconds(100);
  unread.CutOffSince(now - seconds(200), now);
  EXPECT_EQ(slow.cut_off(), 0);
  unread.CutOffSince(now, now);
  unread.CutOffSince(now, now);
  EXPECT_EQ(slow.cut_off(), 1);
  EXPECT_EQ(read.cut_off(), 0);
  EXPECT_FALSE(unread.HasStuck(now + UnreadAnswers::kStuck - seconds(1)));
  EXPECT_TRUE(unread.HasStuck(now + UnreadAnswers::kStuck));
  unread.End(slow);
  EXPECT_FALSE(unread.HasStuck(now + UnreadAnswers::kStuck));
}

TEST(UnreadAnswersTest, ACallWhoseClientIsGoneMustEndSoon) {
  UnreadAnswers unread;
  FakeCall gone(true), there;
  unread.Begin(gone);
  unread.Begin(there);
  const SteadyTime now = std::chrono::steady_clock::now();
  EXPECT_FALSE(unread.HasStuck(now));
  EXPECT_TRUE(unread.HasStuck(now + UnreadAnswers::kStuck));
  unread.End(gone);
  EXPECT_FALSE(unread.HasStuck(now + seconds(3600)));  // a reader that is slow has its time
}

}  // namespace
}  // namespace annulus::server
