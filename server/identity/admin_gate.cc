#include "server/identity/admin_gate.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/base/errors.h"

namespace annulus::server {

bool AdminGate::HasToken(const CallContext& call) const {
  const std::string* const authorization = call.FindHeader("authorization");
  return authorization != nullptr && call.CountHeaders("authorization") == 1 &&
         credentials_.IsAdminToken(*authorization);
}

absl::Status AdminGate::CheckWithoutToken(const Caller& caller) const {
  if (caller.roles.Has(Role::kAdmin)) return absl::OkStatus();
  absl::string_view also = ", or start it with --admin-token-file and send that token";
  if (credentials_.has_roles()) {
    also = ", or call as a caller with the role admin in the server's tokens file";
  } else if (credentials_.has_admin_token()) {
    also = ", or send the token of the server's --admin-token-file as the bearer token";
  }
  return ReasonError(
      absl::StatusCode::kPermissionDenied, v1::ERROR_REASON_ADMIN_ONLY,
      absl::StrCat("this call is for administrators; use the socket of --admin-listen (the "
                   "daemon's log names it), send the daemon SIGTERM",
                   also));
}

}  // namespace annulus::server
