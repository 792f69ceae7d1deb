#ifndef ANNULUS_SERVER_NET_SOCKET_USER_H_
#define ANNULUS_SERVER_NET_SOCKET_USER_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace annulus::server {

// Finds the user who owns the socket at the other end of an established TCP connection within this
// machine. `table`: the content of /proc/net/tcp or /proc/net/tcp6 (proc(5)). `peer`: the address
// and port of that socket, as PeerAddress returns it. `own_port`: the port at this end. nullopt if
// the table has no such socket, or several of different users.
std::optional<uid_t> FindSocketUser(absl::string_view table, absl::string_view peer,
                                    uint16_t own_port);

// Checks that the other end of a connection over loopback belongs to this process's user. While the
// connection stands, its socket is in the kernel's table; others that have the same port at the
// other end are told apart only by their user. A socket that its owner has passed on counts as the
// owner's. PERMISSION_DENIED names both users, or says that there is no telling: the peer has left,
// is in another network namespace, or its user is unknown here.
absl::Status CheckOwnUser(const std::string& peer, uint16_t own_port);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_NET_SOCKET_USER_H_
