#ifndef ANNULUS_SERVER_IDENTITY_ADMIN_GATE_H_
#define ANNULUS_SERVER_IDENTITY_ADMIN_GATE_H_

#include "absl/status/status.h"
#include "server/identity/call_context.h"
#include "server/identity/credentials.h"

namespace annulus::server {

// Decides who may make calls that change the server for everybody: callers with the role admin
// (given by the tokens file, or by the admin socket to whoever can open it), and callers that send
// the token of --admin-token-file. A connection from this machine is not enough, because all
// clients of a local proxy have one. Thread-safe.
class AdminGate {
 public:
  // `credentials` must outlive the gate.
  explicit AdminGate(const Credentials& credentials) : credentials_(credentials) {}

  // Whether the call carries the token of --admin-token-file. Such a call needs no other token.
  bool HasToken(const CallContext& call) const;

  // For a call without that token: PERMISSION_DENIED, with advice, unless `caller` has the role.
  absl::Status CheckWithoutToken(const Caller& caller) const;

 private:
  const Credentials& credentials_;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_IDENTITY_ADMIN_GATE_H_
