// What the stream of an answer keeps of the heap, measured.

#include "server/http/answer_blocks.h"

#include <gtest/gtest.h>

#include <memory>

#include "server/http/anthropic/messages_answer.h"
#include "tests/support/counting_heap.h"

namespace annulus::server {
namespace {

// A model can make many, and nothing counts what a stream keeps.
TEST(BlockCutterTest, StreamsKeepNothingOfTheirBlocks) {
  CallMemory memory(std::make_shared<MemoryBudget>(size_t{1} << 20));
  const absl::StatusOr<FormRequest> request = ReadMessagesForm(
      {R"({"max_tokens":5,"stream":true,"messages":[{"role":"user","content":"Hi"}]})"}, memory,
      CancelFlag::Never());
  ASSERT_TRUE(request.ok()) << request.status();
  const AnswerFacts facts;
  Delta delta;
  delta.calls = {{0, "an id", "the name of a function that the heap holds", "{}"}};
  const auto stream = [&] { return request->answer->StreamDelta(facts, delta).size(); };
  stream();
  const int64_t before = testing::HeapBytes();
  for (int i = 1; i < 10'000; ++i) {
    delta.calls[0].index = i;
    stream();
  }
  EXPECT_EQ(testing::HeapBytes(), before);
}

}  // namespace
}  // namespace annulus::server
