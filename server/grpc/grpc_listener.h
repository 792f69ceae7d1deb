#ifndef ANNULUS_SERVER_GRPC_GRPC_LISTENER_H_
#define ANNULUS_SERVER_GRPC_GRPC_LISTENER_H_

#include <grpcpp/server.h>

#include <chrono>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "server/config/server_config.h"
#include "server/identity/tls_credentials.h"
#include "server/net/connection_acceptor.h"
#include "server/net/connection_relay.h"

namespace annulus::server {

struct GrpcListener {
  std::unique_ptr<ConnectionRelay> relay;  // null with TLS; outlives the server to relay its rest
  std::shared_ptr<grpc::ServerCredentials> credentials;  // outlive the server, which uses them
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<ConnectionAcceptor> acceptor;  // last member: it passes connections to the server

  // Stops accepting connections, lets running calls continue for `grace`, then cancels them.
  void Shutdown(std::chrono::milliseconds grace);
};

// Starts a gRPC server on config.listen with these services, health (NOT_SERVING at first) and
// reflection. It is hardened against clients that ping, reset or connect too much, or send too
// slowly. `report` is called for each connection that the relay closes. UNAVAILABLE if the address
// cannot be used.
absl::StatusOr<GrpcListener> StartGrpc(const ServerConfig& config,
                                       const std::vector<grpc::Service*>& services,
                                       std::shared_ptr<TlsFiles> tls,
                                       ConnectionRelay::Report report);

// The same for a socket that only trusted callers can open: no TLS, no relay, few connections. Its
// health service is not kept up to date.
absl::StatusOr<GrpcListener> StartTrustedGrpc(const ServerConfig& config, grpc::Service& service,
                                              std::unique_ptr<ConnectionAcceptor> acceptor);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GRPC_GRPC_LISTENER_H_
