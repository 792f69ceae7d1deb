#ifndef ANNULUS_CLIENT_FAILURE_H_
#define ANNULUS_CLIENT_FAILURE_H_

#include <grpcpp/support/status.h>

#include <chrono>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace annulus::client {

inline constexpr int kExitMisuse = 2;
inline constexpr int kExitPartial = 3;  // some of several items failed
inline constexpr int kExitInterrupted = 130;

// 0 for OK, else 64 + the gRPC code.
int ExitCode(const grpc::Status& status);

// Returns a code's name, for example "NOT_FOUND".
absl::string_view CodeName(grpc::StatusCode code);

// Describes a failed call for people: its code and message, then one indented line for each detail
// of the status (reason, rejected fields by the names of their flags, resource, when to retry), and
// advice if `server` (its address) could not be reached or was lost. Does not end in a newline.
std::string DescribeFailure(const grpc::Status& status, absl::string_view server);

// How long to wait before a retry, if the server said so.
std::optional<std::chrono::milliseconds> RetryDelay(const grpc::Status& status);

// The ErrorInfo reason of a failed call, for example "DOCUMENT_NOT_FOUND"; empty if it has none.
std::string FailureReason(const grpc::Status& status);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_FAILURE_H_
