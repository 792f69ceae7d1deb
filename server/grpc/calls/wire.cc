#include "server/grpc/calls/wire.h"

#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/proto_buffer_writer.h>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/work/decode_cost.h"

namespace annulus::server {

absl::Status CheckMessageSize(size_t bytes, size_t most) {
  if (bytes <= most) return absl::OkStatus();
  return ReasonError(
      absl::StatusCode::kResourceExhausted, v1::ERROR_REASON_MESSAGE_TOO_LARGE,
      absl::StrCat("the message has ", bytes, " bytes, and this server accepts at most ", most,
                   " here; upload long texts as documents, or start the server with a larger "
                   "--max-message-size"),
      {{"needed", absl::StrCat(bytes)}, {"available", absl::StrCat(most)}});
}

absl::Status DecodeMessage(const grpc::ByteBuffer& bytes, size_t max_bytes, CallMemory& memory,
                           google::protobuf::Message& message) {
  ANNULUS_RETURN_IF_ERROR(CheckMessageSize(bytes.Length(), max_bytes));
  // gRPC also starts calls that were cancelled before their message came.
  if (!bytes.Valid())
    return absl::CancelledError("the call was cancelled before its message arrived");
  // The cast is safe: the reader does not change bytes that are not compressed. Copying the buffer
  // would copy its list of slices, which a client can make long.
  const auto buffer = const_cast<grpc::ByteBuffer*>(&bytes);
  grpc::ProtoBufferReader counted(buffer);
  if (!counted.status().ok()) return NoSuchMessageError(message);
  ANNULUS_ASSIGN_OR_RETURN(const size_t cost, DecodeCost(counted, bytes.Length(), message));
  ANNULUS_RETURN_IF_ERROR(memory.Hold(CallMemory::kDecoded, cost));
  grpc::ProtoBufferReader reader(buffer);
  if (!reader.status().ok() || !message.ParseFromZeroCopyStream(&reader)) {
    return NoSuchMessageError(message);
  }
  return absl::OkStatus();
}

void DropMessage(const grpc::ByteBuffer& bytes) { const_cast<grpc::ByteBuffer&>(bytes).Clear(); }

void EncodeMessage(const google::protobuf::Message& message, grpc::ByteBuffer& bytes) {
  bool own_buffer = false;
  const grpc::Status status =
      grpc::GenericSerialize<grpc::ProtoBufferWriter, google::protobuf::Message>(message, &bytes,
                                                                                 &own_buffer);
  ANNULUS_CHECK(status.ok()) << "a message of ours cannot be serialised";
}

}  // namespace annulus::server
