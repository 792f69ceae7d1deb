#ifndef ANNULUS_SERVER_NET_CONNECTION_RELAY_H_
#define ANNULUS_SERVER_NET_CONNECTION_RELAY_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/api.h"
#include "server/identity/peer_book.h"
#include "server/net/connection_meter.h"
#include "server/net/cut_off.h"
#include "server/net/peer_stream.h"

namespace annulus::server {

// A relay between clients and gRPC. It bounds how much memory gRPC 1.51 uses, and for how long, for
// a client that it does not know yet, and how much work clients make without calls. It closes
// - a connection whose header block is too long (kHeaders),
// - a connection on which the first message of a call comes too slowly (kSlow),
// - a connection with too many frames without a message or too many open calls (kFlood),
// - a connection whose client does not read (kUnread); until then nothing is read from that client,
// - a connection of an address that makes too many calls without an identity (kRefused),
// - a connection of the address with most of them, when another is to have its place (kRoom),
// - and, while open calls with their headers and incomplete messages take too much memory in all,
//   or those of one address too much without the messages, the largest connection of the client
//   address that holds most (kMemory). A connection that is closed counts until gRPC has closed it
//   too.
// Calls that come faster than gRPC answers wait (CallPace).
// It parses only the headers of frames and the lengths of messages. One thread serves all
// connections. For each connection and direction, at most one piece of kPiece bytes waits here;
// then the sender has to wait.
class ConnectionRelay {
 public:
  using CutOff = server::CutOff;
  static constexpr size_t kPiece = size_t{64} << 10;
  // The most that open calls of one address may take, with their headers: about 3,000 calls of gRPC
  // clients, more than the engine takes. Anybody can open them, without an identity.
  static constexpr size_t kMostCallBytesOfAddress = size_t{96} << 20;
  // Connections with less than this are not closed for memory, unless there are so many that half
  // an equal share of the limit is less.
  static constexpr size_t kFreeBytes = size_t{1} << 20;

  struct Limits {
    size_t header_block_bytes;  // size of one header block as sent
    // Memory that gRPC keeps for all connections together, as ConnectionMeter estimates it.
    size_t held_bytes;
    std::chrono::milliseconds message_time{60'000};  // `limit` of ConnectionMeter::Trickles
    // A client for which bytes wait must read 1 KiB for each second of this time, or it is cut off.
    // More than a lost packet or a sleeping radio takes.
    std::chrono::milliseconds unread_time{20'000};
  };

  // Called on the relay's thread for each connection that it cuts off, with the client's address
  // and port.
  using Report = std::function<void(CutOff why, const std::string& client)>;

  // `peers` is told of every connection, and names those to cut off for refused calls. UNAVAILABLE
  // if the system has no descriptors left.
  static absl::StatusOr<std::unique_ptr<ConnectionRelay>> Start(
      Limits limits, Report report = [](CutOff, const std::string&) {},
      std::shared_ptr<PeerBook> peers = std::make_shared<PeerBook>());
  // Waits a moment for gRPC's last bytes to reach the clients, then closes all connections.
  ~ConnectionRelay();
  ConnectionRelay(const ConnectionRelay&) = delete;
  ConnectionRelay& operator=(const ConnectionRelay&) = delete;

  // Takes ownership of a connected, non-blocking socket and returns the socket to pass to gRPC in
  // its place. If the system has no descriptors left, closes `client` and returns -1. The peer name
  // that gRPC sees contains the client's address; see ClientAddress. Thread-safe.
  int Connect(int client) { return Connect(client, PlainStream(client)); }
  // The same if bytes go by `stream`, whose handshake is complete.
  int Connect(int client, std::unique_ptr<PeerStream> stream);

  // Closes a connection to make room for a new one of `client`, an address and port (kRoom): of the
  // address that has most connections, the one that has been without calls for longest. If all of
  // that address have calls, but it would still have more than the new client's, its newest one.
  // Waits for the relay's thread. Returns the descriptor that was the client's; nullopt if no
  // connection may be closed. Thread-safe.
  std::optional<int> MakeRoomFor(const std::string& client);

  // Number of connections closed for the reasons in CutOff. Thread-safe.
  int64_t cut_off() const { return cut_off_.load(std::memory_order_relaxed); }

 private:
  struct End;
  struct Link;
  // Bytes that gRPC keeps for open connections, and for those that are closed here but not yet by
  // gRPC. It lets go of these within milliseconds, unless it has too much to do: they may exceed
  // the limit by a quarter, so that closing one connection does not lead to closing the next.
  struct Kept {
    size_t open = 0;
    size_t leaving = 0;
    bool Exceeds(size_t limit) const { return open > limit || open + leaving > limit + limit / 4; }
  };
  // A client address; see AddressOf.
  struct Host {
    ConnectionMeter::Shared shared;
    // What gRPC keeps for its connections.
    Kept all;
    Kept calls;
    int connections = 0;  // those that gRPC has not closed
  };
  // A connection that is closed here but not yet by gRPC.
  struct Leaving {
    uint64_t number;
    int grpc_socket;
    uint64_t inode;  // of grpc_socket, as long as gRPC has not closed it
    Host* host;
    size_t held;
    size_t calls;  // of `held`
  };

  ConnectionRelay(Limits limits, Report report, std::shared_ptr<PeerBook> peers, int events,
                  int wake);

  struct RoomAsked {
    std::string host;  // whose connection is to have room
    std::promise<std::optional<int>> closed;
  };

  void Wake();
  // These run on the relay's thread.
  void Loop();
  void Sweep(SteadyTime now);
  bool TakeArrived();
  void ServeHeldBack();
  void Serve(const End& end, uint32_t events);
  bool MoveUp(Link& link, SteadyTime now, bool& refused);
  bool MoveDown(Link& link, SteadyTime now);
  bool Watch(Link& link, SteadyTime now);  // returns false if epoll fails
  bool WatchEnd(End& end, uint32_t wanted);
  Host& HostOf(const std::string& name);
  void Count(Link& link);
  void CloseGreedy(Host& host);
  // The connection of `host` (null: of all) with most `bytes`; null if none has at least `free`.
  Link* LargestOf(const Host* host, size_t Link::*bytes, size_t free);
  Link* OneToMakeRoom(const std::string& host);
  void MakeRoom();
  void CutOffCondemned();
  void SweepUnread(SteadyTime now);
  void SweepSlow(SteadyTime now);
  void SweepLeaving();
  void ForgetHosts(SteadyTime now);
  void CutOffLink(Link& link, CutOff why);
  void Close(Link& link);

  const Limits limits_;
  const Report report_;
  const std::shared_ptr<PeerBook> peers_;
  const int events_;  // epoll
  const int wake_;    // eventfd
  std::atomic<int64_t> cut_off_{0};

  std::mutex mutex_;
  std::vector<std::unique_ptr<Link>> arrived_;
  std::vector<RoomAsked> room_asked_;
  bool stopping_ = false;

  // Used by the relay's thread only.
  std::vector<char> piece_;                                       // scratch
  std::unordered_map<std::string, std::unique_ptr<Host>> hosts_;  // by name
  std::unordered_map<uint64_t, std::unique_ptr<Link>> links_;     // by number
  std::list<Leaving> leaving_;
  std::vector<uint64_t> held_back_;  // links whose next call has to wait; some are gone
  size_t turn_ = 0;
  Kept held_;                                  // of all hosts
  std::vector<std::unique_ptr<Link>> closed_;  // kept alive: pending events may refer to them

  std::thread thread_;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_NET_CONNECTION_RELAY_H_
