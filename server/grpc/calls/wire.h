#ifndef ANNULUS_SERVER_GRPC_CALLS_WIRE_H_
#define ANNULUS_SERVER_GRPC_CALLS_WIRE_H_

#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstddef>

#include "absl/status/status.h"
#include "server/work/call_memory.h"

namespace annulus::server {

// Services decode their messages themselves: gRPC 1.51 would answer bytes that are not a message
// (for example text that is not UTF-8) with UNIMPLEMENTED and no explanation.

// Decodes a raw message. First holds the memory for it as kDecoded in `memory`; the caller must
// release that part when the message is gone. INVALID_ARGUMENT if the bytes are not such a message,
// or if a list has too many entries; RESOURCE_EXHAUSTED if there are more than `max_bytes`;
// CANCELLED if the call was cancelled before its message came; errors of CallMemory::Hold.
absl::Status DecodeMessage(const grpc::ByteBuffer& bytes, size_t max_bytes, CallMemory& memory,
                           google::protobuf::Message& message);

// RESOURCE_EXHAUSTED if `bytes` is more than `most`.
absl::Status CheckMessageSize(size_t bytes, size_t most);

// Frees a request that gRPC would keep until its call ends. It must not be read afterwards.
void DropMessage(const grpc::ByteBuffer& bytes);

void EncodeMessage(const google::protobuf::Message& message, grpc::ByteBuffer& bytes);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GRPC_CALLS_WIRE_H_
