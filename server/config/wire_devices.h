#ifndef ANNULUS_SERVER_CONFIG_WIRE_DEVICES_H_
#define ANNULUS_SERVER_CONFIG_WIRE_DEVICES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/config/server_config.h"

// Which network devices carry what ranks of several processes exchange. UCX does not encrypt, and
// whoever reaches its ports can send to them.

namespace annulus::server {

// An IP address of a network device that is up: {"eth0", "10.0.0.7"}.
struct DeviceAddress {
  std::string device;
  std::string address;
};

// Whether only a network of its owner reaches this IPv4 or IPv6 address: loopback, RFC 1918, shared
// (100.64.0.0/10), link-local, unique local (fc00::/7), and IPv4 ones of these mapped to IPv6.
// False for any other text.
bool IsPrivateAddress(absl::string_view address);

// Returns the devices for wires, with commas, given all addresses of this machine. "lo" if the
// processes of the ring talk over loopback (workers_listen or join). Else `wanted`, which is what
// UCX_NET_DEVICES says; if that is empty or "all", all but loopback. Of a device UCX takes an IPv4
// address if it has one.
// - NOT_FOUND: there is no device, or none of a name in `wanted`; the message lists those there
// are.
// - FAILED_PRECONDITION: an address that UCX would take is not private, and allow_public_wire is
//   not set. The message says how to choose other devices.
absl::StatusOr<std::string> ChooseWireDevices(const ServerConfig& config, absl::string_view wanted,
                                              const std::vector<DeviceAddress>& addresses);

// The same for this machine and the environment of this process.
absl::StatusOr<std::string> FindWireDevices(const ServerConfig& config);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_CONFIG_WIRE_DEVICES_H_
