#include "server/net/connection_acceptor.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "server/net/socket_address.h"

namespace annulus::server {
namespace {

constexpr int kBacklog = 1024;
constexpr int kBatch = 64;              // connections accepted before polling the listeners again
constexpr int kRetryMs = 20;            // pause after the system had no descriptor or memory left
constexpr int kSweepEveryMs = 10;       // shortest interval between looks at every connection
constexpr int kOtherDescriptors = 256;  // for files, sockets of scrapers and gRPC itself

absl::Status Refusal(const std::string& address, const std::string& cause) {
  return absl::UnavailableError(absl::StrCat(address, ": ", cause));
}

std::string SystemError() { return std::generic_category().message(errno); }

struct AddressList {
  ~AddressList() {
    if (first != nullptr) freeaddrinfo(first);
  }
  addrinfo* first = nullptr;
};

// Whether the list has the same address before `target`: resolvers may return one twice.
bool IsRepeated(const addrinfo* first, const addrinfo& target) {
  for (; first != &target; first = first->ai_next) {
    if (first->ai_addrlen == target.ai_addrlen &&
        std::memcmp(first->ai_addr, target.ai_addr, target.ai_addrlen) == 0) {
      return true;
    }
  }
  return false;
}

// Opens a listening socket; -1 with errno if that fails. `port`, if not 0, replaces the port of
// `target`.
int OpenListener(const addrinfo& target, int port) {
  sockaddr_storage address{};
  std::copy_n(reinterpret_cast<const char*>(target.ai_addr), target.ai_addrlen,
              reinterpret_cast<char*>(&address));
  if (port != 0 && target.ai_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(address).sin6_port = htons(static_cast<uint16_t>(port));
  } else if (port != 0) {
    reinterpret_cast<sockaddr_in&>(address).sin_port = htons(static_cast<uint16_t>(port));
  }
  const int descriptor =
      socket(target.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
  if (descriptor < 0) return -1;
  const int on = 1;
  setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));  // connections inherit it
  if (target.ai_family == AF_INET6) {
    // "[::]" also accepts IPv4 connections, as in gRPC. Fails if something listens on 0.0.0.0.
    const int off = 0;
    setsockopt(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  }
  if (bind(descriptor, reinterpret_cast<const sockaddr*>(&address), target.ai_addrlen) == 0 &&
      listen(descriptor, kBacklog) == 0) {
    return descriptor;
  }
  const int error = errno;
  close(descriptor);
  errno = error;
  return -1;
}

bool HasIpv6() {
  const int descriptor = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
  if (descriptor < 0) return errno != EAFNOSUPPORT && errno != EPROTONOSUPPORT;
  close(descriptor);
  return true;
}

// The inode number of a descriptor's socket; nullopt if it is not an open socket.
std::optional<uint64_t> SocketNumber(int descriptor) {
  struct stat status {};
  if (fstat(descriptor, &status) != 0 || !S_ISSOCK(status.st_mode)) return std::nullopt;
  return status.st_ino;
}

// Whether the peer has disconnected already, so that nothing needs to be set up for it.
bool IsGone(int connection) {
  sockaddr_storage peer{};
  socklen_t peer_size = sizeof(peer);
  if (getpeername(connection, reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0) return true;
  char byte;
  const ssize_t size = recv(connection, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return size == 0 || (size < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

int64_t NowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

ConnectionAcceptor::ConnectionAcceptor() : stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

absl::StatusOr<std::unique_ptr<ConnectionAcceptor>> ConnectionAcceptor::Listen(
    const std::string& address) {
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  // Every address of the machine: where the kernel has no IPv6, those that there are.
  if (host == "::" && !HasIpv6()) host = "0.0.0.0";
  AddressList targets;
  const int error =
      getaddrinfo(host.c_str(), address.substr(colon + 1).c_str(), &hints, &targets.first);
  if (error != 0) return Refusal(address, gai_strerror(error));

  std::unique_ptr<ConnectionAcceptor> acceptor(new ConnectionAcceptor);
  if (acceptor->stop_ < 0) return Refusal(address, SystemError());
  // A name may have addresses that this machine does not support; one that works is enough.
  std::string cause;
  for (const addrinfo* target = targets.first; target != nullptr; target = target->ai_next) {
    if (IsRepeated(targets.first, *target)) continue;
    const int listener = OpenListener(*target, acceptor->port_);
    if (listener < 0) {
      cause = SystemError();
      if (errno == EADDRINUSE) return Refusal(address, cause);
      continue;
    }
    acceptor->listeners_.push_back(listener);
    acceptor->port_ = OwnPort(listener);
  }
  if (acceptor->listeners_.empty()) return Refusal(address, cause);
  return acceptor;
}

std::unique_ptr<ConnectionAcceptor> ConnectionAcceptor::Adopt(int listener) {
  std::unique_ptr<ConnectionAcceptor> acceptor(new ConnectionAcceptor);
  ANNULUS_CHECK(acceptor->stop_ >= 0) << "no file descriptor is left: " << SystemError();
  acceptor->listeners_.push_back(listener);
  return acceptor;
}

ConnectionAcceptor::~ConnectionAcceptor() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    ANNULUS_CHECK(write(stop_, &one, sizeof(one)) == sizeof(one)) << "cannot stop accepting";
    thread_.join();
  }
  for (const int listener : listeners_) close(listener);
  if (stop_ >= 0) close(stop_);
}

void ConnectionAcceptor::Start(int max_connections, Handler handler, RoomMaker make_room) {
  ANNULUS_CHECK(!thread_.joinable()) << "started twice";
  max_connections_ = static_cast<size_t>(max_connections);
  handler_ = std::move(handler);
  make_room_ = std::move(make_room);
  thread_ = std::thread([this] { Loop(); });
}

void ConnectionAcceptor::Loop() {
  std::vector<pollfd> watched = {{stop_, POLLIN, 0}};
  for (const int listener : listeners_) watched.push_back({listener, POLLIN, 0});
  for (;;) {
    if (poll(watched.data(), watched.size(), -1) < 0) continue;  // only EINTR can happen
    if (watched[0].revents != 0) return;
    for (size_t i = 1; i < watched.size(); ++i) {
      if (watched[i].revents == 0 || AcceptSome(watched[i].fd)) continue;
      if (!Sleep(kRetryMs)) return;
    }
  }
}

bool ConnectionAcceptor::Sleep(int milliseconds) {
  pollfd stop{stop_, POLLIN, 0};
  return poll(&stop, 1, milliseconds) <= 0;
}

// Returns false if the system has no resources for another connection.
bool ConnectionAcceptor::AcceptSome(int listener) {
  for (int i = 0; i < kBatch; ++i) {
    const int connection = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (connection >= 0) {
      Take(connection);
      continue;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return true;
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) return false;
    // Any other error concerns one connection only, which ended before it was accepted.
  }
  return true;
}

void ConnectionAcceptor::Take(int connection) {
  if (IsGone(connection)) {
    close(connection);
    return;
  }
  open_.erase(connection);  // an earlier connection had the same descriptor
  const std::optional<uint64_t> number = SocketNumber(connection);
  if (!number || !(HasRoom() || MakeRoomFor(connection))) {
    refused_.fetch_add(1, std::memory_order_relaxed);
    close(connection);
    return;
  }
  open_.emplace(connection, *number);
  handler_(connection);
}

bool ConnectionAcceptor::HasRoom() {
  if (open_.size() < max_connections_) return true;
  const int64_t now = NowMs();
  if (now - swept_at_ms_ < kSweepEveryMs) return false;
  swept_at_ms_ = now;
  std::erase_if(open_, [](const auto& entry) { return SocketNumber(entry.first) != entry.second; });
  return open_.size() < max_connections_;
}

bool ConnectionAcceptor::MakeRoomFor(int connection) {
  if (make_room_ == nullptr) return false;
  const std::optional<int> closed = make_room_(PeerAddress(connection));
  return closed.has_value() && open_.erase(*closed) > 0;
}

int MakeRoomForConnections(int connections, int descriptors) {
  const rlim_t each = static_cast<rlim_t>(descriptors);
  const rlim_t wanted = static_cast<rlim_t>(connections) * each + kOtherDescriptors;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return connections;
  if (limit.rlim_cur < wanted) {
    limit.rlim_cur = std::min(limit.rlim_max, wanted);
    setrlimit(RLIMIT_NOFILE, &limit);
    getrlimit(RLIMIT_NOFILE, &limit);
  }
  if (limit.rlim_cur >= wanted) return connections;
  // Too few for everything: connections get the rest, or half of all if the rest is less.
  const rlim_t rest = limit.rlim_cur - std::min<rlim_t>(limit.rlim_cur, kOtherDescriptors);
  return static_cast<int>(std::max(std::max(rest, limit.rlim_cur / 2) / each, rlim_t{1}));
}

}  // namespace annulus::server
