#include "server/wire.h"

#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/proto_buffer_writer.h>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "server/errors.h"

namespace annulus {

absl::Status DecodeMessage(const grpc::ByteBuffer& bytes, size_t max_bytes,
                           google::protobuf::Message& message) {
  if (bytes.Length() > max_bytes) {
    return ReasonError(
        absl::StatusCode::kResourceExhausted, v1::ERROR_REASON_MESSAGE_TOO_LARGE,
        absl::StrCat("the message has ", bytes.Length(), " bytes and this server takes at most ",
                     max_bytes,
                     "; upload long texts as documents, or start the server with more "
                     "--max-message-size"),
        {{"needed", absl::StrCat(bytes.Length())}, {"available", absl::StrCat(max_bytes)}});
  }
  grpc::ByteBuffer shared =
      bytes;  // the reader wants a buffer that it may change; slices are shared
  grpc::ProtoBufferReader reader(&shared);
  if (!reader.status().ok() || !message.ParseFromZeroCopyStream(&reader)) {
    return FieldError("", absl::StrCat("the bytes are no ", message.GetDescriptor()->name(),
                                       ": damaged, nested too deeply, or a text is not UTF-8"));
  }
  return absl::OkStatus();
}

void EncodeMessage(const google::protobuf::Message& message, grpc::ByteBuffer& bytes) {
  bool own_buffer = false;
  const grpc::Status status =
      grpc::GenericSerialize<grpc::ProtoBufferWriter, google::protobuf::Message>(message, &bytes,
                                                                                 &own_buffer);
  ANNULUS_CHECK(status.ok()) << "a message of ours cannot be serialised";
}

}  // namespace annulus
