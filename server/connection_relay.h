#ifndef ANNULUS_SERVER_CONNECTION_RELAY_H_
#define ANNULUS_SERVER_CONNECTION_RELAY_H_

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

namespace annulus {

// Stands between clients and gRPC on connections without TLS, and bounds what gRPC 1.51 gathers in
// memory before it knows who the client is, and how long. A connection is closed
// - whose header block grows too long,
// - on which some call's message does not come, or comes too slowly (ConnectionMeter::Trickles),
// - and, when open calls with their headers and messages that are not whole take too much, the
//   largest connection of the address that has most of it.
// It looks at the headers of frames and the lengths of messages. One thread serves all connections;
// each has at most one piece of kPiece bytes a direction waiting here, and then the sender has to
// wait.
class ConnectionRelay {
 public:
  static constexpr size_t kPiece = size_t{64} << 10;

  struct Limits {
    size_t header_block_bytes;  // of one block, as it is sent
    // What gRPC keeps of all connections together, as ConnectionMeter counts it.
    size_t held_bytes;
    std::chrono::milliseconds message_time{60'000};  // for a call's first message to go on
  };

  // Why a connection was closed.
  enum class CutOff : uint8_t { kHeaders, kMemory, kSlow };
  // Learns of each, with the client's address and port, on the relay's thread.
  using Report = std::function<void(CutOff why, const std::string& client)>;

  // UNAVAILABLE: the system has no descriptor left.
  static absl::StatusOr<std::unique_ptr<ConnectionRelay>> Start(
      Limits limits, Report report = [](CutOff, const std::string&) {});
  // Gives what gRPC has said a moment to reach the clients, then closes all connections.
  ~ConnectionRelay();
  ConnectionRelay(const ConnectionRelay&) = delete;
  ConnectionRelay& operator=(const ConnectionRelay&) = delete;

  // Takes a connected, non-blocking socket, which is the relay's own from then on, and returns the
  // socket to hand to gRPC in its place; -1, and `client` is closed, when the system has no
  // descriptor left. gRPC's name for the peer tells ClientAddress the client's own. Thread-safe.
  int Connect(int client);

  // Connections closed for what they sent, or did not send. Thread-safe.
  int64_t cut_off() const { return cut_off_.load(std::memory_order_relaxed); }

 private:
  struct End;
  struct Link;

  ConnectionRelay(Limits limits, Report report, int events, int wake);

  void Wake();
  // These are the thread's.
  void Loop();
  bool TakeArrived();
  void Serve(Link& link);
  bool Watch(Link& link);  // false when the system can watch no more
  bool WatchEnd(End& end, uint32_t wanted);
  void CloseGreedy();
  void SweepStalled(std::chrono::steady_clock::time_point now);
  void SweepSlow(std::chrono::steady_clock::time_point now);
  void CutOffLink(Link& link, CutOff why);
  void Close(Link& link);

  const Limits limits_;
  const Report report_;
  const std::string name_;  // in front of every client's address; of this relay only
  const int events_;        // epoll
  const int wake_;          // eventfd
  std::atomic<uint64_t> next_{0};
  std::atomic<int64_t> cut_off_{0};

  std::mutex mutex_;
  std::vector<std::unique_ptr<Link>> arrived_;
  bool stopping_ = false;

  // Of the thread.
  std::vector<char> piece_;  // scratch
  std::unordered_set<Link*> links_;
  size_t held_ = 0;                            // the sum of what the links' meters count
  std::vector<std::unique_ptr<Link>> closed_;  // events at hand may still name them

  std::thread thread_;
};

// The address of the client at the other end of a gRPC call whose peer is `peer`:
// "ipv4:127.0.0.1:4567", whether or not a relay stands between.
std::string ClientAddress(const std::string& peer);

// Who counts as one client, of all that ClientAddress gives: the address without the port, which is
// another one for each connection, "ipv4:127.0.0.1". Of IPv6 the first 64 bits,
// "ipv6:[2001:db8::]/64": whoever has one address there has 2^64. An IPv4 address in IPv6 clothes
// is an IPv4 address.
std::string AddressOf(const std::string& client);

}  // namespace annulus

#endif  // ANNULUS_SERVER_CONNECTION_RELAY_H_
