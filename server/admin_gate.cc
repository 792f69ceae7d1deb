#include "server/admin_gate.h"

#include <string>

#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "server/config/loopback.h"
#include "server/connection_relay.h"
#include "server/errors.h"

namespace annulus {
namespace {

// gRPC names a peer "ipv4:127.0.0.1:50000" or "ipv6:%5B::1%5D:50000".
bool IsOnThisMachine(const std::string& peer) {
  const std::string plain = absl::StrReplaceAll(peer, {{"%5B", "["}, {"%5D", "]"}});
  absl::string_view address = plain;
  if (!absl::ConsumePrefix(&address, "ipv4:") && !absl::ConsumePrefix(&address, "ipv6:")) {
    return false;
  }
  return IsLoopbackAddress(address);
}

}  // namespace

bool AdminGate::HasToken(const grpc::CallbackServerContext& call) const {
  const auto header = call.client_metadata().find("authorization");
  if (header == call.client_metadata().end()) return false;
  return credentials_.IsAdminToken({header->second.data(), header->second.size()});
}

absl::Status AdminGate::CheckWithoutToken(const grpc::CallbackServerContext& call,
                                          const Caller& caller) const {
  if (caller.roles.Has(Role::kAdmin)) return absl::OkStatus();
  absl::string_view remedy =
      "this call is open to callers on the server's own machine only; make it there, send the "
      "daemon SIGTERM, or start it with --admin-token-file and send that token";
  if (credentials_.has_roles()) {
    remedy =
        "this call needs a caller to whom the server's tokens file gives the role admin; add the "
        "role there, or send the daemon SIGTERM";
  } else if (credentials_.has_admin_token()) {
    remedy = "this call needs the token of the server's --admin-token-file as its bearer token";
  } else if (IsOnThisMachine(ClientAddress(call.peer()))) {
    return absl::OkStatus();
  }
  return ReasonError(absl::StatusCode::kPermissionDenied, v1::ERROR_REASON_ADMIN_ONLY, remedy);
}

}  // namespace annulus
