#ifndef ANNULUS_SERVER_IDENTITY_AUTHENTICATOR_H_
#define ANNULUS_SERVER_IDENTITY_AUTHENTICATOR_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/identity/call_context.h"
#include "server/identity/credentials.h"

namespace annulus::server {

// The caller of a call.

// Identifies the caller of a call. The health and reflection services do not use it, because probes
// have no token. Implementations must be thread-safe.
class Authenticator {
 public:
  virtual ~Authenticator() = default;

  // UNAUTHENTICATED (a ReasonError) unless the call proves an identity.
  virtual absl::StatusOr<Caller> Authenticate(const CallContext& call) const = 0;

  // Accepts the tokens and certificates of `credentials`, which must outlive the authenticator.
  // Calls must carry one header "authorization: Bearer TOKEN" or come with a client certificate
  // that the tokens file names. If both are there, only the token counts. If the server requires no
  // identity, every caller is the tenant `default`.
  static std::unique_ptr<const Authenticator> For(const Credentials& credentials);
  // For the admin socket: every caller has all roles and belongs to the tenant `default`.
  static std::unique_ptr<const Authenticator> ForAdminSocket();
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_IDENTITY_AUTHENTICATOR_H_
