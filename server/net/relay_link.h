#ifndef ANNULUS_SERVER_NET_RELAY_LINK_H_
#define ANNULUS_SERVER_NET_RELAY_LINK_H_

#include <sys/stat.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine/api.h"
#include "server/net/connection_meter.h"
#include "server/net/connection_relay.h"
#include "server/net/peer_stream.h"
#include "server/net/relay_flow.h"

namespace annulus::server {

// The inode number of a descriptor; 0 if it is closed.
inline uint64_t InodeOf(int descriptor) {
  struct stat status {};
  return fstat(descriptor, &status) == 0 ? status.st_ino : 0;
}

// One side of a relayed connection.
struct ConnectionRelay::End {
  Link* link;
  int descriptor;
  std::unique_ptr<PeerStream> stream;
  uint32_t watched = 0;  // events that epoll watches for; 0: not registered
};

// A relayed connection.
struct ConnectionRelay::Link {
  // A client that takes nothing for so long is stalled, and nothing is read from it. A shorter
  // pause is usual on a slow line, where what the client sends makes room for more (WINDOW_UPDATE).
  static constexpr std::chrono::milliseconds kStalledAfter{200};

  Link(uint64_t peer_number, std::string client_name, End client_end, End server_end, int for_grpc)
      : number(peer_number),
        name(std::move(client_name)),
        grpc_socket(for_grpc),
        grpc_inode(InodeOf(for_grpc)),
        client(std::move(client_end)),
        server(std::move(server_end)) {
    client.link = server.link = this;
  }

  const uint64_t number;   // in PeerBook
  const std::string name;  // the client's address and port
  const int grpc_socket;   // gRPC owns it
  const uint64_t grpc_inode;

  End client;
  End server;
  Host* host = nullptr;  // the client that it counts for
  SteadyTime used;       // when it last had a call, or came
  std::optional<ConnectionMeter> meter;
  size_t counted = 0;        // meter->held_bytes() in held_
  size_t counted_calls = 0;  // meter->call_bytes() in host->call_bytes
  RelayFlow up;              // from the client to gRPC
  RelayFlow down;            // from gRPC to the client
  // While `down` is stalled: when the client last took something, and the time since when it must
  // take enough, with down.moved() at its beginning.
  SteadyTime took;
  SteadyTime unread_since;
  uint64_t moved_then = 0;
  std::optional<SteadyTime> hung_up;  // when gRPC closed, if bytes still wait
  bool held_back = false;             // is in held_back_
  bool closed = false;

  bool Stalled(SteadyTime now) const { return down.stalled() && now - took >= kStalledAfter; }
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_NET_RELAY_LINK_H_
