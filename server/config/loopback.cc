#include "server/config/loopback.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <string>

#include "absl/strings/match.h"

namespace annulus::server {

bool IsLoopbackAddress(absl::string_view host_port) {
  absl::string_view host = host_port.substr(0, host_port.rfind(':'));
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  const std::string text(host);
  in_addr four{};
  in6_addr six{};
  constexpr uint32_t kNet = 127;
  if (inet_pton(AF_INET, text.c_str(), &four) == 1) return ntohl(four.s_addr) >> 24 == kNet;
  if (inet_pton(AF_INET6, text.c_str(), &six) == 1) {
    return IN6_IS_ADDR_LOOPBACK(&six) || (IN6_IS_ADDR_V4MAPPED(&six) && six.s6_addr[12] == kNet);
  }
  return absl::EqualsIgnoreCase(text, "localhost");
}

}  // namespace annulus::server
