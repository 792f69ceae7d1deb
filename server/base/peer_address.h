#ifndef ANNULUS_SERVER_BASE_PEER_ADDRESS_H_
#define ANNULUS_SERVER_BASE_PEER_ADDRESS_H_

#include <string>

namespace annulus::server {

// Maps the address and port of a client ("ipv4:127.0.0.1:4567", "ipv6:[::1]:4567") to the client
// that it counts for. IPv4: the address without the port, which differs between connections
// ("ipv4:127.0.0.1"). IPv6: the first 64 bits, because whoever has one such address has all 2^64
// ("ipv6:[2001:db8::]/64"). An IPv4 address mapped to IPv6 counts as the IPv4 address.
std::string AddressOf(const std::string& client);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_BASE_PEER_ADDRESS_H_
