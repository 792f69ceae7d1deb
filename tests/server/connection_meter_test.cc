#include "server/connection_meter.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/server/http2_peer.h"

namespace annulus {
namespace {

// Whether the meter lets all of it pass, in pieces of `size` bytes.
bool Passes(ConnectionMeter meter, const std::string& bytes, size_t size) {
  for (size_t begin = 0; begin < bytes.size(); begin += size) {
    if (!meter.TakeFromClient(absl::string_view(bytes).substr(begin, size))) return false;
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
        ASSERT_TRUE(meter.TakeFromClient(absl::string_view(bytes).substr(begin, size)));
      }
    };
    take(kHttp2Preface + Opened(1) + Opened(3) + Opened(5));
    take(Frame(FrameType::kData, 0, 1, all.substr(0, 3)));
    EXPECT_EQ(meter.unfinished_bytes(), 3);
    take(Frame(FrameType::kData, 0, 3, absl::StrCat(message, message, all.substr(0, 600))));
    EXPECT_EQ(meter.unfinished_bytes(), 603);
    take(Frame(FrameType::kData, 0, 1, all.substr(3)));
    EXPECT_EQ(meter.unfinished_bytes(), 600);
    take(Frame(FrameType::kData, 0, 5, all.substr(0, 100)));
    take(Frame(FrameType::kReset, 0, 3, "1234"));
    EXPECT_EQ(meter.unfinished_bytes(), 100);
    // What comes after the server's last word is not kept, nor what belongs to no stream.
    meter.TakeFromServer(Frame(FrameType::kHeaders, kEndHeaders | kEndStream, 5, "trailers"));
    take(Frame(FrameType::kData, 0, 5, all.substr(100)) + Frame(FrameType::kData, 0, 7, message));
    EXPECT_EQ(meter.unfinished_bytes(), 0);
    take(Frame(FrameType::kData, 0, 1, GrpcMessage("", 0, 0xffff'ffff)));
    take(Frame(FrameType::kData, 0, 1, std::string(50, 'x')));
    EXPECT_EQ(meter.unfinished_bytes(), 55);
    take(Frame(FrameType::kData, kEndStream, 1, "x"));
    EXPECT_EQ(meter.unfinished_bytes(), 0);
  }
}

TEST(ConnectionMeterTest, PaddingAndCountlessStreamsAreRefused) {
  ConnectionMeter padded(1000);
  EXPECT_FALSE(padded.TakeFromClient(
      absl::StrCat(kHttp2Preface, Opened(1), Frame(FrameType::kData, 8, 1, "1234"))));
  ConnectionMeter many(1000);
  ASSERT_TRUE(many.TakeFromClient(kHttp2Preface));
  uint32_t stream = 1;
  while (stream < 100'000 && many.TakeFromClient(Opened(stream))) stream += 2;
  EXPECT_LT(stream, 40'000);
}

}  // namespace
}  // namespace annulus
