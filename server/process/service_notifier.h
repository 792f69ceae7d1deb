#ifndef ANNULUS_SERVER_PROCESS_SERVICE_NOTIFIER_H_
#define ANNULUS_SERVER_PROCESS_SERVICE_NOTIFIER_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "absl/strings/string_view.h"
#include "server/config/notify_address.h"
#include "server/process/periodic_thread.h"

namespace annulus::server {

// Reports the daemon's state to the service manager (systemd), with datagrams as in sd_notify(3).
// No-op if there is no manager, or if it does not listen. Thread-safe.
class ServiceNotifier {
 public:
  // The start timeout that each sign of life requests while the process loads.
  static constexpr std::chrono::seconds kTimeToLoad{60};

  explicit ServiceNotifier(NotifyAddress address);
  ~ServiceNotifier();
  ServiceNotifier(const ServiceNotifier&) = delete;
  ServiceNotifier& operator=(const ServiceNotifier&) = delete;

  // Starts a thread that sends signs of life periodically while alive() is true. Until Ready each
  // one asks for more time to start; later each one feeds the watchdog.
  void StartSigns(std::function<bool()> alive);

  // Stops the signs of life; call it before the objects that `alive` uses are destroyed. No-op
  // without StartSigns.
  void EndSigns() { signs_.reset(); }

  // The daemon has started, or has read its files again. `systemctl status` shows the line
  // `status`.
  void Ready(absl::string_view status);

  // The daemon begins to read its files again. Ready must follow.
  void Reloading();

  // The daemon is stopping and needs at most `limit`; the manager must not kill it before. Later
  // calls of Ready and Reloading have no effect.
  void Stopping(std::chrono::milliseconds limit);

 private:
  void Send(const std::string& lines) const;
  void GiveSign(const std::function<bool()>& alive) const;
  std::chrono::milliseconds Interval() const;

  const NotifyAddress address_;
  int socket_ = -1;   // -1: no manager
  std::mutex order_;  // orders the messages, so that none follows STOPPING
  bool stopping_ = false;
  std::atomic<bool> ready_ = false;
  std::unique_ptr<PeriodicThread> signs_;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_PROCESS_SERVICE_NOTIFIER_H_
