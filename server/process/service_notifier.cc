#include "server/process/service_notifier.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace annulus::server {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kLongestInterval{10000};
constexpr milliseconds kShortestInterval{10};
// The longest time that sending to a manager which does not read can delay a start or a stop.
constexpr timeval kLongestSend{1, 0};
constexpr seconds kTimeToLeave{5};  // added to the time that the process says it needs to stop

int64_t Usec(microseconds time) { return time.count(); }

}  // namespace

ServiceNotifier::ServiceNotifier(NotifyAddress address) : address_(std::move(address)) {
  sockaddr_un place{};
  place.sun_family = AF_UNIX;
  const std::string& name = address_.socket;
  if (name.empty() || name.size() >= sizeof(place.sun_path)) return;
  std::memcpy(place.sun_path, name.data(), name.size());
  if (name[0] == '@') place.sun_path[0] = '\0';  // an abstract name
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  socket_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket_ < 0) return;
  setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &kLongestSend, sizeof(kLongestSend));
  if (connect(socket_, reinterpret_cast<const sockaddr*>(&place), length) == 0) return;
  close(socket_);
  socket_ = -1;
}

ServiceNotifier::~ServiceNotifier() {
  signs_.reset();
  if (socket_ >= 0) close(socket_);
}

void ServiceNotifier::StartSigns(std::function<bool()> alive) {
  if (socket_ < 0) return;
  signs_ = std::make_unique<PeriodicThread>(Interval(),
                                            [this, alive = std::move(alive)] { GiveSign(alive); });
}

void ServiceNotifier::Ready(absl::string_view status) {
  ready_ = true;
  std::lock_guard lock(order_);
  if (stopping_) return;
  Send(absl::StrCat("READY=1\nSTATUS=", absl::StrReplaceAll(status, {{"\n", " "}}), "\n"));
}

// The time tells the manager that this answers its latest request, not an earlier one.
void ServiceNotifier::Reloading() {
  std::lock_guard lock(order_);
  if (stopping_) return;
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const auto since_boot = seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
  Send(absl::StrCat("RELOADING=1\nMONOTONIC_USEC=",
                    Usec(std::chrono::duration_cast<microseconds>(since_boot)), "\n"));
}

void ServiceNotifier::Stopping(milliseconds limit) {
  std::lock_guard lock(order_);
  stopping_ = true;
  Send(absl::StrCat("STOPPING=1\nEXTEND_TIMEOUT_USEC=", Usec(limit + kTimeToLeave), "\n"));
}

void ServiceNotifier::GiveSign(const std::function<bool()>& alive) const {
  if (!alive()) return;
  if (!ready_) {
    Send(absl::StrCat("EXTEND_TIMEOUT_USEC=", Usec(kTimeToLoad), "\n"));
  } else if (address_.watchdog.count() > 0) {
    Send("WATCHDOG=1\n");
  }
}

void ServiceNotifier::Send(const std::string& lines) const {
  if (socket_ < 0) return;
  // Ignore failures: nothing depends on the message.
  (void)!send(socket_, lines.data(), lines.size(), MSG_NOSIGNAL);
}

// sd_watchdog_enabled(3) recommends half of the watchdog's time.
milliseconds ServiceNotifier::Interval() const {
  if (address_.watchdog.count() == 0) return kLongestInterval;
  const auto half = std::chrono::duration_cast<milliseconds>(address_.watchdog / 2);
  return std::clamp(half, kShortestInterval, kLongestInterval);
}

}  // namespace annulus::server
