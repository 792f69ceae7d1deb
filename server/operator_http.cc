#include "server/operator_http.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/bearer_token.h"
#include "server/config/loopback.h"
#include "server/metrics_text.h"
#include "server/server_state.h"

namespace annulus {
namespace {

// The same handler for those who send one of these tokens.
HttpResponder::Handler Guarded(std::vector<std::string> digests, HttpResponder::Handler handler) {
  return [digests = std::move(digests), handler = std::move(handler)](const HttpRequest& request) {
    for (const std::string& digest : digests) {
      if (IsBearerToken(request.authorization, digest)) return handler(request);
    }
    return HttpAnswer{.status = 401,
                      .body =
                          "this needs the header \"Authorization: Bearer TOKEN\" with the "
                          "server's token\n",
                      .header = "WWW-Authenticate: Bearer"};
  };
}

// What a probe gets: it looks at the status alone, people read the body.
HttpAnswer Verdict(bool good, absl::string_view words) {
  return HttpAnswer{.status = good ? 200 : 503, .body = absl::StrCat(words, "\n")};
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpResponder>> StartOperatorHttp(const ServerConfig& config,
                                                                 OperatorAnswers answers) {
  HttpResponder::Handler metrics = [collect = std::move(answers.metrics)](const HttpRequest&) {
    return HttpAnswer{.content_type = kMetricsContentType, .body = MetricsText(collect())};
  };
  std::vector<std::string> digests;
  for (const auto& [option, path] : {std::pair("auth-token-file", config.auth_token_file),
                                     std::pair("admin-token-file", config.admin_token_file)}) {
    if (path.empty()) continue;
    ANNULUS_ASSIGN_OR_RETURN(const std::string token, ReadTokenFile(option, path));
    digests.push_back(TokenDigest(token));
  }
  if (!digests.empty() && !IsLoopbackAddress(config.metrics)) {
    metrics = Guarded(std::move(digests), std::move(metrics));
  }
  HttpResponder::Handler health = [alive = std::move(answers.alive)](const HttpRequest&) {
    return alive() ? Verdict(true, "alive") : Verdict(false, "not alive: restart it");
  };
  HttpResponder::Handler readiness = [state = std::move(answers.state)](const HttpRequest&) {
    const v1::ServerState now = state();
    return Verdict(now == v1::SERVER_STATE_SERVING, StateName(now));
  };
  auto responder = HttpResponder::Start(config.metrics, {{"/metrics", std::move(metrics)},
                                                         {"/healthz", std::move(health)},
                                                         {"/readyz", std::move(readiness)}});
  if (responder.ok()) return responder;
  return absl::UnavailableError(
      absl::StrCat("cannot serve metrics on ", responder.status().message(),
                   "; choose another address with --metrics, or --metrics off"));
}

}  // namespace annulus
