#ifndef ANNULUS_SERVER_BASE_ERRORS_H_
#define ANNULUS_SERVER_BASE_ERRORS_H_

// Converts absl::Status, which the engine and the server use, to the status that a client gets: a
// google.rpc.Status with ErrorInfo and, where they apply, BadRequest, RetryInfo, ResourceInfo and
// RequestInfo. The table of codes and reasons is proto/annulus/v1/errors.proto.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "annulus/v1/errors.pb.h"
#include "google/rpc/status.pb.h"

namespace annulus::server {

using ErrorMetadata = std::vector<std::pair<std::string, std::string>>;

// INVALID_ARGUMENT with BadRequest. `field` is the path of the field, "spec.sampling.top_p"; empty:
// the request as a whole. The path also begins the message, because some clients show nothing else.
absl::Status FieldError(absl::string_view field, absl::string_view message);

// Returns the same error about another field: replaces the path in BadRequest, and at the front of
// the message if it is there.
absl::Status MoveField(const absl::Status& status, absl::string_view field);

// The same for an error about several fields (JoinFieldErrors): replaces each by what `place` makes
// of it. Returns errors that name no field as they are.
absl::Status MoveFields(const absl::Status& status,
                        absl::FunctionRef<std::string(absl::string_view field)> place);

// Names the field that an error is about, in BadRequest and at the front of the message.
absl::Status WithField(const absl::Status& status, absl::string_view field);

// Names `field` in an OUT_OF_RANGE error that names no field: the part of the request that decides
// how much it takes. Returns other errors as they are, and all if `field` is empty.
absl::Status NameIfTooLarge(absl::Status status, absl::string_view field);

// NOT_FOUND or ALREADY_EXISTS with ResourceInfo; `type` is "model", "document" or "request".
absl::Status ResourceError(absl::StatusCode code, v1::ErrorReason reason, absl::string_view type,
                           absl::string_view name, absl::string_view message);

// Any code with a reason; `metadata` goes into ErrorInfo.
absl::Status ReasonError(absl::StatusCode code, v1::ErrorReason reason, absl::string_view message,
                         const ErrorMetadata& metadata = {});

// OUT_OF_RANGE: the answer does not fit into one message of `available` bytes. `needed` is a lower
// bound of its size. `field` is what asks for so much; empty: the caller names it later.
absl::Status AnswerTooLargeError(size_t needed, size_t available, absl::string_view field = "");

// DEADLINE_EXCEEDED: the client's deadline passed while the request waited or ran.
absl::Status DeadlinePassedError();
// CANCELLED: the client cancelled the call, or its connection ended.
absl::Status ClientLeftError();

// Adds metadata for ErrorInfo to a status.
absl::Status WithMetadata(absl::Status status, const ErrorMetadata& metadata);

// Adds RetryInfo: the client should try again after `milliseconds`.
absl::Status WithRetry(absl::Status status, int64_t milliseconds);

// What the trailer grpc-retry-pushback-ms says to gRPC's automatic retries: how long to wait, as
// WithRetry says; -1, do not retry, for a RESOURCE_EXHAUSTED that lasts. Absent: not known, so the
// client's policy decides.
std::optional<std::string> RetryPushback(const absl::Status& status);

// Converts a status to the one that the client gets. Codes that only a fault of the server can
// cause become INTERNAL with a message that reveals nothing, so log the original first. Messages
// are cut to 1 KiB of printable ASCII, so that everything fits into gRPC's trailers. `request_id`,
// the call's id in the log, goes into google.rpc.RequestInfo; empty: none.
google::rpc::Status ToWireStatus(const absl::Status& status, absl::string_view request_id = "");

// Whether the client is told QUEUE_FULL: too much else is under way.
bool IsQueueFull(const absl::Status& status);

// Whether ToWireStatus hides the message of this status.
bool HidesMessage(const absl::Status& status);

// Quotes a client's text for a message: printable ASCII, cut to 64 characters.
std::string QuoteName(absl::string_view name);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_BASE_ERRORS_H_
