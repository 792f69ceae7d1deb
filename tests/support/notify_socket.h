#ifndef ANNULUS_TESTS_SUPPORT_NOTIFY_SOCKET_H_
#define ANNULUS_TESTS_SUPPORT_NOTIFY_SOCKET_H_

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <string>

namespace annulus::testing {

// What a service manager listens on, instead of systemd: a socket of datagrams.
class NotifySocket {
 public:
  // `name`: a path of a file that is not there, or '@' and an abstract name.
  explicit NotifySocket(const std::string& name)
      : descriptor_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un place{};
    place.sun_family = AF_UNIX;
    if (name.size() >= sizeof(place.sun_path)) throw std::runtime_error("too long: " + name);
    std::memcpy(place.sun_path, name.data(), name.size());
    if (name[0] == '@') place.sun_path[0] = '\0';
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    if (bind(descriptor_, reinterpret_cast<const sockaddr*>(&place), size) != 0) {
      throw std::runtime_error("bind " + name);
    }
  }
  NotifySocket(const NotifySocket&) = delete;
  NotifySocket& operator=(const NotifySocket&) = delete;
  ~NotifySocket() { close(descriptor_); }

  // The next message; empty after `limit`.
  std::string Next(std::chrono::milliseconds limit = std::chrono::seconds(20)) {
    pollfd waiting{descriptor_, POLLIN, 0};
    if (poll(&waiting, 1, static_cast<int>(limit.count())) != 1) return "";
    char bytes[4096];
    const ssize_t size = recv(descriptor_, bytes, sizeof(bytes), 0);
    return std::string(bytes, size < 0 ? 0 : static_cast<size_t>(size));
  }

  // The next message that has `text`; empty if none comes, or after `limit` of silence.
  std::string NextWith(const std::string& text) {
    std::string message;
    do {
      message = Next();
    } while (!message.empty() && message.find(text) == std::string::npos);
    return message;
  }

 private:
  const int descriptor_;
};

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_SUPPORT_NOTIFY_SOCKET_H_
