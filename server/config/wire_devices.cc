#include "server/config/wire_devices.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "server/config/loopback.h"

namespace annulus::server {
namespace {

constexpr char kVariable[] = "UCX_NET_DEVICES";

bool IsPrivateFour(uint32_t address) {
  struct Block {
    uint32_t first;
    int bits;
  };
  static constexpr std::array<Block, 6> kBlocks = {{
      {0x7F000000, 8},   // 127.0.0.0: loopback
      {0x0A000000, 8},   // 10.0.0.0: RFC 1918
      {0xAC100000, 12},  // 172.16.0.0
      {0xC0A80000, 16},  // 192.168.0.0
      {0x64400000, 10},  // 100.64.0.0: RFC 6598
      {0xA9FE0000, 16},  // 169.254.0.0: link-local
  }};
  return std::any_of(kBlocks.begin(), kBlocks.end(), [address](const Block& block) {
    return address >> (32 - block.bits) == block.first >> (32 - block.bits);
  });
}

bool IsSix(const DeviceAddress& address) { return address.address.find(':') != std::string::npos; }

// The addresses of the device that UCX may take.
std::vector<std::string> AddressesOf(absl::string_view device,
                                     const std::vector<DeviceAddress>& all) {
  std::vector<std::string> four;
  std::vector<std::string> six;
  for (const DeviceAddress& each : all) {
    if (each.device == device) (IsSix(each) ? six : four).push_back(each.address);
  }
  return four.empty() ? six : four;
}

// All but those of loopback.
std::vector<std::string> DevicesIn(const std::vector<DeviceAddress>& all) {
  std::vector<std::string> devices;
  for (const DeviceAddress& each : all) {
    const bool loopback = IsLoopbackAddress(absl::StrCat("[", each.address, "]:0"));
    const bool known = std::find(devices.begin(), devices.end(), each.device) != devices.end();
    if (!loopback && !known) devices.push_back(each.device);
  }
  return devices;
}

bool IsPrivateDevice(absl::string_view device, const std::vector<DeviceAddress>& all) {
  const std::vector<std::string> addresses = AddressesOf(device, all);
  return std::all_of(addresses.begin(), addresses.end(), IsPrivateAddress);
}

absl::Status RefusePublic(const std::string& device, const std::vector<DeviceAddress>& all) {
  const std::vector<std::string> own = AddressesOf(device, all);
  const auto address = std::find_if_not(own.begin(), own.end(), IsPrivateAddress);
  std::vector<std::string> good;
  for (const std::string& other : DevicesIn(all)) {
    if (IsPrivateDevice(other, all)) good.push_back(other);
  }
  const std::string choice =
      good.empty()
          ? absl::StrCat(
                "make one, for example with WireGuard, and name its device in the variable ",
                kVariable)
          : absl::StrCat("set the variable ", kVariable, "=", absl::StrJoin(good, ","));
  return absl::FailedPreconditionError(absl::StrCat(
      "ranks would exchange keys and values over ", device, " at ", *address,
      ", which is no private address, and UCX does not encrypt them. Use a private network (10/8, "
      "172.16/12, 192.168/16, 100.64/10, fc00::/7): ",
      choice, ". Or set --allow-public-wire if a firewall lets only the ring's hosts in"));
}

}  // namespace

bool IsPrivateAddress(absl::string_view address) {
  const std::string text(address);
  in_addr four{};
  if (inet_pton(AF_INET, text.c_str(), &four) == 1) return IsPrivateFour(ntohl(four.s_addr));
  in6_addr six{};
  if (inet_pton(AF_INET6, text.c_str(), &six) != 1) return false;
  if (IN6_IS_ADDR_V4MAPPED(&six)) {
    const uint8_t* const last = &six.s6_addr[12];
    return IsPrivateFour(uint32_t{last[0]} << 24 | uint32_t{last[1]} << 16 |
                         uint32_t{last[2]} << 8 | last[3]);
  }
  constexpr int kUniqueLocal = 0xFC;
  return IN6_IS_ADDR_LOOPBACK(&six) || IN6_IS_ADDR_LINKLOCAL(&six) ||
         (six.s6_addr[0] & 0xFE) == kUniqueLocal;
}

absl::StatusOr<std::string> ChooseWireDevices(const ServerConfig& config, absl::string_view wanted,
                                              const std::vector<DeviceAddress>& addresses) {
  const std::string& control = config.join.empty() ? config.workers_listen : config.join;
  // What ranks exchange goes over the same kind of network as the control messages.
  if (IsLoopbackAddress(control)) return "lo";
  const std::vector<std::string> there = DevicesIn(addresses);
  const bool all = wanted.empty() || wanted == "all";
  const std::vector<std::string> devices =
      all ? there : std::vector<std::string>(absl::StrSplit(wanted, ','));
  if (devices.empty()) {
    return absl::NotFoundError(
        absl::StrCat("no network device is up by which other hosts could be reached, as ", control,
                     " asks for"));
  }
  for (const std::string& device : devices) {
    if (AddressesOf(device, addresses).empty()) {
      return absl::NotFoundError(absl::StrCat(kVariable, " names \"", device,
                                              "\", which is no network device with an IP address; "
                                              "there are: ",
                                              absl::StrJoin(there, ", ")));
    }
    if (config.allow_public_wire || IsPrivateDevice(device, addresses)) continue;
    return RefusePublic(device, addresses);
  }
  return absl::StrJoin(devices, ",");
}

absl::StatusOr<std::string> FindWireDevices(const ServerConfig& config) {
  std::vector<DeviceAddress> addresses;
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) {
    return absl::UnavailableError("the system does not list its network devices (getifaddrs)");
  }
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    if ((each->ifa_flags & IFF_UP) == 0 || each->ifa_addr == nullptr) continue;
    const int family = each->ifa_addr->sa_family;
    std::array<char, INET6_ADDRSTRLEN> text{};
    const void* bytes = nullptr;
    if (family == AF_INET) bytes = &reinterpret_cast<sockaddr_in*>(each->ifa_addr)->sin_addr;
    if (family == AF_INET6) bytes = &reinterpret_cast<sockaddr_in6*>(each->ifa_addr)->sin6_addr;
    if (bytes == nullptr || inet_ntop(family, bytes, text.data(), text.size()) == nullptr) continue;
    addresses.push_back({each->ifa_name, text.data()});
  }
  freeifaddrs(first);
  const char* const wanted = std::getenv(kVariable);
  return ChooseWireDevices(config, wanted == nullptr ? "" : wanted, addresses);
}

}  // namespace annulus::server
