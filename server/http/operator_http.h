#ifndef ANNULUS_SERVER_HTTP_OPERATOR_HTTP_H_
#define ANNULUS_SERVER_HTTP_OPERATOR_HTTP_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "annulus/v1/admin.pb.h"
#include "engine/api.h"
#include "server/config/server_config.h"
#include "server/http/http_responder.h"
#include "server/identity/credentials.h"
#include "server/identity/tls_files.h"

namespace annulus::server {

// Sources of the answers. Each function is called on the responder's thread.
struct OperatorAnswers {
  std::function<std::vector<MetricFamily>()> metrics;
  std::function<bool()> alive;             // false if only a restart helps
  std::function<v1::ServerState()> state;  // SERVING if the server takes new work
};

// Starts the HTTP endpoint for operators on `config.metrics`; HTTPS with `tls` if
// config.metrics_tls is set:
//   /metrics  for Prometheus. Open on a loopback address. On others, if the server has tokens,
//             scrapers must send one as "authorization: Bearer TOKEN": that of auth-token-file or
//             admin-token-file, or one with the role metrics. Over HTTPS, a client certificate is
//             enough if tls-client-ca trusts it and the tokens file, if there is one, gives it
//             that role.
//   /healthz  200 while the server is alive, else 503. Open to all, since it reveals only that.
//   /readyz   200 while the server takes new work, else 503; the body names its state. Open.
// UNAVAILABLE if the address is in use or not this machine's. `credentials` must outlive the
// responder. `tls` may be null if config.metrics_tls is not set.
absl::StatusOr<std::unique_ptr<HttpResponder>> StartOperatorHttp(const ServerConfig& config,
                                                                 const Credentials& credentials,
                                                                 std::shared_ptr<TlsFiles> tls,
                                                                 OperatorAnswers answers);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_OPERATOR_HTTP_H_
