#ifndef ANNULUS_SERVER_OPERATOR_HTTP_H_
#define ANNULUS_SERVER_OPERATOR_HTTP_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "annulus/v1/admin.pb.h"
#include "engine/api.h"
#include "server/config/server_config.h"
#include "server/http_responder.h"
#include "server/identity/credentials.h"
#include "server/tls_credentials.h"

namespace annulus {

// What operators' programs are told. Each function is called on the responder's thread.
struct OperatorAnswers {
  std::function<std::vector<MetricFamily>()> metrics;
  std::function<bool()> alive;             // false: only a restart helps
  std::function<v1::ServerState()> state;  // SERVING: it takes new work
};

// Starts what operators' programs ask over HTTP on `config.metrics`, or over HTTPS with `tls` if
// config.metrics_tls is set:
//   /metrics  for Prometheus. On a loopback address it is open. Elsewhere scrapers must send a
//             token if the server has one, as "authorization: Bearer TOKEN": that of
//             auth-token-file or admin-token-file, or one with the role metrics. Over HTTPS a
//             client's certificate does too, if tls-client-ca trusts it and the tokens file, where
//             there is one, gives it that role.
//   /healthz  200 while the server is alive, else 503; open, as it tells nothing but that.
//   /readyz   200 while the server takes new work, else 503; the body names its state; open.
// UNAVAILABLE: the address is in use or not this machine's. `credentials` must outlive the
// responder. `tls` may be null without config.metrics_tls.
absl::StatusOr<std::unique_ptr<HttpResponder>> StartOperatorHttp(const ServerConfig& config,
                                                                 const Credentials& credentials,
                                                                 std::shared_ptr<TlsFiles> tls,
                                                                 OperatorAnswers answers);

}  // namespace annulus

#endif  // ANNULUS_SERVER_OPERATOR_HTTP_H_
