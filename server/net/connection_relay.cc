#include "server/net/connection_relay.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/base/check.h"
#include "server/base/peer_address.h"
#include "server/net/connection_meter.h"
#include "server/net/relay_flow.h"
#include "server/net/relay_link.h"
#include "server/net/socket_address.h"

namespace annulus::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kSweepEvery{1000};
// Between looks at connections that no event tells about: those whose next call has to wait, and
// all when the relay ends.
constexpr milliseconds kShortWait{10};
constexpr milliseconds kLastWords{500};  // the same for all clients, when the relay ends
// Unsent bytes that the kernel buffers for a client. The default is 4 MiB.
constexpr int kMostUnsentBytes = 128 << 10;

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

}  // namespace

absl::StatusOr<std::unique_ptr<ConnectionRelay>> ConnectionRelay::Start(
    Limits limits, Report report, std::shared_ptr<PeerBook> peers) {
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
      new ConnectionRelay(limits, std::move(report), std::move(peers), events, wake));
}

ConnectionRelay::ConnectionRelay(Limits limits, Report report, std::shared_ptr<PeerBook> peers,
                                 int events, int wake)
    : limits_(limits),
      report_(std::move(report)),
      peers_(std::move(peers)),
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

int ConnectionRelay::Connect(int client, std::unique_ptr<PeerStream> stream) {
  const std::string address = PeerAddress(client);
  const uint64_t number = peers_->Add(address, stream->certificate_names());
  const auto pair = NamedPair(peers_->SocketName(number, address));
  if (!pair) {
    peers_->Remove(number);
    stream.reset();
    close(client);
    return -1;
  }
  // Fails for sockets that are not TCP, which need no limit.
  setsockopt(client, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kMostUnsentBytes, sizeof(kMostUnsentBytes));
  const auto [own, for_grpc] = *pair;
  auto link = std::make_unique<Link>(
      number, address, End{.link = nullptr, .descriptor = client, .stream = std::move(stream)},
      End{.link = nullptr, .descriptor = own, .stream = PlainStream(own)}, for_grpc);
  {
    std::lock_guard lock(mutex_);
    arrived_.push_back(std::move(link));
  }
  Wake();
  return for_grpc;
}

std::optional<int> ConnectionRelay::MakeRoomFor(const std::string& client) {
  RoomAsked asked{AddressOf(client), {}};
  auto closed = asked.closed.get_future();
  {
    std::lock_guard lock(mutex_);
    room_asked_.push_back(std::move(asked));
  }
  Wake();
  return closed.get();
}

void ConnectionRelay::Wake() {
  const uint64_t one = 1;
  const ssize_t written = write(wake_, &one, sizeof(one));
  ANNULUS_CHECK(written == sizeof(one) || errno == EAGAIN) << "cannot wake the relay";
}

void ConnectionRelay::Loop() {
  std::array<epoll_event, 64> ready{};
  std::optional<SteadyTime> end;
  SteadyTime swept = steady_clock::now();
  SteadyTime served_held_back = swept;
  for (;;) {
    const milliseconds wait = end || !held_back_.empty() ? kShortWait : kSweepEvery;
    const int count = epoll_wait(events_, ready.data(), static_cast<int>(ready.size()),
                                 static_cast<int>(wait.count()));
    const auto now = steady_clock::now();
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = ready[static_cast<size_t>(i)];
      const End* const side = static_cast<const End*>(event.data.ptr);
      if (side != nullptr) {
        Serve(*side, event.events);
      } else if (TakeArrived() && !end) {
        end = now + kLastWords;
      }
    }
    MakeRoom();
    CutOffCondemned();
    if (now - served_held_back >= kShortWait) {
      served_held_back = now;
      ServeHeldBack();
    }
    if (now - swept >= kSweepEvery) {
      swept = now;
      Sweep(now);
    }
    closed_.clear();
    if (end && (links_.empty() || now >= *end)) break;
  }
  while (!links_.empty()) Close(*links_.begin()->second);
  closed_.clear();
}

void ConnectionRelay::Sweep(SteadyTime now) {
  SweepUnread(now);
  SweepSlow(now);
  SweepLeaving();
  ForgetHosts(now);
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
  const auto now = steady_clock::now();
  for (std::unique_ptr<Link>& link : arrived) {
    Link& one = *link;
    one.host = &HostOf(AddressOf(one.name));
    one.used = now;
    ++one.host->connections;
    one.meter.emplace(limits_.header_block_bytes, one.host->shared);
    links_.emplace(one.number, std::move(link));
    if (!Watch(one, now)) Close(one);
  }
  return stopping;
}

// Serves connections whose next call had to wait. They draw from the same allowances, so another
// one is first each time.
void ConnectionRelay::ServeHeldBack() {
  std::vector<uint64_t> numbers;
  numbers.swap(held_back_);
  if (numbers.empty()) return;
  std::rotate(numbers.begin(),
              numbers.begin() + static_cast<std::ptrdiff_t>(turn_++ % numbers.size()),
              numbers.end());
  for (const uint64_t number : numbers) {
    const auto found = links_.find(number);
    if (found == links_.end()) continue;
    found->second->held_back = false;
    Serve(found->second->client, EPOLLIN);
  }
}

void ConnectionRelay::Serve(const End& end, uint32_t events) {
  Link& link = *end.link;
  if (link.closed) return;
  const auto now = steady_clock::now();
  const bool at_client = &end == &link.client;
  bool refused = false;
  bool good = true;
  // Each event concerns one read, or one write that had to wait.
  if (at_client ? link.down.stalled() : (events & ~uint32_t{EPOLLOUT}) != 0)
    good = MoveDown(link, now);
  if (good && (at_client || link.up.waits())) good = MoveUp(link, now, refused);
  Count(link);
  if (link.meter->open_calls() > 0) link.used = now;
  if (refused) {
    CutOffLink(link, link.meter->refusal());
  } else if (!good || !Watch(link, now)) {
    Close(link);
  }
  CloseGreedy(*link.host);
}

ConnectionRelay::Host& ConnectionRelay::HostOf(const std::string& name) {
  std::unique_ptr<Host>& host = hosts_[name];
  if (host == nullptr) host = std::make_unique<Host>();
  return *host;
}

void ConnectionRelay::Count(Link& link) {
  const size_t more = link.meter->held_bytes() - link.counted;
  held_.open += more;
  link.host->all.open += more;
  link.counted += more;
  link.host->calls.open += link.meter->call_bytes() - link.counted_calls;
  link.counted_calls = link.meter->call_bytes();
}

// Moves what the client sent. Returns false if the connection must be closed.
bool ConnectionRelay::MoveUp(Link& link, SteadyTime now, bool& refused) {
  RelayFlow::Moved moved = RelayFlow::Moved::kAll;
  if (link.Stalled(now)) {
    if (!link.up.Flush(*link.server.stream)) moved = RelayFlow::Moved::kSinkFailed;
  } else {
    moved = link.up.Move(
        *link.client.stream, *link.server.stream,
        [&](absl::string_view bytes) { return link.meter->TakeFromClient(bytes, now); }, piece_);
    if (link.up.held() && !std::exchange(link.held_back, true)) held_back_.push_back(link.number);
  }
  // If gRPC has closed, it may have bytes left for the client.
  if (moved == RelayFlow::Moved::kSinkFailed) link.up.End();
  refused = moved == RelayFlow::Moved::kRefused;
  return !refused;
}

// Moves what gRPC sent. Returns false if the connection must be closed.
bool ConnectionRelay::MoveDown(Link& link, SteadyTime now) {
  const bool was_stalled = link.down.stalled();
  const uint64_t before = link.down.moved();
  const auto look = [&link](absl::string_view bytes) {
    link.meter->TakeFromServer(bytes);
    return std::optional<size_t>(bytes.size());
  };
  const RelayFlow::Moved moved =
      link.down.Move(*link.server.stream, *link.client.stream, look, piece_);
  // No handler has seen the calls that gRPC refuses itself. Those that one has seen are known.
  for (int i = link.meter->TakeResets(); i > 0; --i) peers_->CountRefused(link.number, now);
  if (!was_stalled || link.down.moved() != before) link.took = now;
  if (!was_stalled) {
    link.unread_since = now;
    link.moved_then = link.down.moved();
  }
  return moved == RelayFlow::Moved::kAll && !(link.down.ended() && !link.down.stalled());
}

// Watches each side only for events that can be handled now. A side that must wait for the other is
// not watched, so a blocked connection costs nothing.
bool ConnectionRelay::Watch(Link& link, SteadyTime now) {
  const uint32_t from_client = link.Stalled(now) ? 0 : link.up.SourceEvents();
  return WatchEnd(link.client, from_client | link.down.SinkEvents()) &&
         WatchEnd(link.server, link.down.SourceEvents() | link.up.SinkEvents());
}

bool ConnectionRelay::WatchEnd(End& end, uint32_t wanted) {
  if (wanted == end.watched) return true;
  const int change = end.watched == 0 ? EPOLL_CTL_ADD : wanted == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_MOD;
  epoll_event event{wanted, {.ptr = &end}};
  end.watched = wanted;
  return epoll_ctl(events_, change, end.descriptor, &event) == 0;
}

void ConnectionRelay::CutOffLink(Link& link, CutOff why) {
  cut_off_.fetch_add(1, std::memory_order_relaxed);
  report_(why, link.name);
  Close(link);
}

void ConnectionRelay::Close(Link& link) {
  link.closed = true;
  leaving_.push_back({link.number, link.grpc_socket, link.grpc_inode, link.host, link.counted,
                      link.counted_calls});
  const auto leave = [](Kept& kept, size_t bytes) {
    kept.open -= bytes;
    kept.leaving += bytes;
  };
  leave(held_, link.counted);
  leave(link.host->all, link.counted);
  leave(link.host->calls, link.counted_calls);
  close(link.client.descriptor);  // epoll forgets what is closed
  close(link.server.descriptor);
  auto node = links_.extract(link.number);
  closed_.push_back(std::move(node.mapped()));
}

}  // namespace annulus::server
