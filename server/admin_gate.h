#ifndef ANNULUS_SERVER_ADMIN_GATE_H_
#define ANNULUS_SERVER_ADMIN_GATE_H_

#include <grpcpp/server_context.h>

#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace annulus {

// Decides who may make calls that change the server for everybody. With a token file: whoever sends
// that token, wherever from. Without one: callers on this machine. A proxy makes all its clients
// callers on its own machine, so behind one a token file is needed. Immutable and thread-safe.
class AdminGate {
 public:
  // Empty: no token. Else errors are those of ReadTokenFile.
  static absl::StatusOr<AdminGate> FromFile(const std::string& token_file);

  // Whether the call carries the token of the file: then no other is needed.
  bool HasToken(const grpc::CallbackServerContext& call) const;

  // PERMISSION_DENIED, with what to do, for a call without that token that may not do it either
  // way.
  absl::Status CheckWithoutToken(const grpc::CallbackServerContext& call) const;

 private:
  explicit AdminGate(std::optional<std::string> digest) : digest_(std::move(digest)) {}

  std::optional<std::string> digest_;  // of the token
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_ADMIN_GATE_H_
