#ifndef ANNULUS_SERVER_CONFIG_LOOPBACK_H_
#define ANNULUS_SERVER_CONFIG_LOOPBACK_H_

#include "absl/strings/string_view.h"

namespace annulus {

// Whether only this machine can reach "HOST:PORT" or "[IPV6]:PORT": an address of 127.0.0.0/8, ::1,
// the same mapped into IPv6, or the name localhost. Other names count as reachable.
bool IsLoopbackAddress(absl::string_view host_port);

}  // namespace annulus

#endif  // ANNULUS_SERVER_CONFIG_LOOPBACK_H_
