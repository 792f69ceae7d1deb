#include "server/config/notify_address.h"

#include <unistd.h>

#include <cstdint>
#include <cstdlib>

#include "absl/strings/numbers.h"

namespace annulus::server {

NotifyAddress ParseNotifyAddress(const char* socket, const char* watchdog_usec,
                                 const char* watchdog_pid, int self) {
  NotifyAddress address;
  if (socket == nullptr || (socket[0] != '/' && socket[0] != '@')) return address;
  address.socket = socket;
  int64_t number = 0;
  if (watchdog_pid != nullptr && (!absl::SimpleAtoi(watchdog_pid, &number) || number != self)) {
    return address;
  }
  if (watchdog_usec != nullptr && absl::SimpleAtoi(watchdog_usec, &number) && number > 0) {
    address.watchdog = std::chrono::microseconds(number);
  }
  return address;
}

NotifyAddress ReadNotifyAddress() {
  return ParseNotifyAddress(std::getenv("NOTIFY_SOCKET"), std::getenv("WATCHDOG_USEC"),
                            std::getenv("WATCHDOG_PID"), getpid());
}

}  // namespace annulus::server
