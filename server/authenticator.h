#ifndef ANNULUS_SERVER_AUTHENTICATOR_H_
#define ANNULUS_SERVER_AUTHENTICATOR_H_

#include <grpcpp/server_context.h>

#include <memory>

#include "absl/status/statusor.h"
#include "server/identity/credentials.h"

namespace annulus {

// Who makes a call.
using Identity = Caller;

// Decides whether a call may be answered, and for whom. Health and reflection do not ask: probes
// have no token. Implementations are thread-safe.
class Authenticator {
 public:
  virtual ~Authenticator() = default;

  // UNAUTHENTICATED, a ReasonError, unless the call proves an identity.
  virtual absl::StatusOr<Identity> Authenticate(const grpc::CallbackServerContext& call) const = 0;

  // One that knows the tokens and certificates of `credentials`, which must outlive it: calls must
  // carry "authorization: Bearer TOKEN", or come with a certificate that the tokens file names.
  // A token, where one is sent, decides. If nobody needs an identity, everybody is the tenant
  // `default`.
  static std::unique_ptr<const Authenticator> For(const Credentials& credentials);
  // For callers of the admin socket: who may open it has every role, and belongs to the tenant
  // `default`.
  static std::unique_ptr<const Authenticator> ForAdminSocket();
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_AUTHENTICATOR_H_
