#ifndef ANNULUS_SERVER_GRPC_HEALTH_BOARD_H_
#define ANNULUS_SERVER_GRPC_HEALTH_BOARD_H_

#include <grpcpp/health_check_service_interface.h>

#include <mutex>
#include <optional>

#include "absl/functional/function_ref.h"

namespace annulus::server {

// Sets the statuses of gRPC's health service, but only when they change: gRPC 1.51 sends a message
// to every watcher whenever a status is set, changed or not, and anybody may watch without a token.
// Thread-safe.
class HealthBoard {
 public:
  struct Health {
    bool ready = false;  // the empty name, "readiness" and every service of this daemon
    bool alive = false;  // "liveness"
  };
  // Sets what `read` returns. One call at a time reads and sets, so no thread replaces what another
  // has read later. `read` must not call the board. Always pass the same `service`.
  void Show(absl::FunctionRef<Health()> read, grpc::HealthCheckServiceInterface& service);

 private:
  std::mutex mutex_;
  std::optional<bool> ready_;  // as set last; nullopt: not set yet
  std::optional<bool> alive_;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GRPC_HEALTH_BOARD_H_
