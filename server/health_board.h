#ifndef ANNULUS_SERVER_HEALTH_BOARD_H_
#define ANNULUS_SERVER_HEALTH_BOARD_H_

#include <grpcpp/health_check_service_interface.h>

#include <mutex>
#include <optional>

namespace annulus {

// What gRPC's health service says of this daemon's names. gRPC 1.51 sends a message to every
// watcher whenever a status is set, changed or not, and watching takes no token; so this passes on
// changes only, and a daemon in a steady state sends nothing. Thread-safe.
class HealthBoard {
 public:
  // `ready` is the status of the empty name, "readiness" and each of our services; `alive` that of
  // "liveness". `service` is the same one in every call.
  void Show(bool ready, bool alive, grpc::HealthCheckServiceInterface& service);

 private:
  std::mutex mutex_;
  std::optional<bool> ready_;  // as shown last; absent: not yet
  std::optional<bool> alive_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_HEALTH_BOARD_H_
