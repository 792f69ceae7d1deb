#ifndef ANNULUS_SERVER_IDENTITY_PEER_BOOK_H_
#define ANNULUS_SERVER_IDENTITY_PEER_BOOK_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "engine/api.h"

namespace annulus::server {

// The clients of the connections that the relay carries, and of those over HTTP. gRPC sees only the
// relay's sockets, so what TLS proved about a client, and how its calls end, is looked up and
// counted here by the peer name that gRPC reports for a call. gRPC has that name from the kernel,
// and the relay alone gives it sockets, so a client can neither choose nor send one. Thread-safe.
//
// Limits calls that end without a valid identity or name an unknown method: these cost work, and
// nobody has to be known for it. Each client address has a level that such calls lower and time
// raises. When it is used up, connections are closed on which such calls outnumber others, so that
// good calls from the same address, for example those of a proxy, are not disturbed.
class PeerBook {
 public:
  // Refused calls that an address may make at once, and each second in the long run. More than
  // clients with a wrong token make that retry as gRPC does, with pauses that grow.
  static constexpr double kRefusedBurst = 1'000;
  static constexpr double kRefusedPerSecond = 100;
  // Refused calls that are always answered on a connection, so that whoever has a wrong token
  // learns that even while the address has used up its level.
  static constexpr int kAnsweredPerConnection = 16;

  // A connection; 0: none of the relay's.
  using Number = uint64_t;

  PeerBook();

  // Adds a connection.
  Number Add(const std::string& address, std::vector<std::string> certificate_names);
  // Returns the abstract name for the relay's socket of a connection.
  std::string SocketName(Number number, const std::string& address) const;
  // gRPC has closed the connection. A no-op if there is none.
  void Remove(Number number);

  // Returns the connection of a call. `peer`: gRPC's name for it, for example
  // "unix-abstract:annulus-...-7/ipv4:127.0.0.1:4567".
  Number NumberOf(absl::string_view peer) const;
  // Names in the certificate that the client has shown, which its authority has signed; empty if
  // it has shown none.
  std::vector<std::string> CertificateNames(Number number) const;

  // Counts a call by whether its caller is known and its method exists. No-ops for 0.
  void CountKnown(Number number);
  void CountRefused(Number number, SteadyTime now);

  // Returns the connections that must be closed for their refused calls, each once.
  std::vector<Number> TakeCondemned();
  // Whether this one must. For a transport that asks after each of its calls; TakeCondemned names
  // its connections too.
  bool IsCondemned(Number number) const;

  size_t size() const;

 private:
  struct Level {
    double left = kRefusedBurst;
    SteadyTime filled;
  };
  struct Peer {
    std::vector<std::string> certificate_names;
    size_t level;  // place in levels_
    // Calls of late: both are halved now and then.
    int known = 0;
    int refused = 0;
    bool condemned = false;
  };

  static void Age(Peer& peer);

  const std::string prefix_;
  mutable std::mutex mutex_;
  Number next_ = 1;
  absl::flat_hash_map<Number, Peer> peers_;
  // Addresses share these at random, so that there is no table to fill. Who shares one with a
  // flooder is affected only if most of its own calls are refused too.
  std::array<Level, 1024> levels_{};
  std::vector<Number> condemned_;
};

// Returns the address of the client from the peer name of a gRPC call, with or without a relay in
// between: "ipv4:127.0.0.1:4567".
std::string ClientAddress(const std::string& peer);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_IDENTITY_PEER_BOOK_H_
