#ifndef ANNULUS_SERVER_CONFIG_LOOPBACK_H_
#define ANNULUS_SERVER_CONFIG_LOOPBACK_H_

#include "absl/strings/string_view.h"

namespace annulus::server {

// Whether only this machine can reach "HOST:PORT" or "[IPV6]:PORT": an address in 127.0.0.0/8, also
// if mapped to IPv6, ::1, or the name localhost. Returns false for any other name.
bool IsLoopbackAddress(absl::string_view host_port);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_CONFIG_LOOPBACK_H_
