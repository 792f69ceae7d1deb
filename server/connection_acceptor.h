#ifndef ANNULUS_SERVER_CONNECTION_ACCEPTOR_H_
#define ANNULUS_SERVER_CONNECTION_ACCEPTOR_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"

namespace annulus {

// Listens on an address and hands over each connection. gRPC's own listener (1.51) stops for good
// when accepting fails once, for example because the process has no descriptor left, and accepts
// without a limit; this one goes on, and closes what comes beyond the limit at once.
class ConnectionAcceptor {
 public:
  // Takes a connected, non-blocking socket, which is its own from then on. Called on the
  // acceptor's thread.
  using Handler = std::function<void(int connection)>;

  // Listens on every address that "HOST:PORT" stands for; connections wait in the backlog until
  // Start. Port 0 takes a free one. UNAVAILABLE: the address is in use or not this machine's.
  static absl::StatusOr<std::unique_ptr<ConnectionAcceptor>> Listen(const std::string& address);
  // Takes over a non-blocking socket that listens, whatever its kind. port() is 0 then.
  static std::unique_ptr<ConnectionAcceptor> Adopt(int listener);
  ~ConnectionAcceptor();  // stops listening; connections handed over live on
  ConnectionAcceptor(const ConnectionAcceptor&) = delete;
  ConnectionAcceptor& operator=(const ConnectionAcceptor&) = delete;

  int port() const { return port_; }

  // Begins to accept, at most `max_connections` at a time. Once only.
  void Start(int max_connections, Handler handler);

  // Connections closed because of the limit. Thread-safe.
  int64_t refused() const { return refused_.load(std::memory_order_relaxed); }

 private:
  ConnectionAcceptor();

  void Loop();
  bool Sleep(int milliseconds);  // false when it is time to stop
  bool AcceptSome(int listener);
  void Take(int connection);
  bool HasRoom();

  std::vector<int> listeners_;
  int port_ = 0;
  int stop_;  // descriptor that the destructor writes to
  size_t max_connections_ = 0;
  Handler handler_;
  std::atomic<int64_t> refused_{0};

  // Who closes a connection does not tell. So each descriptor that was handed over is remembered
  // with the kernel's number of its socket: once it has another number, or none, it was closed.
  std::unordered_map<int, uint64_t> open_;
  int64_t swept_at_ms_ = 0;

  std::thread thread_;
};

// Raises the process's limit of open descriptors so that `connections`, of `descriptors` each, and
// everything else fit, as far as the system lets it. The connections that fit then.
int MakeRoomForConnections(int connections, int descriptors);

}  // namespace annulus

#endif  // ANNULUS_SERVER_CONNECTION_ACCEPTOR_H_
