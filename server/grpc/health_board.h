#ifndef ANNULUS_SERVER_GRPC_HEALTH_BOARD_H_
#define ANNULUS_SERVER_GRPC_HEALTH_BOARD_H_

#include <grpcpp/health_check_service_interface.h>

#include <mutex>
#include <optional>

namespace annulus::server {

// Sets the statuses of gRPC's health service, but only when they change: gRPC 1.51 sends a message
// to every watcher whenever a status is set, changed or not, and anybody may watch without a token.
// Thread-safe.
class HealthBoard {
 public:
  // `ready` is the status of the empty name, of "readiness" and of every service of this daemon;
  // `alive` is the status of "liveness". Always pass the same `service`.
  void Show(bool ready, bool alive, grpc::HealthCheckServiceInterface& service);

 private:
  std::mutex mutex_;
  std::optional<bool> ready_;  // as set last; nullopt: not set yet
  std::optional<bool> alive_;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GRPC_HEALTH_BOARD_H_
