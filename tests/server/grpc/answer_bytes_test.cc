#include "server/grpc/calls/answer_bytes.h"

#include <grpcpp/support/proto_buffer_reader.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace annulus::server {
namespace {

v1::Delta MakeDelta(int number) {
  v1::Delta delta;
  if (number % 3 != 0) delta.set_text(absl::StrCat("\xc3\xa9", std::string(number % 7, 'x')));
  if (number % 5 == 0) delta.set_reasoning("hm");
  for (int i = 0; i <= number % 4; ++i) {
    delta.add_token_ids(number * 1000 + i);
    v1::TokenLogprob* const logprob = delta.add_logprobs();
    logprob->set_token_id(number + i);
    logprob->set_logprob(-0.5F);
  }
  return delta;
}

v1::GenerateResponse Read(grpc::ByteBuffer& bytes) {
  v1::GenerateResponse response;
  grpc::ProtoBufferReader reader(&bytes);
  EXPECT_TRUE(response.ParseFromZeroCopyStream(&reader));
  return response;
}

TEST(AnswerBytes, AreTheResponseThatTheEventsMake) {
  for (const int deltas : {0, 1, 2, 100, 20'000}) {
    AnswerBytes answer;
    v1::GenerateResponse expected;
    for (int i = 0; i < deltas; ++i) {
      const v1::Delta delta = MakeDelta(i);
      answer.Add(delta);
      expected.mutable_text()->append(delta.text());
      expected.mutable_reasoning()->append(delta.reasoning());
      expected.mutable_token_ids()->MergeFrom(delta.token_ids());
      expected.mutable_logprobs()->MergeFrom(delta.logprobs());
    }
    expected.mutable_completion()->set_request_id("name");
    const size_t most = answer.size() + expected.completion().ByteSizeLong() + 16;
    grpc::ByteBuffer bytes;
    answer.Finish(expected.completion(), bytes);
    EXPECT_LE(bytes.Length(), most) << deltas;
    EXPECT_EQ(Read(bytes).SerializeAsString(), expected.SerializeAsString()) << deltas;
  }
}

// The end of a long answer is as short as that of a short one: its blocks are handed on.
TEST(AnswerBytes, TheEndOfALongAnswerMovesBlocksAndEncodesNone) {
  constexpr size_t kDeltas = 4000;
  AnswerBytes answer;
  v1::Delta delta;
  delta.set_text(std::string(4000, 'x'));
  for (size_t i = 0; i < kDeltas; ++i) answer.Add(delta);
  grpc::ByteBuffer bytes;
  answer.Finish(v1::Completion(), bytes);
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(bytes.Dump(&slices).ok());
  EXPECT_GE(slices.size(), kDeltas * 4000 / AnswerBytes::kBlockBytes);
  for (const grpc::Slice& slice : slices) EXPECT_LE(slice.size(), AnswerBytes::kBlockBytes);
  EXPECT_EQ(Read(bytes).text().size(), kDeltas * 4000);
}

}  // namespace
}  // namespace annulus::server
