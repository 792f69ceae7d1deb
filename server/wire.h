#ifndef ANNULUS_SERVER_WIRE_H_
#define ANNULUS_SERVER_WIRE_H_

#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstddef>

#include "absl/status/status.h"

namespace annulus {

// Services take raw messages and decode them here: left to itself, this gRPC answers bytes that are
// no message (text that is not UTF-8 among them) with UNIMPLEMENTED and no word of explanation.

// INVALID_ARGUMENT for bytes that are no such message; RESOURCE_EXHAUSTED for more than
// `max_bytes`.
absl::Status DecodeMessage(const grpc::ByteBuffer& bytes, size_t max_bytes,
                           google::protobuf::Message& message);

void EncodeMessage(const google::protobuf::Message& message, grpc::ByteBuffer& bytes);

}  // namespace annulus

#endif  // ANNULUS_SERVER_WIRE_H_
