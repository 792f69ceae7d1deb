#ifndef ANNULUS_SERVER_SERVICE_NOTIFIER_H_
#define ANNULUS_SERVER_SERVICE_NOTIFIER_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "absl/strings/string_view.h"
#include "server/config/notify_address.h"
#include "server/periodic_thread.h"

namespace annulus {

// Tells the service manager (systemd) what the daemon is doing, by datagrams as in sd_notify(3).
// No-op if no manager asked for it; a manager that does not listen is passed over. Thread-safe.
class ServiceNotifier {
 public:
  // What the process is given to start, again from each sign of life while it loads.
  static constexpr std::chrono::seconds kTimeToLoad{60};

  explicit ServiceNotifier(NotifyAddress address);
  ~ServiceNotifier();
  ServiceNotifier(const ServiceNotifier&) = delete;
  ServiceNotifier& operator=(const ServiceNotifier&) = delete;

  // From now on gives signs of life for as long as `alive`, from a thread of its own. Until Ready
  // each asks for more time to start, later each feeds the watchdog.
  void StartSigns(std::function<bool()> alive);

  // What `alive` asks is about to go. Nothing without StartSigns.
  void EndSigns() { signs_.reset(); }

  // It has started, or has read its files again. `status` is a line for people: systemctl status
  // shows it.
  void Ready(absl::string_view status);

  // It begins to read its files again; Ready must follow.
  void Reloading();

  // It stops, and has ended after `limit`: until then the manager must not end it.
  // Nothing is said of reloading any more.
  void Stopping(std::chrono::milliseconds limit);

 private:
  void Send(const std::string& lines) const;
  void GiveSign(const std::function<bool()>& alive) const;
  std::chrono::milliseconds Interval() const;

  const NotifyAddress address_;
  int socket_ = -1;   // -1: nobody listens
  std::mutex order_;  // of what is said: nothing takes STOPPING back
  bool stopping_ = false;
  std::atomic<bool> ready_ = false;
  std::unique_ptr<PeriodicThread> signs_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_SERVICE_NOTIFIER_H_
