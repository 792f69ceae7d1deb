#ifndef ANNULUS_SERVER_GRPC_LISTENER_H_
#define ANNULUS_SERVER_GRPC_LISTENER_H_

#include <grpcpp/server.h>

#include <chrono>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "server/config/server_config.h"
#include "server/connection_acceptor.h"
#include "server/connection_relay.h"
#include "server/tls_credentials.h"

namespace annulus {

struct GrpcListener {
  std::unique_ptr<ConnectionRelay> relay;  // without TLS only; outlives the server's last words
  std::shared_ptr<grpc::ServerCredentials> credentials;  // outlive the server, which asks them
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<ConnectionAcceptor> acceptor;  // stands last: it hands connections to the server

  // Takes no more connections, gives calls under way `grace`, then cancels them.
  void Shutdown(std::chrono::milliseconds grace);
};

// Starts a gRPC server on config.listen with these services, health (NOT_SERVING at first) and
// reflection, hardened against clients that ping, reset or connect too much. `report` learns of
// connections that were closed for it. UNAVAILABLE: the address cannot be had.
absl::StatusOr<GrpcListener> StartGrpc(const ServerConfig& config,
                                       const std::vector<grpc::Service*>& services,
                                       std::shared_ptr<TlsFiles> tls,
                                       ConnectionRelay::Report report);

// The same on a socket that trusted callers alone can open: without TLS and without a relay, for a
// few connections. Its health is not shown to anybody.
absl::StatusOr<GrpcListener> StartTrustedGrpc(const ServerConfig& config, grpc::Service& service,
                                              std::unique_ptr<ConnectionAcceptor> acceptor);

}  // namespace annulus

#endif  // ANNULUS_SERVER_GRPC_LISTENER_H_
