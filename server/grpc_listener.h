#ifndef ANNULUS_SERVER_GRPC_LISTENER_H_
#define ANNULUS_SERVER_GRPC_LISTENER_H_

#include <grpcpp/server.h>

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "server/config/server_config.h"

namespace annulus {

struct GrpcListener {
  std::unique_ptr<grpc::Server> server;
  int port = 0;
};

// Starts a gRPC server with these services, health (NOT_SERVING at first) and reflection, hardened
// against clients that ping, reset or connect too much. UNAVAILABLE: the address cannot be had;
// NOT_FOUND, INVALID_ARGUMENT: a bad TLS file.
absl::StatusOr<GrpcListener> StartGrpc(const ServerConfig& config,
                                       const std::vector<grpc::Service*>& services);

}  // namespace annulus

#endif  // ANNULUS_SERVER_GRPC_LISTENER_H_
