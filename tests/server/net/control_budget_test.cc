// Frames without a message: each client may send as many as its traffic needs, and no flood.

#include "server/net/control_budget.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>

#include "tests/server/http2_peer.h"

namespace annulus::server {
namespace {

using Call = ControlBudget::Call;

constexpr uint8_t kAck = 1;
constexpr char kPayload[] = "12345678";

class ControlBudgetTest : public ::testing::Test {
 protected:
  static FrameReader Read(FrameType type, uint8_t flags, size_t size) {
    const std::string frame = Frame(type, flags, 1, std::string(size, 'x'));
    absl::string_view bytes = frame, payload;
    FrameReader reader;
    EXPECT_EQ(reader.Next(bytes, payload), FrameReader::Piece::kHeader);
    return reader;
  }
  bool FromClient(FrameType type, uint8_t flags = 0, size_t size = 4, Call call = Call::kNone) {
    return budget_->TakeFromClient(Read(type, flags, size), call, now_);
  }
  void FromServer(FrameType type, uint8_t flags = 0, size_t size = 4) {
    budget_->TakeFromServer(Read(type, flags, size));
  }
  // How many of these are taken, up to `most`.
  int Taken(FrameType type, size_t size = 4, Call call = Call::kNone, int most = 1'000'000) {
    int taken = 0;
    while (taken < most && FromClient(type, 0, size, call)) ++taken;
    return taken;
  }

  std::shared_ptr<Allowance> address_ = ControlBudget::OfAddress();
  std::unique_ptr<ControlBudget> budget_ = std::make_unique<ControlBudget>(address_);
  SteadyTime now_{};
};

TEST_F(ControlBudgetTest, AFloodOfAnyKindEnds) {
  const double most = ControlBudget::kOwnBurst + ControlBudget::kBurst;
  for (const auto type : {FrameType::kPriority, FrameType::kReset, FrameType::kWindowUpdate,
                          FrameType::kContinuation, FrameType::kGoAway, FrameType{0xfa}}) {
    budget_ = std::make_unique<ControlBudget>(ControlBudget::OfAddress());
    EXPECT_LE(Taken(type), most) << static_cast<int>(type);
  }
  budget_ = std::make_unique<ControlBudget>(ControlBudget::OfAddress());
  EXPECT_LE(Taken(FrameType::kData, 0, Call::kOpen), most) << "empty DATA";
  budget_ = std::make_unique<ControlBudget>(ControlBudget::OfAddress());
  EXPECT_LE(Taken(FrameType::kHeaders, 10, Call::kOpen), most) << "HEADERS that open nothing";
  budget_ = std::make_unique<ControlBudget>(ControlBudget::OfAddress());
  EXPECT_LE(Taken(FrameType{0xfa}, 16'000), most / 200) << "a long frame counts as many";
}

TEST_F(ControlBudgetTest, AnswersThatAreOwedAreFew) {
  for (const auto type : {FrameType::kPing, FrameType::kSettings}) {
    budget_ = std::make_unique<ControlBudget>(ControlBudget::OfAddress());
    EXPECT_EQ(Taken(type), ControlBudget::kMostUnanswered);
    budget_ = std::make_unique<ControlBudget>(ControlBudget::OfAddress());
    for (int i = 0; i < 10 * ControlBudget::kMostUnanswered; ++i) {
      EXPECT_TRUE(FromClient(type)) << i;
      FromServer(type, kAck);
    }
  }
}

// A new connection is no new allowance.
TEST_F(ControlBudgetTest, ConnectionsOfOneAddressShare) {
  int taken = Taken(FrameType::kWindowUpdate);
  EXPECT_GT(taken, 18'000);
  budget_ = std::make_unique<ControlBudget>(address_);
  taken = Taken(FrameType::kWindowUpdate);
  EXPECT_GT(taken, 50) << "a client that has just come needs some";
  EXPECT_LE(taken, ControlBudget::kOwnBurst);
}

TEST_F(ControlBudgetTest, TimeGivesThemBack) {
  Taken(FrameType::kReset, 4, Call::kOpen);
  now_ += std::chrono::seconds(10);
  EXPECT_NEAR(Taken(FrameType::kReset, 4, Call::kOpen), 631, 1) << "62.5 a second, and its own";
}

// A client that reads a stream opens its windows again and again, and measures the line.
TEST_F(ControlBudgetTest, ReadersOfManySmallAnswersAreNeverRefused) {
  Taken(FrameType::kWindowUpdate);  // a flood at the same address
  budget_ = std::make_unique<ControlBudget>(address_);
  for (int i = 0; i < 100'000; ++i) {
    FromServer(FrameType::kData, 0, 20);
    EXPECT_TRUE(FromClient(FrameType::kWindowUpdate)) << i;
    EXPECT_TRUE(FromClient(FrameType::kWindowUpdate)) << i;
    EXPECT_TRUE(FromClient(FrameType::kPing)) << i;
    FromServer(FrameType::kPing, kAck);
  }
}

TEST_F(ControlBudgetTest, SendersThatAnswerTheServerAreNeverRefused) {
  Taken(FrameType::kWindowUpdate);
  budget_ = std::make_unique<ControlBudget>(address_);
  for (int i = 0; i < 65'536; ++i) {  // 1 GiB
    EXPECT_TRUE(FromClient(FrameType::kData, 0, 16'384, Call::kOpen));
    FromServer(FrameType::kPing);
    EXPECT_TRUE(FromClient(FrameType::kPing, kAck)) << i;
    EXPECT_TRUE(FromClient(FrameType::kWindowUpdate)) << i;
  }
  EXPECT_LE(Taken(FrameType::kPing, 8, Call::kNone), ControlBudget::kMostUnanswered);
}

TEST_F(ControlBudgetTest, AnswersToNothingCount) {
  int taken = 0;
  while (taken < 1'000'000 && FromClient(FrameType::kPing, kAck, sizeof(kPayload) - 1)) ++taken;
  EXPECT_LE(taken, ControlBudget::kOwnBurst + ControlBudget::kBurst);
}

}  // namespace
}  // namespace annulus::server
