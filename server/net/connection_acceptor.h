#ifndef ANNULUS_SERVER_NET_CONNECTION_ACCEPTOR_H_
#define ANNULUS_SERVER_NET_CONNECTION_ACCEPTOR_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"

namespace annulus::server {

// Listens on an address and passes on each connection. gRPC's own listener (1.51) accepts without
// limit, and stops forever once accept fails, for example because the process is out of
// descriptors. This one continues after failures and closes connections beyond a limit at once.
class ConnectionAcceptor {
 public:
  // Takes ownership of a connected, non-blocking socket. Called on the acceptor's thread.
  using Handler = std::function<void(int connection)>;

  // Closes one of the connections that were passed on, for a new one of `client` (its address and
  // port). Returns its descriptor; nullopt if none may be closed. Called on the acceptor's thread.
  using RoomMaker = std::function<std::optional<int>(const std::string& client)>;

  // Listens on every address that "HOST:PORT" resolves to; connections wait in the backlog until
  // Start. Port 0 selects a free one. UNAVAILABLE if the address is in use, does not resolve or is
  // not this machine's.
  static absl::StatusOr<std::unique_ptr<ConnectionAcceptor>> Listen(const std::string& address);
  // Takes ownership of a listening, non-blocking socket of any kind. port() is then 0.
  static std::unique_ptr<ConnectionAcceptor> Adopt(int listener);
  ~ConnectionAcceptor();  // stops listening; connections passed on stay open
  ConnectionAcceptor(const ConnectionAcceptor&) = delete;
  ConnectionAcceptor& operator=(const ConnectionAcceptor&) = delete;

  int port() const { return port_; }

  // Starts accepting, with at most `max_connections` open at a time. Asks `make_room` about those
  // beyond; null: closes them. Call it once.
  void Start(int max_connections, Handler handler, RoomMaker make_room = nullptr);

  // Connections closed because of the limit. Thread-safe.
  int64_t refused() const { return refused_.load(std::memory_order_relaxed); }

 private:
  ConnectionAcceptor();

  void Loop();
  bool Sleep(int milliseconds);  // returns false if the acceptor must stop
  bool AcceptSome(int listener);
  void Take(int connection);
  bool HasRoom();
  bool MakeRoomFor(int connection);

  std::vector<int> listeners_;
  int port_ = 0;
  int stop_;  // eventfd that the destructor writes to
  size_t max_connections_ = 0;
  Handler handler_;
  RoomMaker make_room_;
  std::atomic<int64_t> refused_{0};

  // The owners of connections do not report when they close one. So this maps each descriptor that
  // was passed on to the inode number of its socket: once the descriptor has another number, or
  // none, the connection was closed.
  std::unordered_map<int, uint64_t> open_;
  int64_t swept_at_ms_ = 0;

  std::thread thread_;
};

// Raises the process's limit of open descriptors, as far as the system allows, to fit `connections`
// with `descriptors` each and everything else. Returns how many connections fit.
int MakeRoomForConnections(int connections, int descriptors);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_NET_CONNECTION_ACCEPTOR_H_
