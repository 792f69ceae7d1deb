#include "server/header_meter.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/server/http2_peer.h"

namespace annulus {
namespace {

// Whether the meter lets all of it pass, in pieces of `size` bytes.
bool Passes(HeaderMeter meter, const std::string& bytes, size_t size) {
  for (size_t begin = 0; begin < bytes.size(); begin += size) {
    if (!meter.Take(absl::string_view(bytes).substr(begin, size))) return false;
  }
  return true;
}

TEST(HeaderMeterTest, CountsOneBlockAtATimeHoweverItIsCut) {
  const std::string part(91, 'x');  // a hundred bytes with its frame header
  const std::string begin = Frame(FrameType::kHeaders, 0, 1, part);
  const std::string more = Frame(FrameType::kContinuation, 0, 1, part);
  const std::string end = Frame(FrameType::kContinuation, kEndHeaders, 1, part);
  const std::string data = Frame(FrameType::kData, 0, 1, std::string(5000, 'd'));
  const std::string whole = begin + more + end;
  for (const size_t size : {1, 2, 7, 9, 10, 100, 10'000}) {
    EXPECT_TRUE(Passes(HeaderMeter(300), kHttp2Preface + whole + data + whole + data, size))
        << size;
    EXPECT_FALSE(Passes(HeaderMeter(299), kHttp2Preface + whole, size)) << size;
    EXPECT_FALSE(Passes(HeaderMeter(300), kHttp2Preface + data + begin + more + more + more, size));
  }
}

TEST(HeaderMeterTest, EmptyFramesOfABlockCountToo) {
  std::string bytes = kHttp2Preface + Frame(FrameType::kHeaders, 0, 1, "");
  for (int i = 0; i < 11; ++i) bytes += Frame(FrameType::kContinuation, 0, 1, "");
  EXPECT_FALSE(Passes(HeaderMeter(100), bytes, 50));
}

TEST(HeaderMeterTest, OtherProtocolsAreRefused) {
  EXPECT_FALSE(Passes(HeaderMeter(100), "GET / HTTP/1.1\r\n\r\n", 3));
  EXPECT_FALSE(Passes(HeaderMeter(100), absl::StrCat("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\r"), 100));
  EXPECT_TRUE(Passes(HeaderMeter(100), "PRI * HT", 3));
}

}  // namespace
}  // namespace annulus
