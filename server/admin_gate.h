#ifndef ANNULUS_SERVER_ADMIN_GATE_H_
#define ANNULUS_SERVER_ADMIN_GATE_H_

#include <grpcpp/server_context.h>

#include "absl/status/status.h"
#include "server/identity/credentials.h"

namespace annulus {

// Decides who may make calls that change the server for everybody: whoever sends the token of
// --admin-token-file, wherever from, and whom the tokens file gives the role admin. Where there is
// neither file: callers on this machine. A proxy makes all its clients callers on its own machine,
// so behind one a file is needed. Thread-safe.
class AdminGate {
 public:
  // `credentials` must outlive the gate.
  explicit AdminGate(const Credentials& credentials) : credentials_(credentials) {}

  // Whether the call carries the token of --admin-token-file: then no other is needed.
  bool HasToken(const grpc::CallbackServerContext& call) const;

  // PERMISSION_DENIED, with what to do, for a call of `caller` without that token that may not do
  // it either way.
  absl::Status CheckWithoutToken(const grpc::CallbackServerContext& call,
                                 const Caller& caller) const;

 private:
  const Credentials& credentials_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_ADMIN_GATE_H_
