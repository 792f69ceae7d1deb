#ifndef ANNULUS_SERVER_DECODE_COST_H_
#define ANNULUS_SERVER_DECODE_COST_H_

#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstddef>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace annulus {

// An upper bound of the heap that decoding `bytes` as a message like `prototype` takes at its peak,
// the message itself included. Decoding multiplies: an empty sub-message is 2 bytes on the wire and
// 100 in memory, an empty unknown group 2 and 80. So the bytes are walked first, next to nothing is
// allocated, and what this protobuf (3.21) will allocate is added up.
//
// INVALID_ARGUMENT: the bytes are not well-formed (cut short, nested more than 100 deep, a length
// beyond its message), or a repeated field has more entries than the protocol allows
// (count_limits.h); the error names the field.
absl::StatusOr<size_t> DecodeCost(const grpc::ByteBuffer& bytes,
                                  const google::protobuf::Message& prototype);

// INVALID_ARGUMENT for bytes that are no message like `prototype`.
absl::Status NoSuchMessageError(const google::protobuf::Message& prototype);

}  // namespace annulus

#endif  // ANNULUS_SERVER_DECODE_COST_H_
