#ifndef ANNULUS_SERVER_GRPC_CALLS_PREFILL_MESSAGES_H_
#define ANNULUS_SERVER_GRPC_CALLS_PREFILL_MESSAGES_H_

// Handles the messages of PrefillDocument as those of a generation.

#include <grpcpp/support/byte_buffer.h>

#include "absl/status/status.h"
#include "server/grpc/calls/stream_generate_reactor.h"

namespace annulus::server {

// Treats the request as a question about the documents, of which only the part before the question
// is computed.
StreamedCall StreamedPrefill(const ServiceContext& context, const grpc::ByteBuffer& request);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GRPC_CALLS_PREFILL_MESSAGES_H_
