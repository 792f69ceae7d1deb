#ifndef ANNULUS_SERVER_ADMIN_GATE_H_
#define ANNULUS_SERVER_ADMIN_GATE_H_

#include <grpcpp/server_context.h>

#include "absl/status/status.h"
#include "server/identity/credentials.h"

namespace annulus {

// Decides who may make calls that change the server for everybody: who has the role admin, from the
// tokens file or by opening the admin socket, and whoever sends the token of --admin-token-file. To
// come from this machine is not enough: a proxy makes all its clients callers on its own machine.
// Thread-safe.
class AdminGate {
 public:
  // `credentials` must outlive the gate.
  explicit AdminGate(const Credentials& credentials) : credentials_(credentials) {}

  // Whether the call carries the token of --admin-token-file: then no other is needed.
  bool HasToken(const grpc::CallbackServerContext& call) const;

  // PERMISSION_DENIED, with what to do, unless `caller`, who did not send that token, has the role.
  absl::Status CheckWithoutToken(const Caller& caller) const;

 private:
  const Credentials& credentials_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_ADMIN_GATE_H_
