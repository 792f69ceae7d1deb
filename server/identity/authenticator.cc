#include "server/identity/authenticator.h"

#include <string>
#include <vector>

#include "server/base/errors.h"

namespace annulus::server {
namespace {

class KnownCallers final : public Authenticator {
 public:
  explicit KnownCallers(const Credentials& credentials) : credentials_(credentials) {}

  absl::StatusOr<Caller> Authenticate(const CallContext& call) const override {
    if (credentials_.open_to_all()) return Caller();
    if (const std::string* const authorization = call.FindHeader("authorization")) {
      if (call.CountHeaders("authorization") > 1) {
        return Reject("there are two authorization headers; send one");
      }
      auto caller = credentials_.FindToken(*authorization);
      if (caller) return *std::move(caller);
      return Reject(credentials_.has_roles()
                        ? "this server does not know the bearer token; send another one, or ask "
                          "the operator to add its hash to the tokens file"
                        : "this server does not know the bearer token; send the one of its "
                          "--auth-token-file");
    }
    const std::vector<std::string>& names = call.certificate_names;
    auto caller = credentials_.FindCertificate(names);
    if (caller) return *std::move(caller);
    return Reject(names.empty()
                      ? "this server needs a bearer token in the metadata "
                        "\"authorization\" (annulus sends one with --token-file)"
                      : "this server's tokens file names no caller with this client "
                        "certificate; send a bearer token in the metadata "
                        "\"authorization\", or ask the operator to add the certificate's name");
  }

 private:
  static absl::Status Reject(absl::string_view message) {
    return ReasonError(absl::StatusCode::kUnauthenticated, v1::ERROR_REASON_TOKEN_REJECTED,
                       message);
  }

  const Credentials& credentials_;
};

class Operators final : public Authenticator {
 public:
  absl::StatusOr<Caller> Authenticate(const CallContext&) const override {
    Caller caller;
    caller.roles = {Role::kGenerate, Role::kDocuments, Role::kAdmin, Role::kMetrics};
    return caller;
  }
};

}  // namespace

std::unique_ptr<const Authenticator> Authenticator::ForAdminSocket() {
  return std::make_unique<Operators>();
}

std::unique_ptr<const Authenticator> Authenticator::For(const Credentials& credentials) {
  return std::make_unique<KnownCallers>(credentials);
}

}  // namespace annulus::server
