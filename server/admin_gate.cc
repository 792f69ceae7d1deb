#include "server/admin_gate.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "kernels/base/status_macros.h"
#include "server/bearer_token.h"
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

absl::StatusOr<AdminGate> AdminGate::FromFile(const std::string& token_file) {
  if (token_file.empty()) return AdminGate(std::nullopt);
  ANNULUS_ASSIGN_OR_RETURN(const std::string token, ReadTokenFile("admin-token-file", token_file));
  return AdminGate(TokenDigest(token));
}

bool AdminGate::HasToken(const grpc::CallbackServerContext& call) const {
  const auto header = call.client_metadata().find("authorization");
  if (!digest_ || header == call.client_metadata().end()) return false;
  return IsBearerToken({header->second.data(), header->second.size()}, *digest_);
}

absl::Status AdminGate::CheckWithoutToken(const grpc::CallbackServerContext& call) const {
  if (!digest_ && IsOnThisMachine(ClientAddress(call.peer()))) return absl::OkStatus();
  return ReasonError(absl::StatusCode::kPermissionDenied, v1::ERROR_REASON_ADMIN_ONLY,
                     digest_ ? "this call needs the token of the server's --admin-token-file as "
                               "its bearer token"
                             : "this call is open to callers on the server's own machine only; "
                               "make it there, send the daemon SIGTERM, or start it with "
                               "--admin-token-file and send that token");
}

}  // namespace annulus
