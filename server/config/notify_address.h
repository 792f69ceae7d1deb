#ifndef ANNULUS_SERVER_CONFIG_NOTIFY_ADDRESS_H_
#define ANNULUS_SERVER_CONFIG_NOTIFY_ADDRESS_H_

#include <chrono>
#include <string>

namespace annulus {

// How to reach the service manager that started this process, as systemd has it: sd_notify(3) and
// sd_watchdog_enabled(3).
struct NotifyAddress {
  std::string socket;                     // a path, or '@' and an abstract name; empty: nobody asks
  std::chrono::microseconds watchdog{0};  // it wants a sign of life within each; zero: none
};

// From the values of NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID, null where unset. A watchdog
// for another process than `self`, or without a number, is none.
NotifyAddress ParseNotifyAddress(const char* socket, const char* watchdog_usec,
                                 const char* watchdog_pid, int self);

// From the variables of this process.
NotifyAddress ReadNotifyAddress();

}  // namespace annulus

#endif  // ANNULUS_SERVER_CONFIG_NOTIFY_ADDRESS_H_
