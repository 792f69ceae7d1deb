#ifndef ANNULUS_SERVER_SIGNAL_TARGET_H_
#define ANNULUS_SERVER_SIGNAL_TARGET_H_

#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "server/process/service_notifier.h"
#include "server/server.h"

namespace annulus::server {

// The server that signals act on, and the notifier that reports reloads to the service manager.
// Empty while no server is running.
class SignalTarget {
 public:
  // Both must live until the next Set or Clear. `status` is the status line after a reload.
  void Set(Server* server, ServiceNotifier* notifier, std::string status) {
    std::lock_guard lock(mutex_);
    server_ = server;
    notifier_ = notifier;
    status_ = std::move(status);
  }
  void Clear() { Set(nullptr, nullptr, ""); }
  // Returns false if there is no server.
  bool Drain() {
    std::lock_guard lock(mutex_);
    if (server_ == nullptr) return false;
    server_->RequestDrain(std::nullopt);
    return true;
  }
  // No-op without a server: its files have not been read yet.
  void Reload() {
    std::lock_guard lock(mutex_);
    if (server_ == nullptr) return;
    notifier_->Reloading();
    server_->RequestReload([notifier = notifier_, status = status_] { notifier->Ready(status); });
  }

 private:
  std::mutex mutex_;
  Server* server_ = nullptr;
  ServiceNotifier* notifier_ = nullptr;
  std::string status_;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_SIGNAL_TARGET_H_
