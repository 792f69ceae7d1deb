#ifndef ANNULUS_SERVER_AUTHENTICATOR_H_
#define ANNULUS_SERVER_AUTHENTICATOR_H_

#include <grpcpp/server_context.h>

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace annulus {

// Decides whether a call may be answered. Health and reflection are not asked for a token: probes
// have none. Immutable and thread-safe.
class Authenticator {
 public:
  // Lets everybody in where `token_file` is empty; else its first line is the one token known.
  // NOT_FOUND or INVALID_ARGUMENT where the file is unreadable or that line is empty.
  static absl::StatusOr<Authenticator> FromFile(const std::string& token_file);

  // UNAUTHENTICATED unless the call carries "authorization: Bearer TOKEN".
  absl::Status Check(const grpc::CallbackServerContext& call) const;

 private:
  explicit Authenticator(std::optional<std::string> digest) : digest_(std::move(digest)) {}

  std::optional<std::string> digest_;  // SHA-256 of the token
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_AUTHENTICATOR_H_
