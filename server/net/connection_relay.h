#ifndef ANNULUS_SERVER_NET_CONNECTION_RELAY_H_
#define ANNULUS_SERVER_NET_CONNECTION_RELAY_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "absl/status/statusor.h"

namespace annulus::server {

// A relay between clients and gRPC for connections without TLS. It bounds how much memory gRPC 1.51
// uses, and for how long, before it knows who the client is. It closes
// - a connection whose header block is too long,
// - a connection on which the first message of a call comes too slowly (ConnectionMeter::Trickles),
// - and, while open calls with their headers and incomplete messages take too much memory in all,
//   the largest connection of the client address that holds most.
// It parses only the headers of frames and the lengths of messages. One thread serves all
// connections. For each connection and direction, at most one piece of kPiece bytes waits here;
// then the sender has to wait.
class ConnectionRelay {
 public:
  static constexpr size_t kPiece = size_t{64} << 10;

  struct Limits {
    size_t header_block_bytes;  // size of one header block as sent
    // Memory that gRPC keeps for all connections together, as ConnectionMeter estimates it.
    size_t held_bytes;
    std::chrono::milliseconds message_time{60'000};  // `limit` of ConnectionMeter::Trickles
  };

  // Why a connection was closed.
  enum class CutOff : uint8_t { kHeaders, kMemory, kSlow };
  // Called on the relay's thread for each connection that is closed, with the client's address and
  // port.
  using Report = std::function<void(CutOff why, const std::string& client)>;

  // UNAVAILABLE if the system has no descriptors left.
  static absl::StatusOr<std::unique_ptr<ConnectionRelay>> Start(
      Limits limits, Report report = [](CutOff, const std::string&) {});
  // Waits a moment for gRPC's last bytes to reach the clients, then closes all connections.
  ~ConnectionRelay();
  ConnectionRelay(const ConnectionRelay&) = delete;
  ConnectionRelay& operator=(const ConnectionRelay&) = delete;

  // Takes ownership of a connected, non-blocking socket and returns the socket to pass to gRPC in
  // its place. If the system has no descriptors left, closes `client` and returns -1. The peer name
  // that gRPC sees contains the client's address; see ClientAddress. Thread-safe.
  int Connect(int client);

  // Number of connections closed for the reasons in CutOff. Thread-safe.
  int64_t cut_off() const { return cut_off_.load(std::memory_order_relaxed); }

 private:
  struct End;
  struct Link;

  ConnectionRelay(Limits limits, Report report, int events, int wake);

  void Wake();
  // These run on the relay's thread.
  void Loop();
  bool TakeArrived();
  void Serve(Link& link);
  bool Watch(Link& link);  // returns false if epoll fails
  bool WatchEnd(End& end, uint32_t wanted);
  void CloseGreedy();
  void SweepStalled(std::chrono::steady_clock::time_point now);
  void SweepSlow(std::chrono::steady_clock::time_point now);
  void CutOffLink(Link& link, CutOff why);
  void Close(Link& link);

  const Limits limits_;
  const Report report_;
  const std::string name_;  // unique prefix of the names of this relay's sockets
  const int events_;        // epoll
  const int wake_;          // eventfd
  std::atomic<uint64_t> next_{0};
  std::atomic<int64_t> cut_off_{0};

  std::mutex mutex_;
  std::vector<std::unique_ptr<Link>> arrived_;
  bool stopping_ = false;

  // Used by the relay's thread only.
  std::vector<char> piece_;  // scratch
  std::unordered_set<Link*> links_;
  size_t held_ = 0;                            // the sum of the links' held_bytes()
  std::vector<std::unique_ptr<Link>> closed_;  // kept alive: pending events may refer to them

  std::thread thread_;
};

// Returns the address of the client from the peer name of a gRPC call, with or without a relay in
// between: "ipv4:127.0.0.1:4567".
std::string ClientAddress(const std::string& peer);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_NET_CONNECTION_RELAY_H_
