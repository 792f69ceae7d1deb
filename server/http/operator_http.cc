#include "server/http/operator_http.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/config/loopback.h"
#include "server/metrics/metrics_text.h"
#include "server/metrics/server_state.h"

namespace annulus::server {
namespace {

// Identifies the caller as for a call: by the token if there is one, else by the certificate.
std::optional<Caller> FindCaller(const Credentials& credentials, const HttpRequest& request) {
  const absl::string_view authorization = request.Find("authorization");
  if (!authorization.empty()) return credentials.FindToken(authorization);
  return credentials.FindCertificate(request.certificate_names);
}

// Restricts a handler to callers that may read metrics.
HttpResponder::Handler Guarded(const Credentials& credentials, HttpResponder::Handler handler) {
  return [&credentials, handler = std::move(handler)](const HttpRequest& request) {
    if (credentials.IsAdminToken(request.Find("authorization"))) return handler(request);
    // If the server requires no identity, any trusted certificate is enough.
    if (credentials.open_to_all() && !request.certificate_names.empty()) return handler(request);
    const std::optional<Caller> caller = FindCaller(credentials, request);
    if (caller && caller->roles.Has(Role::kMetrics)) return handler(request);
    if (caller) {
      return HttpAnswer{
          .status = 403,
          .body = absl::StrCat("this needs the role metrics; the caller has the roles: ",
                               RolesText(caller->roles, ", "), "\n")};
    }
    return HttpAnswer{.status = 401,
                      .body =
                          "this needs the header \"Authorization: Bearer TOKEN\" with the "
                          "server's token, or a client certificate that it trusts\n",
                      .headers = {"WWW-Authenticate: Bearer"}};
  };
}

// The answer to a probe, which looks only at the status; the body is for people.
HttpAnswer Verdict(bool good, absl::string_view words) {
  return HttpAnswer{.status = good ? 200 : 503, .body = absl::StrCat(words, "\n")};
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpResponder>> StartOperatorHttp(const ServerConfig& config,
                                                                 const Credentials& credentials,
                                                                 std::shared_ptr<TlsFiles> tls,
                                                                 OperatorAnswers answers) {
  HttpResponder::Handler metrics = [collect = std::move(answers.metrics), round = uint64_t{0},
                                    page = std::string()](const HttpRequest& request) mutable {
    if (request.round != std::exchange(round, request.round)) page = MetricsText(collect());
    return HttpAnswer{.content_type = kMetricsContentType, .body = page};
  };
  const bool has_identities = !credentials.open_to_all() || credentials.has_admin_token() ||
                              (config.metrics_tls && !config.tls_client_ca.empty());
  if (has_identities && !IsLoopbackAddress(config.metrics)) {
    metrics = Guarded(credentials, std::move(metrics));
  }
  HttpResponder::Handler health = [alive = std::move(answers.alive)](const HttpRequest&) {
    return alive() ? Verdict(true, "alive") : Verdict(false, "not alive: restart the daemon");
  };
  HttpResponder::Handler readiness = [state = std::move(answers.state)](const HttpRequest&) {
    const v1::ServerState now = state();
    return Verdict(now == v1::SERVER_STATE_SERVING, StateName(now));
  };
  auto streams = config.metrics_tls
                     ? std::make_unique<TlsStreams>(std::move(tls), TlsStreams::For::kOperators)
                     : nullptr;
  auto responder = HttpResponder::Start(config.metrics,
                                        {{"/metrics", std::move(metrics)},
                                         {"/healthz", std::move(health)},
                                         {"/readyz", std::move(readiness)}},
                                        std::move(streams));
  if (responder.ok()) return responder;
  return absl::UnavailableError(
      absl::StrCat("cannot serve metrics on ", responder.status().message(),
                   "; choose another address with --metrics, or --metrics off"));
}

}  // namespace annulus::server
