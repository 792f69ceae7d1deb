#ifndef ANNULUS_SERVER_GRPC_GRPC_LISTENER_H_
#define ANNULUS_SERVER_GRPC_GRPC_LISTENER_H_

#include <grpcpp/server.h>

#include <chrono>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "server/config/server_config.h"
#include "server/grpc/unknown_methods.h"
#include "server/identity/peer_book.h"
#include "server/identity/tls_files.h"
#include "server/net/connection_acceptor.h"
#include "server/net/connection_relay.h"
#include "server/net/tls_handshakes.h"

namespace annulus::server {

struct GrpcListener {
  // Null for trusted callers; outlives the server to relay its rest.
  std::unique_ptr<ConnectionRelay> relay;
  std::unique_ptr<UnknownMethods> unknown;  // outlives the server
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<TlsHandshakes> handshakes;  // null without TLS; passes connections to the relay
  std::unique_ptr<ConnectionAcceptor> acceptor;  // last member: it passes connections to the others

  // Stops accepting connections, lets running calls continue for `grace`, then cancels them.
  void Shutdown(std::chrono::milliseconds grace);
};

// Starts a gRPC server on config.listen with these services, health (NOT_SERVING at first) and
// reflection. It is hardened against clients that ping, reset or connect too much, or send too
// slowly. TLS ends in front of gRPC, which gets all connections through the relay. `peers` is told
// of every connection. `report` is called for each connection that the relay cuts off. UNAVAILABLE
// if the address cannot be used.
absl::StatusOr<GrpcListener> StartGrpc(const ServerConfig& config,
                                       const std::vector<grpc::Service*>& services,
                                       std::shared_ptr<TlsFiles> tls,
                                       std::shared_ptr<PeerBook> peers,
                                       ConnectionRelay::Report report);

// The same for a socket that only trusted callers can open: no TLS, no relay, few connections. Its
// health service is not kept up to date.
absl::StatusOr<GrpcListener> StartTrustedGrpc(const ServerConfig& config, grpc::Service& service,
                                              std::unique_ptr<ConnectionAcceptor> acceptor);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GRPC_GRPC_LISTENER_H_
