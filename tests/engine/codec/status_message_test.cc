#include "engine/codec/status_message.h"

#include <gtest/gtest.h>

#include <string>

namespace annulus::codec {
namespace {

TEST(StatusMessageTest, KeepsCodeMessageAndPayloads) {
  absl::Status status = absl::DataLossError(std::string(kMostStatusBytes, 'a'));
  status.SetPayload("cause", absl::Cord("rank 2"));
  EXPECT_EQ(FromMessage(ToMessage(status)), status);
}

// Whoever sends it may be hostile, and others get it.
TEST(StatusMessageTest, IsBounded) {
  internal::v1::Status hostile = ToMessage(absl::InternalError(std::string(1 << 20, 'a')));
  internal::v1::Payload& large = *hostile.add_payloads();
  large.set_name("large");
  large.set_value(std::string(1 << 20, 'b'));
  for (int i = 0; i < 100'000; ++i) hostile.add_payloads()->set_name(std::to_string(i));
  const absl::Status status = FromMessage(hostile);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(status.message(), std::string(kMostStatusBytes, 'a'));
  EXPECT_FALSE(status.GetPayload("large").has_value());
  EXPECT_LE(ToMessage(status).payloads_size(), kMostStatusPayloads);
}

}  // namespace
}  // namespace annulus::codec
