#ifndef ANNULUS_SERVER_PREFILL_MESSAGES_H_
#define ANNULUS_SERVER_PREFILL_MESSAGES_H_

// PrefillDocument: its messages, told as a generation.

#include <grpcpp/support/byte_buffer.h>

#include "absl/status/status.h"
#include "server/stream_generate_reactor.h"

namespace annulus {

// The request is a question about the documents of which only what stands before it is read.
StreamedCall StreamedPrefill(const ServiceContext& context, const grpc::ByteBuffer& request);

// Leaves of a prompt what ends with its last document's frame, and makes it one to read ahead.
void CutBehindDocuments(RequestSpec& request);

// Puts what an error says of a generation's fields into the terms of PrefillDocumentRequest.
absl::Status PlacePrefillField(absl::Status status);

}  // namespace annulus

#endif  // ANNULUS_SERVER_PREFILL_MESSAGES_H_
