// What the parser of HTTP requests takes, refuses and counts, however the bytes are cut.

#include "server/http/request_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace annulus::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr RequestParser::Limits kLimits{4096, 65536};

struct Parsed {
  HttpRequest request;
  std::string body;
  bool done = false;
  int fault = 0;  // the status; 0: none
  std::string message;
  size_t left = 0;          // bytes behind the request
  size_t most_waiting = 0;  // bytes that the parser left for the next call
};

// Offers the bytes in pieces of `piece`, as a connection does.
Parsed Parse(const std::string& bytes, size_t piece,
             const RequestParser::Limits& limits = kLimits) {
  Parsed parsed;
  RequestParser parser(limits, [&](absl::string_view part) {
    parsed.body.append(part.data(), part.size());
    return absl::OkStatus();
  });
  std::string waiting;
  for (size_t at = 0; at < bytes.size() && !parser.fault(); at += piece) {
    waiting += bytes.substr(at, piece);
    size_t taken = 0;
    do {
      taken = parser.Take(waiting);
      waiting.erase(0, taken);
    } while (taken > 0);
    parsed.most_waiting = std::max(parsed.most_waiting, waiting.size());
  }
  parsed.done = parser.stage() == RequestParser::Stage::kDone && !parser.fault();
  parsed.left = waiting.size();
  if (parser.fault()) {
    parsed.fault = parser.fault()->status;
    parsed.message = parser.fault()->message;
  }
  parsed.request = std::move(parser.request());
  return parsed;
}

constexpr size_t kPieces[] = {1, 2, 3, 7, 64, 100'000};

TEST(RequestParserTest, TakesTheSameHoweverBytesAreCut) {
  for (const size_t piece : kPieces) {
    SCOPED_TRACE(piece);
    const Parsed get = Parse("GET http://a/b?c HTTP/1.1\r\nHost: a\r\nX-Y:  v w \r\n\r\n", piece);
    EXPECT_TRUE(get.done);
    EXPECT_EQ(get.request.method, "GET");
    EXPECT_EQ(get.request.path, "/b");
    EXPECT_EQ(get.request.query, "c");
    EXPECT_THAT(get.request.headers, ElementsAre(Pair("host", "a"), Pair("x-y", "v w")));
    EXPECT_TRUE(get.request.keep_alive);
    EXPECT_FALSE(get.request.has_body);

    const Parsed whole = Parse("POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhelloGET", piece);
    EXPECT_TRUE(whole.done);
    EXPECT_EQ(whole.body, "hello");
    EXPECT_EQ(whole.left, 3u);

    const Parsed chunked = Parse(
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
        "3;a=b\r\nhel\r\n2\r\nlo\r\n0\r\nHost: b\r\nX: y\r\n\r\nGET",
        piece);
    EXPECT_TRUE(chunked.done) << chunked.message;
    EXPECT_EQ(chunked.body, "hello");
    EXPECT_EQ(chunked.left, 3u);
    EXPECT_THAT(chunked.request.headers, ElementsAre(Pair("transfer-encoding", "chunked")));
  }
  EXPECT_FALSE(Parse("GET / HTTP/1.0\r\n\r\n", 9).request.keep_alive);
  EXPECT_FALSE(Parse("GET / HTTP/1.1\r\nConnection: close\r\n\r\n", 9).request.keep_alive);
}

// What two servers could read differently.
TEST(RequestParserTest, RefusesWhatSmugglesRequests) {
  const std::string post = "POST / HTTP/1.1\r\nHost: a\r\n";
  const std::vector<std::string> bad = {
      post + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      post + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
      post + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
      post + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
      post + "Content-Length: 5, 5\r\n\r\nhello",
      post + "Content-Length: +5\r\n\r\nhello",
      post + "Content-Length: -5\r\n\r\nhello",
      post + "Content-Length: 0x5\r\n\r\nhello",
      post + "Content-Length:\r\n\r\nhello",
      post + "Content-Length: 18446744073709551621\r\n\r\nhello",
      post + "Content-Length : 5\r\n\r\nhello",
      post + "Transfer-Encoding: gzip\r\n\r\nhello",
      post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
      post + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
      post + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
      post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
      post + "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
      post + "X: a\r\n b\r\n\r\n",
      post + "X: a\r\n\tContent-Length: 5\r\n\r\nhello",
      post + "Host: b\r\n\r\n",
      post + "Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n",
      post + "Transfer-Encoding: chunked\r\n\r\n5\r\nhelloX\r\n0\r\n\r\n",
      post + "Transfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n",
      post + "Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
      post + "Transfer-Encoding: chunked\r\n\r\n10000000000000005\r\nhello\r\n0\r\n\r\n",
      post + "Transfer-Encoding: chunked\r\n\r\n5 \n\r\nhello\r\n0\r\n\r\n",
      post + "Transfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 5\r\n\r\nhello",
      post + "no colon\r\n\r\n",
      post + "X\x01: y\r\n\r\n",
      "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      "POST / HTTP/1.1\nContent-Length: 5\n\nhello",
      "POST / HTTP/2.0\r\n\r\n",
      "POST  / HTTP/1.1\r\n\r\n",
      "POST x HTTP/1.1\r\n\r\n",
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
      "\r\n\r\n",
      std::string("GET /\0 HTTP/1.1\r\n\r\n", 19),
      "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
  };
  for (const std::string& bytes : bad) {
    for (const size_t piece : kPieces) {
      // Another request follows, as behind a proxy.
      const Parsed parsed = Parse(bytes + "GET / HTTP/1.1\r\n\r\n", piece);
      EXPECT_GE(parsed.fault, 400) << bytes << ", in pieces of " << piece;
      EXPECT_FALSE(parsed.message.empty());
    }
  }
}

TEST(RequestParserTest, LimitsTheHeadInWholeAndInLines) {
  for (const size_t piece : kPieces) {
    SCOPED_TRACE(piece);
    const std::string start = "GET / HTTP/1.1\r\nX: ";
    const size_t room = kLimits.head_bytes - start.size() - 4;
    EXPECT_TRUE(Parse(start + std::string(room, 'x') + "\r\n\r\n", piece).done);
    EXPECT_EQ(Parse(start + std::string(room + 1, 'x') + "\r\n\r\n", piece).fault, 431);
    // Many lines, each taken by itself.
    std::string lines = "GET / HTTP/1.1\r\n";
    while (lines.size() < 3 * kLimits.head_bytes) lines += "A: b\r\n";
    const Parsed many = Parse(lines, piece);
    EXPECT_EQ(many.fault, 431);
    EXPECT_LE(many.most_waiting, kLimits.head_bytes + piece);
    EXPECT_EQ(Parse("GET / HTTP/1.1\r\nX: " + std::string(100'000, 'x'), piece).fault, 431);
  }
}

TEST(ParametersTest, AreDecoded) {
  EXPECT_THAT(ParametersOf("a=1&b%5B%5d=x%20y=z&&c&%=%4"),
              ElementsAre(Pair("a", "1"), Pair("b[]", "x y=z"), Pair("c", ""), Pair("%", "%4")));
  EXPECT_EQ(QueryOf("/a#?b"), "");
}

TEST(RequestParserTest, CountsAllBytesOfABody) {
  const std::string head = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const size_t piece : {size_t{7}, size_t{1000}, size_t{1'000'000}}) {
    SCOPED_TRACE(piece);
    EXPECT_EQ(Parse("POST / HTTP/1.1\r\nContent-Length: 65537\r\n\r\n", piece).fault, 413);
    // A byte in a chunk, with extensions of which the body has much more.
    std::string extended = head;
    for (int i = 0; i < 40; ++i) {
      absl::StrAppend(&extended, "1;a=", std::string(2000, 'x'), "\r\ny\r\n");
    }
    EXPECT_EQ(Parse(extended + "0\r\n\r\n", piece).fault, 413);
    std::string small = head;
    for (int i = 0; i < 20'000; ++i) small += "1\r\ny\r\n";
    EXPECT_EQ(Parse(small + "0\r\n\r\n", piece).fault, 413);
    const Parsed line = Parse(head + "1;a=" + std::string(50'000, 'x'), piece);
    EXPECT_GE(line.fault, 400);
    const Parsed trailers = Parse(head + "0\r\nA: " + std::string(50'000, 'x'), piece);
    EXPECT_GE(trailers.fault, 400);
    EXPECT_LE(std::max(line.most_waiting, trailers.most_waiting), kLimits.head_bytes + piece);
  }
}

TEST(RequestParserTest, StopsBehindTheHeadAndAtATakersError) {
  RequestParser parser(kLimits, [](absl::string_view) { return absl::CancelledError("enough"); });
  const std::string head = "POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
  EXPECT_FALSE(parser.begun());
  EXPECT_EQ(parser.Take(head + "hello"), head.size());
  EXPECT_TRUE(parser.begun());
  EXPECT_EQ(parser.stage(), RequestParser::Stage::kBody);
  EXPECT_TRUE(parser.expects_continue());
  parser.Take("hello");
  EXPECT_TRUE(absl::IsCancelled(parser.body_error()));
  EXPECT_FALSE(parser.fault().has_value());
  EXPECT_EQ(parser.Take("more"), 0u);
  EXPECT_EQ(Parse("GET / HTTP/1.1\r\nExpect: miracles\r\n\r\n", 9).fault, 417);
}

}  // namespace
}  // namespace annulus::server
