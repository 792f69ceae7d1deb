#ifndef ANNULUS_SERVER_HTTP_HTTP_RESPONDER_H_
#define ANNULUS_SERVER_HTTP_HTTP_RESPONDER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/http/http_exchange.h"
#include "server/http/http_listener.h"
#include "server/http/http_message.h"
#include "server/net/peer_stream.h"

namespace annulus::server {

// Answers GET and HEAD over HTTP/1.1, plain or with TLS, for scrapers and probes: one request per
// connection, on one thread that never waits for a client. A client that sends nothing, sends too
// slowly or does not read costs one descriptor for a few seconds. If there are too many
// connections, closes the oldest one that has not sent its request, or else the oldest, so that new
// clients are always served.
class HttpResponder final : private HttpService {
 public:
  // Called on the responder's thread; must return quickly.
  using Handler = std::function<HttpAnswer(const HttpRequest&)>;
  using Routes = std::map<std::string, Handler>;  // by path: "/metrics"

  static constexpr size_t kMostConnections = 128;
  static constexpr size_t kMostHeadBytes = 8 << 10;
  // Time that a new connection has for its TLS handshake and the first byte of its request, and
  // then again for the rest of it.
  static constexpr std::chrono::milliseconds kTimeToAsk{2000};
  static constexpr std::chrono::milliseconds kTimeToRead{5000};  // time to read the answer

  // Listens on "HOST:PORT", with TLS if `tls` is not null. UNAVAILABLE if the address is in use or
  // not this machine's.
  static absl::StatusOr<std::unique_ptr<HttpResponder>> Start(
      const std::string& address, Routes routes, std::unique_ptr<TlsStreams> tls = nullptr);
  HttpResponder(const HttpResponder&) = delete;
  HttpResponder& operator=(const HttpResponder&) = delete;

  int port() const { return listener_->port(); }

 private:
  class Asked;

  explicit HttpResponder(Routes routes) : routes_(std::move(routes)) {}

  Opening Open(HttpRequest request, const std::string& peer,
               std::shared_ptr<HttpReply> reply) override;
  HttpAnswer OnFault(const HttpFault& fault) override;
  // Answers what was asked in this round.
  void OnTurn() override;

  const Routes routes_;
  // Used by the listener's thread only.
  std::vector<std::shared_ptr<Asked>> asked_;  // requests that wait for the end of the round
  uint64_t round_ = 0;
  std::unique_ptr<HttpListener> listener_;  // last member: it uses the rest
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_HTTP_RESPONDER_H_
