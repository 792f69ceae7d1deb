#ifndef ANNULUS_SERVER_AUTHENTICATOR_H_
#define ANNULUS_SERVER_AUTHENTICATOR_H_

#include <grpcpp/server_context.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/api.h"

namespace annulus {

// Who makes a call.
struct Identity {
  TenantId tenant;
};

// Decides whether a call may be answered, and for whom. Health and reflection do not ask: probes
// have no token. Implementations are immutable and thread-safe.
class Authenticator {
 public:
  virtual ~Authenticator() = default;

  // UNAUTHENTICATED, a ReasonError, unless the call proves an identity.
  virtual absl::StatusOr<Identity> Authenticate(const grpc::CallbackServerContext& call) const = 0;

  // One that knows one token, the first line of `token_file`: calls must carry "authorization:
  // Bearer TOKEN". If `token_file` is empty it lets everybody in. Either way all callers are the
  // tenant `default`. Errors are those of ReadTokenFile.
  static absl::StatusOr<std::unique_ptr<Authenticator>> FromFile(const std::string& token_file);
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_AUTHENTICATOR_H_
