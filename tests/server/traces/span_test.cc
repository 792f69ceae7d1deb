#include "server/traces/span.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <set>

#include "absl/strings/escaping.h"

namespace annulus::server {
namespace {

using std::chrono::milliseconds;
using ::testing::Contains;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

constexpr char kTrace[] = "0af7651916cd43dd8448eb211c80319c";
const Span::Time kEnd{std::chrono::seconds(1'700'000'000)};

class SpanTest : public ::testing::Test {
 protected:
  std::vector<Span> Spans(absl::string_view error = "") const {
    return SpansOf({call_, "small", "r-1", completion_, error}, milliseconds(1'000), kEnd);
  }

  CallContext call_{.method = "Generate"};
  Completion completion_;
};

TEST_F(SpanTest, PhasesFollowEachOtherWithinTheCall) {
  completion_.timings = {.queue = 0.2, .prefill = 0.3, .decode = 0.4, .total = 0.9};
  completion_.usage.completion_tokens = 7;
  completion_.usage.restored_tokens = 32;
  const std::vector<Span> spans = Spans();
  ASSERT_THAT(spans, SizeIs(4));
  EXPECT_EQ(spans[0].name, "Generate");
  EXPECT_TRUE(spans[0].is_call);
  EXPECT_EQ(spans[0].begin, kEnd - milliseconds(1'000));
  EXPECT_THAT(spans[0].attributes, Contains(Pair("gen_ai.usage.output_tokens", Span::Value(7))));
  Span::Time at = kEnd - milliseconds(900);
  std::set<std::string> ids = {spans[0].id};
  for (const auto& [place, name, length] :
       {std::tuple(1, "queue", 200), {2, "prefill", 300}, {3, "decode", 400}}) {
    const Span& span = spans[static_cast<size_t>(place)];
    EXPECT_EQ(span.name, name);
    EXPECT_FALSE(span.is_call);
    EXPECT_EQ(span.begin, at);
    at += milliseconds(length);
    EXPECT_EQ(span.end, at);
    EXPECT_EQ(span.parent, spans[0].id);
    EXPECT_EQ(span.trace, spans[0].trace);
    EXPECT_TRUE(ids.insert(span.id).second);
  }
  EXPECT_THAT(spans[2].attributes, Contains(Pair("annulus.restored_tokens", Span::Value(32))));
}

TEST_F(SpanTest, BelongToTheSpanOfTheClient) {
  call_.trace = {kTrace, "b7ad6b7169203331"};
  const std::vector<Span> spans = Spans("CANCELLED");
  ASSERT_THAT(spans, SizeIs(1)) << "the engine spent no time on it";
  EXPECT_EQ(absl::BytesToHexString(spans[0].trace), kTrace);
  EXPECT_EQ(absl::BytesToHexString(spans[0].parent), "b7ad6b7169203331");
  EXPECT_EQ(spans[0].error, "CANCELLED");
  call_.trace.sampled = false;
  EXPECT_THAT(Spans(), IsEmpty());
}

TEST_F(SpanTest, WithoutAClientsSpanBeginATrace) {
  const std::vector<Span> first = Spans(), second = Spans();
  EXPECT_THAT(first[0].trace, SizeIs(16));
  EXPECT_THAT(first[0].id, SizeIs(8));
  EXPECT_THAT(first[0].parent, IsEmpty());
  EXPECT_NE(first[0].trace, second[0].trace);
}

// Timings of several threads' clocks may be longer together than the call.
TEST_F(SpanTest, PhasesEndWithTheCall) {
  completion_.timings = {.queue = 0.9, .prefill = 0.9, .decode = 0.9, .total = 2.7};
  for (const Span& span : Spans()) {
    EXPECT_GE(span.begin, kEnd - milliseconds(1'000));
    EXPECT_LE(span.end, kEnd);
  }
}

}  // namespace
}  // namespace annulus::server
