#ifndef ANNULUS_SERVER_CONFIG_NOTIFY_ADDRESS_H_
#define ANNULUS_SERVER_CONFIG_NOTIFY_ADDRESS_H_

#include <chrono>
#include <string>

namespace annulus::server {

// How to reach the service manager that started this process, by the protocol of systemd: see
// sd_notify(3) and sd_watchdog_enabled(3).
struct NotifyAddress {
  std::string socket;                     // a path, or '@' and an abstract name; empty: no manager
  std::chrono::microseconds watchdog{0};  // longest time between signs of life; 0: no watchdog
};

// Parses the values of NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID; null: not set. Ignores a
// watchdog that is for another process than `self`, or whose time is not a positive number.
NotifyAddress ParseNotifyAddress(const char* socket, const char* watchdog_usec,
                                 const char* watchdog_pid, int self);

// The same with the variables of this process.
NotifyAddress ReadNotifyAddress();

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_CONFIG_NOTIFY_ADDRESS_H_
