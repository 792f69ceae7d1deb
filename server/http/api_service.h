#ifndef ANNULUS_SERVER_HTTP_API_SERVICE_H_
#define ANNULUS_SERVER_HTTP_API_SERVICE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/generation/service_context.h"
#include "server/http/http_exchange.h"
#include "server/http/http_listener.h"
#include "server/http/routes.h"
#include "server/net/peer_stream.h"
#include "server/work/client_shares.h"

namespace annulus::server {

// The APIs that people's programs speak, over HTTP: a table of routes, and what every request must
// pass before one of them gets it. Web pages may not use a server on their reader's machine: a
// request with an Origin is refused unless --http-origins names it, and on a loopback address a
// request for another Host.
class ApiService final : public HttpService {
 public:
  // `context` must outlive the service.
  explicit ApiService(ServiceContext& context);

  Opening Open(HttpRequest request, const std::string& peer,
               std::shared_ptr<HttpReply> reply) override;
  HttpAnswer OnFault(const HttpFault& fault) override;
  uint64_t AddPeer(const std::string& peer) override;
  void RemovePeer(uint64_t number) override;
  bool IsCondemned(uint64_t number) override;

 private:
  std::optional<HttpAnswer> CheckSource(const HttpRequest& request) const;
  HttpAnswer Refused(const HttpRequest& request, HttpAnswer answer);
  // `route`: null if there is none.
  std::optional<HttpAnswer> CheckRoute(const HttpRequest& request, const Route* route) const;
  Opening OpenRoute(HttpRequest request, const std::vector<std::string>& headers,
                    const std::string& peer, std::shared_ptr<HttpReply> reply);

  ServiceContext& context_;
  const bool on_loopback_;
  // What bodies of one client may hold together while they come, so that those who send slowly, or
  // not to the end, cannot use up the memory for requests.
  ClientShares body_shares_;
};

// Starts the listener on config.http. UNAVAILABLE if the address cannot be used. `service` must
// outlive it.
absl::StatusOr<std::unique_ptr<HttpListener>> StartApiHttp(ServiceContext& context,
                                                           ApiService& service,
                                                           std::unique_ptr<TlsStreams> tls);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_API_SERVICE_H_
