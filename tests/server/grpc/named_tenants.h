#ifndef ANNULUS_TESTS_SERVER_GRPC_NAMED_TENANTS_H_
#define ANNULUS_TESTS_SERVER_GRPC_NAMED_TENANTS_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "server/base/errors.h"
#include "server/identity/authenticator.h"

namespace annulus::server {

// The caller's tenant is what its metadata "x-tenant" says; without it the call is refused.
class NamedTenants final : public Authenticator {
 public:
  absl::StatusOr<Caller> Authenticate(const CallContext& call) const override {
    const std::string* const header = call.FindHeader("x-tenant");
    if (header == nullptr) {
      return ReasonError(absl::StatusCode::kUnauthenticated, v1::ERROR_REASON_TOKEN_REJECTED,
                         "who are you?");
    }
    auto tenant = TenantId::FromName(*header);
    if (!tenant.ok()) return tenant.status();
    Caller caller;
    caller.tenant = *std::move(tenant);
    return caller;
  }
};

}  // namespace annulus::server

#endif  // ANNULUS_TESTS_SERVER_GRPC_NAMED_TENANTS_H_
