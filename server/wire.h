#ifndef ANNULUS_SERVER_WIRE_H_
#define ANNULUS_SERVER_WIRE_H_

#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstddef>

#include "absl/status/status.h"
#include "server/call_memory.h"

namespace annulus {

// Services take raw messages and decode them here: left to itself, this gRPC answers bytes that are
// no message (text that is not UTF-8 among them) with UNIMPLEMENTED and no word of explanation.

// Holds what decoding takes as `memory`'s part kDecoded, then decodes; the caller releases the part
// when the message is gone. INVALID_ARGUMENT for bytes that are no such message, or lists with too
// many entries; RESOURCE_EXHAUSTED for more than `max_bytes`, or where there is no room.
absl::Status DecodeMessage(const grpc::ByteBuffer& bytes, size_t max_bytes, CallMemory& memory,
                           google::protobuf::Message& message);

// RESOURCE_EXHAUSTED for more bytes than `most`.
absl::Status CheckMessageSize(size_t bytes, size_t most);

// Frees a request that gRPC would keep until its call ends. Nothing may read it any more.
void DropMessage(const grpc::ByteBuffer& bytes);

void EncodeMessage(const google::protobuf::Message& message, grpc::ByteBuffer& bytes);

}  // namespace annulus

#endif  // ANNULUS_SERVER_WIRE_H_
