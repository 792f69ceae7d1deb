#ifndef ANNULUS_SERVER_WORK_DECODE_COST_H_
#define ANNULUS_SERVER_WORK_DECODE_COST_H_

#include <google/protobuf/io/zero_copy_stream.h>
#include <google/protobuf/message.h>

#include <cstddef>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace annulus::server {

// Returns an upper bound of the heap memory that decoding the next `size` of `bytes` as a message
// like `prototype` needs at its peak, including the message itself. A decoded message can be much
// larger than its bytes: an empty sub-message takes 2 bytes on the wire and 100 in memory, an empty
// unknown group 2 and 80. So this walks the bytes, with hardly any allocation, and adds up what
// protobuf 3.21 will allocate.
//
// INVALID_ARGUMENT if the bytes are not well-formed (cut short, nested more than 100 deep, a length
// beyond its message), or if a repeated field has more entries than allowed (count_limits.h); the
// error then names the field.
absl::StatusOr<size_t> DecodeCost(google::protobuf::io::ZeroCopyInputStream& bytes, size_t size,
                                  const google::protobuf::Message& prototype);

// INVALID_ARGUMENT: the bytes are not a message like `prototype`.
absl::Status NoSuchMessageError(const google::protobuf::Message& prototype);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_WORK_DECODE_COST_H_
