#include "server/authenticator.h"

#include <string>
#include <utility>

#include "kernels/base/status_macros.h"
#include "server/bearer_token.h"
#include "server/errors.h"

namespace annulus {
namespace {

class Everybody final : public Authenticator {
 public:
  absl::StatusOr<Identity> Authenticate(const grpc::CallbackServerContext&) const override {
    return Identity();
  }
};

class OneToken final : public Authenticator {
 public:
  explicit OneToken(std::string digest) : digest_(std::move(digest)) {}

  absl::StatusOr<Identity> Authenticate(const grpc::CallbackServerContext& call) const override {
    const auto header = call.client_metadata().find("authorization");
    const bool sent = header != call.client_metadata().end();
    if (sent && IsBearerToken({header->second.data(), header->second.size()}, digest_)) {
      return Identity();
    }
    return ReasonError(absl::StatusCode::kUnauthenticated, v1::ERROR_REASON_TOKEN_REJECTED,
                       sent ? "the bearer token is not the one that this server knows"
                            : "this server needs a bearer token in the metadata "
                              "\"authorization\"");
  }

 private:
  const std::string digest_;  // as TokenDigest makes it
};

}  // namespace

absl::StatusOr<std::unique_ptr<Authenticator>> Authenticator::FromFile(
    const std::string& token_file) {
  if (token_file.empty()) return std::make_unique<Everybody>();
  ANNULUS_ASSIGN_OR_RETURN(const std::string token, ReadTokenFile("auth-token-file", token_file));
  return std::make_unique<OneToken>(TokenDigest(token));
}

}  // namespace annulus
