#include "server/net/connection_meter.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/server/http2_peer.h"

namespace annulus::server {
namespace {

using std::chrono::seconds;

constexpr SteadyTime kNow{};

// Whether the meter lets all of it pass, in pieces of `size` bytes.
bool Passes(ConnectionMeter meter, const std::string& bytes, size_t size) {
  for (size_t begin = 0; begin < bytes.size(); begin += size) {
    if (!meter.TakeFromClient(absl::string_view(bytes).substr(begin, size), kNow)) return false;
  }
  return true;
}

TEST(ConnectionMeterTest, CountsOneBlockAtATimeHoweverItIsCut) {
  const std::string part(91, 'x');  // a hundred bytes with its frame header
  const std::string begin = Frame(FrameType::kHeaders, 0, 1, part);
  const std::string more = Frame(FrameType::kContinuation, 0, 1, part);
  const std::string end = Frame(FrameType::kContinuation, kEndHeaders, 1, part);
  const std::string data = Frame(FrameType::kData, 0, 1, std::string(5000, 'd'));
  const std::string whole = begin + more + end;
  for (const size_t size : {1, 2, 7, 9, 10, 100, 10'000}) {
    EXPECT_TRUE(Passes(ConnectionMeter(300), kHttp2Preface + whole + data + whole + data, size))
        << size;
    EXPECT_FALSE(Passes(ConnectionMeter(299), kHttp2Preface + whole, size)) << size;
    EXPECT_FALSE(
        Passes(ConnectionMeter(300), kHttp2Preface + data + begin + more + more + more, size));
  }
}

TEST(ConnectionMeterTest, EmptyFramesOfABlockCountToo) {
  std::string bytes = kHttp2Preface + Frame(FrameType::kHeaders, 0, 1, "");
  for (int i = 0; i < 11; ++i) bytes += Frame(FrameType::kContinuation, 0, 1, "");
  EXPECT_FALSE(Passes(ConnectionMeter(100), bytes, 50));
}

TEST(ConnectionMeterTest, OtherProtocolsAreRefused) {
  EXPECT_FALSE(Passes(ConnectionMeter(100), "GET / HTTP/1.1\r\n\r\n", 3));
  EXPECT_FALSE(Passes(ConnectionMeter(100), absl::StrCat("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\r"), 100));
  EXPECT_TRUE(Passes(ConnectionMeter(100), "PRI * HT", 3));
}

std::string Opened(uint32_t stream) {
  return Frame(FrameType::kHeaders, kEndHeaders, stream, CallHeaders("/a/B"));
}

TEST(ConnectionMeterTest, CountsMessagesThatAreNotComplete) {
  const std::string message = GrpcMessage(std::string(1000, 'm'));
  const absl::string_view all = message;
  for (const size_t size : {1, 3, 100, 10'000}) {
    SCOPED_TRACE(size);
    ConnectionMeter meter(1000);
    const auto take = [&](const std::string& bytes) {
      for (size_t begin = 0; begin < bytes.size(); begin += size) {
        ASSERT_TRUE(meter.TakeFromClient(absl::string_view(bytes).substr(begin, size), kNow));
      }
    };
    take(kHttp2Preface + Opened(1) + Opened(3) + Opened(5));
    size_t calls = meter.held_bytes();  // what is held without messages
    const size_t each = calls / 3;
    take(Frame(FrameType::kData, 0, 1, all.substr(0, 3)));
    EXPECT_EQ(meter.held_bytes(), calls + 3);
    take(Frame(FrameType::kData, 0, 3, absl::StrCat(message, message, all.substr(0, 600))));
    EXPECT_EQ(meter.held_bytes(), calls + 603);
    take(Frame(FrameType::kData, 0, 1, all.substr(3)));
    EXPECT_EQ(meter.held_bytes(), calls + 600);
    take(Frame(FrameType::kData, 0, 5, all.substr(0, 100)));
    take(Frame(FrameType::kReset, 0, 3, "1234"));
    calls -= each;
    EXPECT_EQ(meter.held_bytes(), calls + 100);
    // What comes after the server's last word is not kept, nor what belongs to no stream.
    meter.TakeFromServer(Frame(FrameType::kHeaders, kEndHeaders | kEndStream, 5, "trailers"));
    take(Frame(FrameType::kData, 0, 5, all.substr(100)) + Frame(FrameType::kData, 0, 7, message));
    calls -= each;
    EXPECT_EQ(meter.held_bytes(), calls);
    take(Frame(FrameType::kData, 0, 1, GrpcMessage("", 0, 0xffff'ffff)));
    take(Frame(FrameType::kData, 0, 1, std::string(50, 'x')));
    EXPECT_EQ(meter.held_bytes(), calls + 55);
    take(Frame(FrameType::kData, kEndStream, 1, "x"));
    EXPECT_EQ(meter.held_bytes(), calls);
  }
}

TEST(ConnectionMeterTest, PaddingAndCountlessStreamsAreRefused) {
  ConnectionMeter padded(1000);
  EXPECT_FALSE(padded.TakeFromClient(
      absl::StrCat(kHttp2Preface, Opened(1), Frame(FrameType::kData, 8, 1, "1234")), kNow));
  ConnectionMeter many(1000);
  ASSERT_TRUE(many.TakeFromClient(kHttp2Preface, kNow));
  uint32_t stream = 1;
  while (stream < 100'000 && many.TakeFromClient(Opened(stream), kNow)) stream += 2;
  EXPECT_LT(stream, 40'000);
}

// gRPC keeps each call, and its headers, until it ends: without a message, without a token.
TEST(ConnectionMeterTest, CountsCallsAndTheirHeaders) {
  ConnectionMeter meter(80'000);
  ASSERT_TRUE(meter.TakeFromClient(kHttp2Preface, kNow));
  EXPECT_EQ(meter.held_bytes(), 0);
  const std::string short_block = Frame(FrameType::kHeaders, kEndHeaders, 1, std::string(91, 'h'));
  ASSERT_TRUE(meter.TakeFromClient(short_block, kNow));
  const size_t one = ConnectionMeter::kStreamBytes + 100 * ConnectionMeter::kHeaderFactor;
  EXPECT_EQ(meter.held_bytes(), one);
  // One byte can stand for a header that came before; but gRPC unpacks no more than its limit.
  const std::string begin = Frame(FrameType::kHeaders, 0, 3, std::string(16'000, 'h'));
  const std::string more =
      Frame(FrameType::kContinuation, kEndHeaders, 3, std::string(50'000, 'h'));
  ASSERT_TRUE(meter.TakeFromClient(begin + more, kNow));
  const size_t most = ConnectionMeter::kStreamBytes + ConnectionMeter::kMostHeadersKept;
  EXPECT_EQ(meter.held_bytes(), one + most);
  // They stay while the call waits for its answer.
  ASSERT_TRUE(meter.TakeFromClient(Frame(FrameType::kData, kEndStream, 3, GrpcMessage("x")), kNow));
  EXPECT_EQ(meter.held_bytes(), one + most);
  meter.TakeFromServer(Frame(FrameType::kHeaders, kEndHeaders | kEndStream, 3, "trailers"));
  EXPECT_EQ(meter.held_bytes(), one);
  ASSERT_TRUE(meter.TakeFromClient(Frame(FrameType::kReset, 0, 1, "1234"), kNow));
  EXPECT_EQ(meter.held_bytes(), 0);
}

// A client of one call, looked at each second for so long as it is not found to trickle.
class TrickleTest : public ::testing::Test {
 protected:
  static constexpr seconds kLimit{60};

  TrickleTest() { EXPECT_TRUE(meter_.TakeFromClient(kHttp2Preface + Opened(1), kNow)); }

  void Send(const std::string& bytes) {
    EXPECT_TRUE(meter_.TakeFromClient(Frame(FrameType::kData, 0, 1, bytes), kNow + at_));
  }
  // `each_second(second)` sends. The second in which it was found, or 0.
  template <typename Sends>
  int64_t Found(const Sends& each_second, seconds most = seconds(3600)) {
    for (; at_ < most; at_ += seconds(1)) {
      each_second(at_.count());
      if (meter_.Trickles(kNow + at_, kLimit, held_up_)) return at_.count();
    }
    return 0;
  }

  ConnectionMeter meter_{1000};
  seconds at_{0};
  bool held_up_ = false;
};

TEST_F(TrickleTest, ACallWithoutItsMessageIsFound) {
  EXPECT_EQ(Found([](int64_t) {}), 60);
}

TEST_F(TrickleTest, AMessageByteByByteIsFound) {
  Send(GrpcMessage("", 0, 1 << 24));
  EXPECT_EQ(Found([&](int64_t) { Send("x"); }), 60);
}

TEST_F(TrickleTest, AMessageThatGoesOnThenStopsIsFound) {
  Send(GrpcMessage("", 0, 1 << 24));
  EXPECT_EQ(Found([&](int64_t second) { Send(std::string(second < 100 ? 2000 : 0, 'x')); }), 180);
}

// 16 MiB over a line of 16 kbit/s take more than two hours.
TEST_F(TrickleTest, ASlowMessageThatGoesOnIsNot) {
  Send(GrpcMessage("", 0, 1 << 24));
  EXPECT_EQ(Found([&](int64_t) { Send(std::string(2000, 'x')); }), 0);
}

TEST_F(TrickleTest, ACallThatWaitsForItsAnswerIsNot) {
  Send(GrpcMessage("whole"));
  EXPECT_EQ(Found([](int64_t) {}), 0);
  // What comes of a second message has the time limits of its call.
  Send("x");
  EXPECT_EQ(Found([](int64_t) {}, seconds(7200)), 0);
}

TEST_F(TrickleTest, AClientThatGrpcHoldsUpIsNotToBlame) {
  held_up_ = true;
  EXPECT_EQ(Found([](int64_t) {}, seconds(600)), 0);
  held_up_ = false;
  EXPECT_EQ(Found([](int64_t) {}), 659);
}

}  // namespace
}  // namespace annulus::server
