#ifndef ANNULUS_SERVER_NET_SOCKET_ADDRESS_H_
#define ANNULUS_SERVER_NET_SOCKET_ADDRESS_H_

#include <cstdint>
#include <string>

namespace annulus::server {

// Returns the address and port of a socket's peer in gRPC's notation: "ipv4:127.0.0.1:4567".
// "unknown" if it has none.
std::string PeerAddress(int socket);

// The port of the socket itself; 0 if it has none.
uint16_t OwnPort(int socket);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_NET_SOCKET_ADDRESS_H_
