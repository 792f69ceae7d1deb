// What decoding takes of the heap, measured, against what was foreseen from the bytes.

#include "server/work/decode_cost.h"

#include <gmock/gmock.h>
#include <google/protobuf/message.h>
#include <google/protobuf/stubs/logging.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "annulus/v1/admin.pb.h"
#include "annulus/v1/attention.pb.h"
#include "annulus/v1/document.pb.h"
#include "annulus/v1/inference.pb.h"
#include "annulus/v1/model.pb.h"
#include "annulus/v1/plan.pb.h"
#include "annulus/v1/sampling.pb.h"
#include "engine/api.h"
#include "server/base/errors.h"
#include "server/grpc/calls/wire.h"
#include "server/work/call_memory.h"
#include "tests/server/work/wire_generator.h"
#include "tests/support/counting_heap.h"

namespace annulus::server {
namespace {

using ::testing::HasSubstr;

// Every message type of the protocol.
std::vector<const google::protobuf::Descriptor*> AllMessages() {
  std::vector<const google::protobuf::Descriptor*> all;
  for (const google::protobuf::FileDescriptor* file :
       {v1::GenerateRequest::descriptor()->file(), v1::SamplingParams::descriptor()->file(),
        v1::AttentionSpec::descriptor()->file(), v1::Document::descriptor()->file(),
        v1::DrainRequest::descriptor()->file(), v1::Model::descriptor()->file(),
        v1::PlanResponse::descriptor()->file()}) {
    for (int i = 0; i < file->message_type_count(); ++i) all.push_back(file->message_type(i));
  }
  return all;
}

std::unique_ptr<google::protobuf::Message> New(const google::protobuf::Descriptor& type) {
  return std::unique_ptr<google::protobuf::Message>(
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(&type)->New());
}

// In slices, as they come from a connection.
grpc::ByteBuffer Slices(const std::string& bytes, size_t slice) {
  std::vector<grpc::Slice> slices;
  for (size_t begin = 0; begin < bytes.size(); begin += slice) {
    slices.emplace_back(bytes.substr(begin, slice));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

struct Decoded {
  bool well_formed = false;
  size_t most_bytes = 0;  // of the heap, the message included
};

Decoded Measure(const grpc::ByteBuffer& bytes, const google::protobuf::Descriptor& type) {
  const google::protobuf::LogSilencer silence;  // about what is not UTF-8
  grpc::ByteBuffer shared = bytes;
  testing::TakeHeapBytesMost();
  const int64_t before = testing::HeapBytes();
  Decoded decoded;
  {
    grpc::ProtoBufferReader reader(&shared);
    const auto message = New(type);
    decoded.well_formed = message->ParseFromZeroCopyStream(&reader);
  }
  decoded.most_bytes = static_cast<size_t>(testing::TakeHeapBytesMost() - before);
  return decoded;
}

absl::StatusOr<size_t> CostOf(grpc::ByteBuffer bytes, const google::protobuf::Message& prototype) {
  grpc::ProtoBufferReader reader(&bytes);
  EXPECT_TRUE(reader.status().ok());
  return DecodeCost(reader, bytes.Length(), prototype);
}

void ExpectBounded(const std::string& bytes, const google::protobuf::Descriptor& type,
                   size_t slice) {
  const grpc::ByteBuffer buffer = Slices(bytes, slice);
  const absl::StatusOr<size_t> cost = CostOf(buffer, *New(type));
  if (cost.ok()) {
    EXPECT_LE(Measure(buffer, type).most_bytes, *cost) << type.name() << ", " << bytes.size();
    return;
  }
  if (absl::StrContains(cost.status().message(), "not allowed")) return;  // a list is too long
  EXPECT_FALSE(Measure(buffer, type).well_formed) << type.name() << ": " << cost.status();
}

TEST(DecodeCostTest, NoMessageTakesMoreThanForeseen) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  WireGenerator generator(seed);
  for (const google::protobuf::Descriptor* type : AllMessages()) {
    ExpectBounded("", *type, 1);  // what is made once for each type is made here
    for (int i = 0; i < 120 && !::testing::Test::HasFailure(); ++i) {
      SCOPED_TRACE(i);
      const size_t size = size_t{1} << generator.Below(16);
      ExpectBounded(generator.Message(*type, size), *type, 1 + generator.Below(300));
    }
  }
}

TEST(DecodeCostTest, BytesThatAreNoMessageAreRefusedOrBounded) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  WireGenerator generator(seed);
  for (const google::protobuf::Descriptor* type : AllMessages()) {
    ExpectBounded("", *type, 1);
    for (int i = 0; i < 60 && !::testing::Test::HasFailure(); ++i) {
      SCOPED_TRACE(i);
      std::string bytes = generator.Message(*type, 1000);
      bytes.resize(generator.Below(bytes.size() + 1));
      for (size_t change = generator.Below(4); change > 0 && !bytes.empty(); --change) {
        bytes[generator.Below(bytes.size())] = static_cast<char>(generator.Below(256));
      }
      ExpectBounded(bytes, *type, 1 + generator.Below(300));
    }
  }
}

TEST(DecodeCostTest, PlainTextCostsLittleMoreThanItself) {
  v1::GenerateRequest request;
  request.mutable_spec()->set_text(std::string(1 << 20, 'x'));
  const auto cost = CostOf(Slices(request.SerializeAsString(), 8192), request);
  ASSERT_TRUE(cost.ok());
  EXPECT_LT(*cost, (size_t{34} << 15) + 2000);
}

// A length that lies would make protobuf reserve up to 50 MB.
TEST(DecodeCostTest, LengthsBeyondTheMessageAreRefused) {
  const std::string lie("\x0a\x80\xc2\xd7\x17x", 6);
  EXPECT_TRUE(absl::IsInvalidArgument(CostOf(Slices(lie, 100), v1::TokenizeRequest()).status()));
}

TEST(DecodeCostTest, ListsThatAreTooLongAreRefusedBeforeTheyAreDecoded) {
  struct Case {
    std::string field;
    std::string message;
    std::function<void(v1::GenerationSpec&)> fill;
  };
  const std::vector<Case> cases = {
      {"spec.messages.messages", "10001 messages",
       [](auto& spec) {
         for (int i = 0; i < 10'001; ++i) spec.mutable_messages()->add_messages();
       }},
      {"spec.documents", "65 documents",
       [](auto& spec) {
         for (int i = 0; i < 65; ++i) spec.add_documents("d");
       }},
      {"spec.sampling.stop", "17 stop texts",
       [](auto& spec) {
         for (int i = 0; i < 17; ++i) spec.mutable_sampling()->add_stop("s");
       }},
      {"spec.sampling.stop_token_ids", "1025 ids",
       [](auto& spec) {
         for (int i = 0; i < 1025; ++i) spec.mutable_sampling()->add_stop_token_ids(i);
       }},
      {"spec.sampling.logit_bias", "1025 entries",
       [](auto& spec) {
         for (int i = 0; i < 1025; ++i) (*spec.mutable_sampling()->mutable_logit_bias())[i] = 1;
       }},
  };
  for (const Case& wrong : cases) {
    v1::GenerateRequest request;
    wrong.fill(*request.mutable_spec());
    const absl::Status status = CostOf(Slices(request.SerializeAsString(), 1000), request).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(wrong.message));
    EXPECT_EQ(status.GetPayload(kFieldPayload), absl::Cord(wrong.field));
  }
}

TEST(DecodeMessageTest, HoldsWhatDecodingTakesOrRefusesWithTheNumbers) {
  std::string groups;  // that nobody knows
  for (int i = 0; i < 10'000; ++i) groups += "\xa3\x38\xa4\x38";
  v1::TokenizeRequest request;
  {
    const auto budget = std::make_shared<MemoryBudget>(size_t{4} << 20);
    CallMemory memory(budget);
    EXPECT_TRUE(DecodeMessage(Slices(groups, 5000), 1 << 20, memory, request).ok());
    EXPECT_GT(budget->used(), size_t{10'000} * 64);
    memory.Release(CallMemory::kDecoded);
    EXPECT_EQ(budget->used(), 0u);

    CallMemory other(budget);
    ASSERT_TRUE(other.Hold(CallMemory::kReceived, size_t{7} << 19).ok());
    const absl::Status full = DecodeMessage(Slices(groups, 5000), 1 << 20, memory, request);
    EXPECT_TRUE(absl::IsResourceExhausted(full));
    EXPECT_TRUE(full.GetPayload(kRetryPayload).has_value());
    EXPECT_THAT(std::string(full.message()), HasSubstr("fewer are free"));
  }
  CallMemory small(std::make_shared<MemoryBudget>(size_t{100} << 10));
  const absl::Status never = DecodeMessage(Slices(groups, 5000), 1 << 20, small, request);
  EXPECT_TRUE(absl::IsOutOfRange(never));
  EXPECT_FALSE(never.GetPayload(kRetryPayload).has_value());
  EXPECT_THAT(std::string(never.message()), HasSubstr("--max-prompts-memory"));
}

}  // namespace
}  // namespace annulus::server
