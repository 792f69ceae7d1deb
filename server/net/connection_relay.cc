#include "server/net/connection_relay.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <random>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "kernels/base/check.h"
#include "server/base/peer_address.h"
#include "server/net/connection_meter.h"

namespace annulus::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr absl::string_view kNamePrefix = "annulus-";
constexpr int kPiecesAtATime = 4;  // moved in one direction before other connections have a turn
constexpr milliseconds kSweepEvery{1000};
// How long a client may take to read the rest after gRPC has closed the connection.
constexpr milliseconds kLinger{5000};
constexpr milliseconds kLastWords{500};  // the same for all clients, when the relay ends

// One direction of a connection.
struct Flow {
  std::vector<char> waiting;  // read but not yet sent
  bool ended = false;         // no more to read

  bool stalled() const { return !waiting.empty(); }
};

enum class Moved : uint8_t { kAll, kSourceFailed, kSinkFailed, kRefused };

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

// Returns the number of bytes sent, which may be 0; nullopt if the other side is gone.
std::optional<size_t> Send(int to, const char* bytes, size_t size) {
  const ssize_t sent = send(to, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent >= 0) return static_cast<size_t>(sent);
  if (WouldBlock()) return 0;
  return std::nullopt;
}

// Moves the available bytes, up to kPiecesAtATime pieces. Passes each piece to `take`, which may
// refuse it.
Moved Move(Flow& flow, int from, int to, absl::FunctionRef<bool(absl::string_view)> take,
           std::vector<char>& piece) {
  for (int i = 0; i < kPiecesAtATime; ++i) {
    if (flow.stalled()) {
      const auto sent = Send(to, flow.waiting.data(), flow.waiting.size());
      if (!sent) return Moved::kSinkFailed;
      flow.waiting.erase(flow.waiting.begin(),
                         flow.waiting.begin() + static_cast<std::ptrdiff_t>(*sent));
      if (flow.stalled()) return Moved::kAll;
      flow.waiting.shrink_to_fit();
    }
    if (flow.ended) return Moved::kAll;
    const ssize_t received = recv(from, piece.data(), piece.size(), MSG_DONTWAIT);
    if (received < 0) return WouldBlock() ? Moved::kAll : Moved::kSourceFailed;
    if (received == 0) {
      flow.ended = true;
      shutdown(to, SHUT_WR);
      return Moved::kAll;
    }
    const size_t size = static_cast<size_t>(received);
    if (!take(absl::string_view(piece.data(), size))) return Moved::kRefused;
    const auto sent = Send(to, piece.data(), size);
    if (!sent) return Moved::kSinkFailed;
    flow.waiting.assign(piece.begin() + static_cast<std::ptrdiff_t>(*sent),
                        piece.begin() + received);
  }
  return Moved::kAll;
}

// The client's address in the notation of gRPC.
std::string AddressOf(int client) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (getpeername(client, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "unknown";
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size());
    return absl::StrCat("ipv4:", text.data(), ":", ntohs(v4.sin_port));
  }
  if (address.ss_family != AF_INET6) return "unknown";
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    inet_ntop(AF_INET, &v6.sin6_addr.s6_addr[12], text.data(), text.size());
    return absl::StrCat("ipv4:", text.data(), ":", ntohs(v6.sin6_port));
  }
  inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
  return absl::StrCat("ipv6:[", text.data(), "]:", ntohs(v6.sin6_port));
}

// Creates two connected sockets and gives the first one the abstract name `name`.
std::optional<std::array<int, 2>> NamedPair(const std::string& name) {
  std::array<int, 2> pair{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair.data()) != 0) {
    return std::nullopt;
  }
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // The first byte stays zero: an abstract name, which creates no file.
  const size_t size = std::min(name.size(), sizeof(address.sun_path) - 1);
  std::copy_n(name.begin(), size, address.sun_path + 1);
  if (bind(pair[0], reinterpret_cast<const sockaddr*>(&address),
           static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size)) == 0) {
    return pair;
  }
  close(pair[0]);
  close(pair[1]);
  return std::nullopt;
}

// A random name, because other servers may use the same name space.
std::string UniqueName() {
  std::random_device random;
  const uint64_t number = uint64_t{random()} << 32 | random();
  return absl::StrCat(kNamePrefix, absl::Hex(number, absl::kZeroPad16));
}

}  // namespace

struct ConnectionRelay::End {
  Link* link;
  int descriptor;
  uint32_t watched = 0;  // events that epoll watches for; 0: not registered
};

struct ConnectionRelay::Link {
  Link(std::string client_name, int client_socket, int server_socket, size_t most_header_bytes)
      : name(std::move(client_name)),
        host(AddressOf(name)),
        client{this, client_socket},
        server{this, server_socket},
        meter(most_header_bytes) {}

  const std::string name;  // the client's address and port
  const std::string host;  // AddressOf(name): connections with the same one count as one client

  End client;
  End server;
  ConnectionMeter meter;
  Flow up;                                          // from the client to gRPC
  Flow down;                                        // from gRPC to the client
  std::optional<steady_clock::time_point> hung_up;  // when gRPC closed, if bytes still wait
  bool closed = false;
};

absl::StatusOr<std::unique_ptr<ConnectionRelay>> ConnectionRelay::Start(Limits limits,
                                                                        Report report) {
  const int events = epoll_create1(EPOLL_CLOEXEC);
  const int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  epoll_event waking{EPOLLIN, {.ptr = nullptr}};
  if (events < 0 || wake < 0 || epoll_ctl(events, EPOLL_CTL_ADD, wake, &waking) != 0) {
    const std::string cause = std::strerror(errno);
    if (events >= 0) close(events);
    if (wake >= 0) close(wake);
    return absl::UnavailableError(absl::StrCat("cannot watch connections: ", cause));
  }
  return std::unique_ptr<ConnectionRelay>(
      new ConnectionRelay(limits, std::move(report), events, wake));
}

ConnectionRelay::ConnectionRelay(Limits limits, Report report, int events, int wake)
    : limits_(limits),
      report_(std::move(report)),
      name_(UniqueName()),
      events_(events),
      wake_(wake),
      piece_(kPiece) {
  thread_ = std::thread([this] { Loop(); });
}

ConnectionRelay::~ConnectionRelay() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  Wake();
  thread_.join();
  close(wake_);
  close(events_);
}

int ConnectionRelay::Connect(int client) {
  const std::string address = AddressOf(client);
  const auto pair = NamedPair(absl::StrCat(name_, "-", next_.fetch_add(1), "/", address));
  if (!pair) {
    close(client);
    return -1;
  }
  auto link = std::make_unique<Link>(address, client, (*pair)[0], limits_.header_block_bytes);
  {
    std::lock_guard lock(mutex_);
    arrived_.push_back(std::move(link));
  }
  Wake();
  return (*pair)[1];
}

void ConnectionRelay::Wake() {
  const uint64_t one = 1;
  const ssize_t written = write(wake_, &one, sizeof(one));
  ANNULUS_CHECK(written == sizeof(one) || errno == EAGAIN) << "cannot wake the relay";
}

void ConnectionRelay::Loop() {
  std::array<epoll_event, 64> ready{};
  std::optional<steady_clock::time_point> end;
  steady_clock::time_point swept = steady_clock::now();
  for (;;) {
    const milliseconds wait = end ? milliseconds(10) : kSweepEvery;
    const int count = epoll_wait(events_, ready.data(), static_cast<int>(ready.size()),
                                 static_cast<int>(wait.count()));
    const auto now = steady_clock::now();
    for (int i = 0; i < count; ++i) {
      const End* const side = static_cast<const End*>(ready[static_cast<size_t>(i)].data.ptr);
      if (side != nullptr) {
        Serve(*side->link);
      } else if (TakeArrived() && !end) {
        end = now + kLastWords;
      }
    }
    closed_.clear();
    if (end && (links_.empty() || now >= *end)) break;
    if (now - swept < kSweepEvery) continue;
    swept = now;
    SweepStalled(now);
    SweepSlow(now);
    closed_.clear();
  }
  while (!links_.empty()) Close(**links_.begin());
}

// Takes over new connections. Returns true if the relay must stop.
bool ConnectionRelay::TakeArrived() {
  uint64_t count = 0;
  while (read(wake_, &count, sizeof(count)) > 0) {
  }
  std::vector<std::unique_ptr<Link>> arrived;
  bool stopping = false;
  {
    std::lock_guard lock(mutex_);
    arrived.swap(arrived_);
    stopping = stopping_;
  }
  for (std::unique_ptr<Link>& link : arrived) {
    links_.insert(link.get());
    Link& one = *link.release();
    if (!Watch(one)) Close(one);
  }
  return stopping;
}

void ConnectionRelay::Serve(Link& link) {
  if (link.closed) return;
  const size_t before = link.meter.held_bytes();
  const auto now = steady_clock::now();
  const Moved up = Move(
      link.up, link.client.descriptor, link.server.descriptor,
      [&](absl::string_view bytes) { return link.meter.TakeFromClient(bytes, now); }, piece_);
  bool done = up == Moved::kRefused || up == Moved::kSourceFailed;
  if (up == Moved::kSinkFailed) {  // gRPC has closed, but may have bytes left for the client
    link.up.ended = true;
    link.up.waiting.clear();
  }
  if (!done) {
    const auto take = [&link](absl::string_view bytes) {
      link.meter.TakeFromServer(bytes);
      return true;
    };
    const Moved down =
        Move(link.down, link.server.descriptor, link.client.descriptor, take, piece_);
    done = down != Moved::kAll || (link.down.ended && !link.down.stalled());
  }
  held_ += link.meter.held_bytes() - before;
  if (up == Moved::kRefused) {
    CutOffLink(link, CutOff::kHeaders);
  } else if (done || !Watch(link)) {
    Close(link);
  }
  CloseGreedy();
}

// Closes connections until the total is within the limit. Chooses the largest connection of the
// client that holds most over all its connections, so that other clients lose no calls.
void ConnectionRelay::CloseGreedy() {
  while (held_ > limits_.held_bytes) {
    absl::flat_hash_map<absl::string_view, size_t> of_host;
    for (const Link* link : links_) of_host[link->host] += link->meter.held_bytes();
    CutOffLink(**std::max_element(links_.begin(), links_.end(),
                                  [&](const Link* a, const Link* b) {
                                    const auto greed = [&](const Link& link) {
                                      return std::pair(of_host[link.host], link.meter.held_bytes());
                                    };
                                    return greed(*a) < greed(*b);
                                  }),
               CutOff::kMemory);
  }
}

// Watches each side only for events that can be handled now. A side that must wait for the other is
// not watched, so a blocked connection costs nothing.
bool ConnectionRelay::Watch(Link& link) {
  const auto wanted = [](const Flow& in, const Flow& out) {
    return (in.ended || in.stalled() ? 0U : uint32_t{EPOLLIN}) |
           (out.stalled() ? uint32_t{EPOLLOUT} : 0U);
  };
  return WatchEnd(link.client, wanted(link.up, link.down)) &&
         WatchEnd(link.server, wanted(link.down, link.up));
}

bool ConnectionRelay::WatchEnd(End& end, uint32_t wanted) {
  if (wanted == end.watched) return true;
  const int change = end.watched == 0 ? EPOLL_CTL_ADD : wanted == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_MOD;
  epoll_event event{wanted, {.ptr = &end}};
  end.watched = wanted;
  return epoll_ctl(events_, change, end.descriptor, &event) == 0;
}

// Closes connections whose client does not read the rest after gRPC has closed.
void ConnectionRelay::SweepStalled(steady_clock::time_point now) {
  std::vector<Link*> over;
  for (Link* link : links_) {
    if (!link->down.stalled()) continue;
    pollfd server{link->server.descriptor, 0, 0};
    if (poll(&server, 1, 0) <= 0 || (server.revents & POLLHUP) == 0) continue;
    if (!link->hung_up) link->hung_up = now;
    if (now - *link->hung_up >= kLinger) over.push_back(link);
  }
  for (Link* link : over) Close(*link);
}

// Closes connections on which a call's first message does not come: gRPC would wait for it, and
// keep the part that has come, without a limit.
void ConnectionRelay::SweepSlow(steady_clock::time_point now) {
  std::vector<Link*> slow;
  for (Link* link : links_) {
    if (link->meter.Trickles(now, limits_.message_time, link->up.stalled())) slow.push_back(link);
  }
  for (Link* link : slow) CutOffLink(*link, CutOff::kSlow);
}

void ConnectionRelay::CutOffLink(Link& link, CutOff why) {
  cut_off_.fetch_add(1, std::memory_order_relaxed);
  report_(why, link.name);
  Close(link);
}

void ConnectionRelay::Close(Link& link) {
  link.closed = true;
  held_ -= link.meter.held_bytes();
  close(link.client.descriptor);  // epoll forgets what is closed
  close(link.server.descriptor);
  links_.erase(&link);
  closed_.emplace_back(&link);
}

std::string ClientAddress(const std::string& peer) {
  absl::string_view address = peer;
  if (absl::ConsumePrefix(&address, absl::StrCat("unix-abstract:", kNamePrefix))) {
    address.remove_prefix(std::min(address.find('/') + 1, address.size()));
  }
  return absl::StrReplaceAll(address, {{"%5B", "["}, {"%5D", "]"}});
}

}  // namespace annulus::server
