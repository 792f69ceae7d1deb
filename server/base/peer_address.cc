#include "server/base/peer_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace annulus::server {

std::string AddressOf(const std::string& client) {
  const std::string whole = client.substr(0, client.rfind(':'));
  absl::string_view text = whole;
  if (!absl::ConsumePrefix(&text, "ipv6:[") || !absl::ConsumeSuffix(&text, "]")) return whole;
  in6_addr address{};
  // In a link-local address, the part after % names the interface.
  const std::string numbers(text.substr(0, text.find('%')));
  if (inet_pton(AF_INET6, numbers.c_str(), &address) != 1) return whole;
  std::array<char, INET6_ADDRSTRLEN> printed{};
  if (IN6_IS_ADDR_V4MAPPED(&address)) {
    inet_ntop(AF_INET, &address.s6_addr[12], printed.data(), printed.size());
    return absl::StrCat("ipv4:", printed.data());
  }
  std::fill(address.s6_addr + 8, address.s6_addr + 16, uint8_t{0});
  inet_ntop(AF_INET6, &address, printed.data(), printed.size());
  return absl::StrCat("ipv6:[", printed.data(), "]/64");
}

}  // namespace annulus::server
