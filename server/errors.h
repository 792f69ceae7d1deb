#ifndef ANNULUS_SERVER_ERRORS_H_
#define ANNULUS_SERVER_ERRORS_H_

// From absl::Status, which the engine and the rest of the server speak, to the status that a client
// gets: a google.rpc.Status with ErrorInfo and, where they apply, BadRequest, RetryInfo and
// ResourceInfo. The table of codes and reasons is proto/annulus/v1/errors.proto.

#include <grpcpp/support/status.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "annulus/v1/errors.pb.h"

namespace annulus {

using ErrorMetadata = std::vector<std::pair<std::string, std::string>>;

// INVALID_ARGUMENT with BadRequest. `field` is the path in the request: "spec.sampling.top_p".
absl::Status FieldError(absl::string_view field, absl::string_view message);

// NOT_FOUND or ALREADY_EXISTS with ResourceInfo; `type` is "model" or "document".
absl::Status ResourceError(absl::StatusCode code, v1::ErrorReason reason, absl::string_view type,
                           absl::string_view name, absl::string_view message);

// Any code with a reason of its own. `metadata` goes into ErrorInfo.
absl::Status ReasonError(absl::StatusCode code, v1::ErrorReason reason, absl::string_view message,
                         const ErrorMetadata& metadata = {});

// An answer that does not fit into one message. `needed` is what is known to be needed of
// `available` bytes.
absl::Status AnswerTooLargeError(size_t needed, size_t available);

// The same for a status that has its reason already, or gets it by what follows.
absl::Status WithMetadata(absl::Status status, const ErrorMetadata& metadata);

// Adds RetryInfo.
absl::Status WithRetry(absl::Status status, int64_t milliseconds);

// What the client gets. Codes that only a fault of ours can cause become INTERNAL with a message
// that reveals nothing: log the original first. Messages are cut to 1 KiB of printable ASCII, so
// that all of it fits into gRPC's trailers. `request_id`: what the log names the call by, for
// google.rpc.RequestInfo; empty: none.
grpc::Status ToGrpcStatus(const absl::Status& status, absl::string_view request_id = "");

// True where ToGrpcStatus hides the message.
bool HidesMessage(const absl::Status& status);

// Quotes a name that a client sent, for messages: printable ASCII, at most 64 characters.
std::string QuoteName(absl::string_view name);

}  // namespace annulus

#endif  // ANNULUS_SERVER_ERRORS_H_
