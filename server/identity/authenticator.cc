#include "server/identity/authenticator.h"

#include <grpc/grpc_security_constants.h>

#include <string>
#include <vector>

#include "server/base/errors.h"

namespace annulus::server {
namespace {

// Names in the client's certificate, which the listener has verified; empty if it has none.
std::vector<std::string> CertificateNames(const grpc::CallbackServerContext& call) {
  std::vector<std::string> names;
  const auto context = call.auth_context();
  if (context == nullptr || !context->IsPeerAuthenticated()) return names;
  for (const char* property : {GRPC_X509_SAN_PROPERTY_NAME, GRPC_X509_CN_PROPERTY_NAME}) {
    for (const grpc::string_ref& value : context->FindPropertyValues(property)) {
      names.emplace_back(value.data(), value.size());
    }
  }
  return names;
}

class KnownCallers final : public Authenticator {
 public:
  explicit KnownCallers(const Credentials& credentials) : credentials_(credentials) {}

  absl::StatusOr<Identity> Authenticate(const grpc::CallbackServerContext& call) const override {
    if (credentials_.open_to_all()) return Identity();
    const auto header = call.client_metadata().find("authorization");
    if (header != call.client_metadata().end()) {
      auto caller = credentials_.FindToken({header->second.data(), header->second.size()});
      if (caller) return *std::move(caller);
      return Reject(credentials_.has_roles()
                        ? "this server does not know the bearer token; send another one, or have "
                          "its hash added to the server's tokens file"
                        : "this server does not know the bearer token; send the one of its "
                          "--auth-token-file");
    }
    const std::vector<std::string> names = CertificateNames(call);
    auto caller = credentials_.FindCertificate(names);
    if (caller) return *std::move(caller);
    return Reject(names.empty() ? "this server needs a bearer token in the metadata "
                                  "\"authorization\" (annulus sends one with --token-file)"
                                : "this server's tokens file names no caller with this client "
                                  "certificate; send a bearer token in the metadata "
                                  "\"authorization\", or have the certificate's name added");
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
  absl::StatusOr<Identity> Authenticate(const grpc::CallbackServerContext&) const override {
    Identity caller;
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
