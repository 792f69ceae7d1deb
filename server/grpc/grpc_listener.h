#ifndef ANNULUS_SERVER_GRPC_GRPC_LISTENER_H_
#define ANNULUS_SERVER_GRPC_GRPC_LISTENER_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/config/server_config.h"
#include "server/identity/peer_book.h"
#include "server/identity/tls_files.h"
#include "server/net/connection_acceptor.h"
#include "server/net/connection_relay.h"
#include "server/net/tls_handshakes.h"

namespace annulus::server {

struct GrpcListener {
  // Null for trusted callers; outlives the server to relay its rest.
  std::unique_ptr<ConnectionRelay> relay;
  std::unique_ptr<grpc::CallbackGenericService> others;  // outlives the server
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<TlsHandshakes> handshakes;  // null without TLS; passes connections to the relay
  std::unique_ptr<ConnectionAcceptor> acceptor;  // last member: it passes connections to the others

  // Stops accepting connections, lets running calls continue for `grace`, then cancels them.
  void Shutdown(std::chrono::milliseconds grace);
};

// A port for one kind of peers, and what each may make the server hold.
struct GrpcPort {
  std::string address;  // HOST:PORT
  std::string option;   // the flag that sets it, for messages: "--listen"
  int max_connections = 0;
  std::chrono::milliseconds keepalive_time{};  // see ServerConfig
  std::chrono::milliseconds message_time{};    // for the first message of a call to arrive
  size_t received_bytes = 0;                   // size of one message
  size_t sent_bytes = 0;
  size_t unfinished_bytes = 0;  // of open calls and incomplete messages, all connections together
  size_t message_bytes = 0;     // of complete messages, all connections together
  std::vector<grpc::Service*> services = {};
  // Answers calls to all other methods; null: gRPC does.
  std::unique_ptr<grpc::CallbackGenericService> others = nullptr;
  TlsHandshakes::Failed handshake_failed = nullptr;
};

// Starts a gRPC server on the port, with health (NOT_SERVING at first) and reflection too. It is
// hardened against peers that ping, reset or connect too much, or send too slowly. TLS ends in
// front of gRPC, which gets all connections through the relay. `peers` is told of every connection.
// `report` is called for each connection that the relay cuts off. UNAVAILABLE if the address cannot
// be used.
absl::StatusOr<GrpcListener> StartGrpc(GrpcPort port, std::shared_ptr<TlsFiles> tls,
                                       std::shared_ptr<PeerBook> peers,
                                       ConnectionRelay::Report report);

// The same for clients, on config.listen.
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
