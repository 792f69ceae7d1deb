#ifndef ANNULUS_SERVER_GRPC_CALLS_DECODE_SPEC_H_
#define ANNULUS_SERVER_GRPC_CALLS_DECODE_SPEC_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/base/status_macros.h"
#include "server/generation/generation_run.h"
#include "server/grpc/calls/wire.h"
#include "server/work/call_memory.h"

namespace annulus::server {

// Decodes a request whose field `spec` says what to generate.
template <typename Request>
absl::StatusOr<AskedGeneration> DecodeSpec(const grpc::ByteBuffer& bytes, size_t max_bytes,
                                           CallMemory& memory) {
  Request request;
  ANNULUS_RETURN_IF_ERROR(DecodeMessage(bytes, max_bytes, memory, request));
  AskedGeneration asked;
  asked.spec = std::move(*request.mutable_spec());
  return asked;
}

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GRPC_CALLS_DECODE_SPEC_H_
