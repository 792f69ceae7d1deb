#include "server/net/socket_user.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace annulus::server {
namespace {

constexpr absl::string_view kEstablished = "01";
// Fields of a line, by position: local_address, rem_address, st, uid.
constexpr size_t kLocal = 1, kRemote = 2, kState = 3, kUser = 7;

// An end of a connection; IPv4 addresses are mapped to IPv6.
struct End {
  in6_addr address{};
  uint16_t port = 0;
  bool operator==(const End& other) const {
    return port == other.port && IN6_ARE_ADDR_EQUAL(&address, &other.address);
  }
};

End Mapped(const in_addr& address, uint16_t port) {
  End end;
  end.port = port;
  end.address.s6_addr[10] = end.address.s6_addr[11] = 0xFF;
  std::memcpy(&end.address.s6_addr[12], &address, sizeof(address));
  return end;
}

// "ipv4:127.0.0.1:4567" or "ipv6:[::1]:4567"
std::optional<End> ParsePeer(absl::string_view text) {
  const bool four = absl::ConsumePrefix(&text, "ipv4:");
  if (!four && !absl::ConsumePrefix(&text, "ipv6:")) return std::nullopt;
  const size_t colon = text.rfind(':');
  uint32_t port = 0;
  if (colon == absl::string_view::npos || !absl::SimpleAtoi(text.substr(colon + 1), &port) ||
      port > 0xFFFF) {
    return std::nullopt;
  }
  absl::string_view host = text.substr(0, colon);
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  const std::string name(host);
  if (four) {
    in_addr address{};
    if (inet_pton(AF_INET, name.c_str(), &address) != 1) return std::nullopt;
    return Mapped(address, static_cast<uint16_t>(port));
  }
  End end;
  end.port = static_cast<uint16_t>(port);
  if (inet_pton(AF_INET6, name.c_str(), &end.address) != 1) return std::nullopt;
  return end;
}

// "0100007F:1F90": words of the address as the machine stores them, in hexadecimal; the port.
std::optional<End> ParseEntry(absl::string_view text) {
  constexpr size_t kWord = 8;
  const size_t colon = text.find(':');
  uint32_t port = 0;
  if (colon == absl::string_view::npos || (colon != kWord && colon != 4 * kWord) ||
      !absl::SimpleHexAtoi(text.substr(colon + 1), &port) || port > 0xFFFF) {
    return std::nullopt;
  }
  std::array<uint32_t, 4> words{};
  for (size_t at = 0; at < colon; at += kWord) {
    if (!absl::SimpleHexAtoi(text.substr(at, kWord), &words[at / kWord])) return std::nullopt;
  }
  if (colon == kWord) {
    in_addr address{};
    std::memcpy(&address, words.data(), sizeof(address));
    return Mapped(address, static_cast<uint16_t>(port));
  }
  End end;
  end.port = static_cast<uint16_t>(port);
  std::memcpy(&end.address, words.data(), sizeof(end.address));
  return end;
}

// A user that this process's user namespace does not know is shown as this one.
uid_t OverflowUser() {
  std::ifstream file("/proc/sys/kernel/overflowuid");
  uid_t user = 65534;
  file >> user;
  return user;
}

std::string ReadTable(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

std::optional<uid_t> FindSocketUser(absl::string_view table, absl::string_view peer,
                                    uint16_t own_port) {
  const std::optional<End> wanted = ParsePeer(peer);
  if (!wanted.has_value()) return std::nullopt;
  std::optional<uid_t> found;
  for (const absl::string_view line : absl::StrSplit(table, '\n')) {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (fields.size() <= kUser || fields[kState] != kEstablished) continue;
    const std::optional<End> local = ParseEntry(fields[kLocal]);
    const std::optional<End> remote = ParseEntry(fields[kRemote]);
    uint32_t user = 0;
    if (!local.has_value() || !remote.has_value() || !absl::SimpleAtoi(fields[kUser], &user)) {
      continue;
    }
    if (!(*local == *wanted) || remote->port != own_port) continue;
    if (found.has_value() && *found != user) return std::nullopt;
    found = user;
  }
  return found;
}

absl::Status CheckOwnUser(const std::string& peer, uint16_t own_port) {
  const auto look = [&] {
    return FindSocketUser(absl::StrCat(ReadTable("/proc/net/tcp"), ReadTable("/proc/net/tcp6")),
                          peer, own_port);
  };
  std::optional<uid_t> user = look();
  if (!user.has_value()) user = look();  // sockets that come and go may hide one from a reader
  const uid_t own = geteuid();
  if (user == own && own != OverflowUser()) return absl::OkStatus();
  if (!user.has_value() || *user == OverflowUser()) {
    return absl::PermissionDeniedError(absl::StrCat(
        "no telling which user is at ", peer,
        "; without certificates both ends must be of one user, on one machine and in one network "
        "namespace; otherwise set --tls-certificate, --tls-key and --tls-client-ca on both"));
  }
  return absl::PermissionDeniedError(absl::StrCat(
      peer, " belongs to user ", *user, ", not to user ", own,
      "; without certificates both must be of one user; run both as the same user, or set "
      "--tls-certificate, --tls-key and --tls-client-ca on both"));
}

}  // namespace annulus::server
