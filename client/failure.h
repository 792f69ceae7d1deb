#ifndef ANNULUS_CLIENT_FAILURE_H_
#define ANNULUS_CLIENT_FAILURE_H_

#include <grpcpp/support/status.h>

#include <chrono>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace annulus {

inline constexpr int kExitMisuse = 2;
inline constexpr int kExitPartial = 3;  // some of several things failed
inline constexpr int kExitInterrupted = 130;

// 0 for OK, else 64 + the gRPC code.
int ExitCode(const grpc::Status& status);

// "NOT_FOUND".
absl::string_view CodeName(grpc::StatusCode code);

// What a failed call says, for people: its message, then one indented line for each detail that it
// carries (reason, wrong fields by the name of their flag, resource, when to try again). Ends
// without a newline. For a server that cannot be reached, or was lost, advice follows.
std::string DescribeFailure(const grpc::Status& status, absl::string_view server);

// When to try again, if the server says.
std::optional<std::chrono::milliseconds> RetryDelay(const grpc::Status& status);

// The ErrorInfo reason of a failed call, for example "DOCUMENT_NOT_FOUND"; empty if it has none.
std::string FailureReason(const grpc::Status& status);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_FAILURE_H_
