#ifndef ANNULUS_SERVER_OPERATOR_HTTP_H_
#define ANNULUS_SERVER_OPERATOR_HTTP_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/api.h"
#include "server/config/server_config.h"
#include "server/http_responder.h"

namespace annulus {

// Starts what operators' programs ask over HTTP on `config.metrics`: /metrics, made by `collect` on
// the responder's thread. On a loopback address it is open. Elsewhere scrapers must send a token if
// the server has one: that of auth-token-file or admin-token-file, as "authorization: Bearer
// TOKEN". UNAVAILABLE: the address is in use or not this machine's; NOT_FOUND, INVALID_ARGUMENT: a
// token file.
absl::StatusOr<std::unique_ptr<HttpResponder>> StartOperatorHttp(
    const ServerConfig& config, std::function<std::vector<MetricFamily>()> collect);

}  // namespace annulus

#endif  // ANNULUS_SERVER_OPERATOR_HTTP_H_
