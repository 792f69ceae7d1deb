#include "server/net/tls_handshakes.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/base/check.h"
#include "server/base/peer_address.h"
#include "server/net/socket_address.h"

namespace annulus::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using Outcome = PeerStream::Outcome;

// Handshakes, of connections that are known and of new ones, before the others have their turn.
constexpr int kHandshakesAtATime = 16;

}  // namespace

absl::StatusOr<std::unique_ptr<TlsHandshakes>> TlsHandshakes::Start(
    std::unique_ptr<TlsStreams> streams, const Limits& limits, Done done, Failed failed) {
  const int events = epoll_create1(EPOLL_CLOEXEC);
  const int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  epoll_event waking{EPOLLIN, {.fd = wake}};
  if (events < 0 || wake < 0 || epoll_ctl(events, EPOLL_CTL_ADD, wake, &waking) != 0) {
    const std::string cause = std::strerror(errno);
    if (events >= 0) close(events);
    if (wake >= 0) close(wake);
    return absl::UnavailableError(absl::StrCat("cannot watch TLS handshakes: ", cause));
  }
  return std::unique_ptr<TlsHandshakes>(new TlsHandshakes(
      std::move(streams), limits, std::move(done), std::move(failed), events, wake));
}

TlsHandshakes::TlsHandshakes(std::unique_ptr<TlsStreams> streams, const Limits& limits, Done done,
                             Failed failed, int events, int wake)
    : streams_(std::move(streams)),
      limits_(limits),
      done_(std::move(done)),
      failed_(std::move(failed)),
      events_(events),
      wake_(wake) {
  thread_ = std::thread([this] { Loop(); });
}

TlsHandshakes::~TlsHandshakes() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  Wake();
  thread_.join();
  while (!connections_.empty()) Drop(connections_.begin());
  for (const Arrived& arrived : arriving_) close(arrived.client);
  for (const int client : arrived_) close(client);
  close(wake_);
  close(events_);
}

void TlsHandshakes::Begin(int client) {
  {
    std::lock_guard lock(mutex_);
    arrived_.push_back(client);
  }
  Wake();
}

void TlsHandshakes::Wake() {
  const uint64_t one = 1;
  const ssize_t written = write(wake_, &one, sizeof(one));
  ANNULUS_CHECK(written == sizeof(one) || errno == EAGAIN) << "cannot wake the TLS handshakes";
}

void TlsHandshakes::Loop() {
  std::array<epoll_event, kHandshakesAtATime> ready{};
  for (;;) {
    const int count = epoll_wait(events_, ready.data(), static_cast<int>(ready.size()), WaitMs());
    for (int i = 0; i < count; ++i) {
      const auto found = by_client_.find(ready[static_cast<size_t>(i)].data.fd);
      if (found != by_client_.end()) Continue(found->second);
    }
    if (!Welcome()) return;
    const auto now = steady_clock::now();
    while (!connections_.empty() && connections_.front().deadline <= now) {
      Drop(connections_.begin());
    }
  }
}

// Milliseconds until the next deadline; -1: none.
int TlsHandshakes::WaitMs() const {
  if (!arriving_.empty()) return 0;
  if (connections_.empty()) return -1;
  const auto left =
      std::chrono::ceil<milliseconds>(connections_.front().deadline - steady_clock::now());
  return static_cast<int>(std::max<int64_t>(left.count(), 0));
}

bool TlsHandshakes::Welcome() {
  uint64_t count = 0;
  while (read(wake_, &count, sizeof(count)) > 0) {
  }
  std::vector<int> arrived;
  {
    std::lock_guard lock(mutex_);
    if (stopping_) return false;
    arrived.swap(arrived_);
  }
  for (const int client : arrived) arriving_.push_back({client, AddressOf(PeerAddress(client))});
  for (int i = 0; i < kHandshakesAtATime && !arriving_.empty(); ++i) {
    auto [client, host] = std::move(arriving_.front());
    arriving_.pop_front();
    std::unique_ptr<PeerStream> stream = streams_->Begin(client);
    if (stream == nullptr) {
      close(client);
      continue;
    }
    if (connections_.size() >= limits_.connections) MakeRoom();
    const Place place = connections_.insert(
        connections_.end(),
        {client, std::move(stream), steady_clock::now() + limits_.time, std::move(host)});
    by_client_[client] = place;
    Continue(place);
  }
  if (arriving_.size() > limits_.connections) CloseSomeArriving();
  return true;
}

void TlsHandshakes::CloseSomeArriving() {
  const auto close_if = [this](const auto& condition) {
    std::erase_if(arriving_, [&](const Arrived& arrived) {
      if (!condition(arrived)) return false;
      close(arrived.client);
      return true;
    });
  };
  close_if([](const Arrived& arrived) { return PeerHasLeft(arrived.client); });
  absl::flat_hash_map<std::string, size_t> counts;
  for (const Arrived& arrived : arriving_) ++counts[arrived.host];
  // As many for each address that they all fit.
  const auto all = [&](size_t share) {
    size_t sum = 0;
    for (const auto& [host, has] : counts) sum += std::min(has, share);
    return sum;
  };
  size_t share = 1;
  for (size_t step = std::bit_floor(limits_.connections); step > 0; step /= 2) {
    if (all(share + step) <= limits_.connections) share += step;
  }
  counts.clear();
  size_t kept = 0;
  close_if([&](const Arrived& arrived) {
    const bool fits = ++counts[arrived.host] <= share && kept < limits_.connections;
    if (fits) ++kept;
    return !fits;
  });
}

// Drops the oldest connection of the client that has most.
void TlsHandshakes::MakeRoom() {
  absl::flat_hash_map<absl::string_view, int> counts;
  absl::string_view most;
  int largest = 0;
  for (const Connection& connection : connections_) {
    const int count = ++counts[connection.host];
    if (count <= largest) continue;
    largest = count;
    most = connection.host;
  }
  const auto oldest = std::find_if(connections_.begin(), connections_.end(),
                                   [&](const auto& one) { return one.host == most; });
  if (oldest != connections_.end()) Drop(oldest);
}

void TlsHandshakes::Continue(Place place) {
  const Outcome outcome = place->stream->Handshake();
  if (outcome == Outcome::kEnded) {
    const std::string why = place->stream->failure();
    if (failed_ != nullptr && !why.empty()) failed_(place->host, why);
    return Drop(place);
  }
  if (outcome == Outcome::kMoved) {
    if (place->watched != 0) epoll_ctl(events_, EPOLL_CTL_DEL, place->client, nullptr);
    Connection connection = std::move(*place);
    by_client_.erase(connection.client);
    connections_.erase(place);
    done_(connection.client, std::move(connection.stream));
    return;
  }
  const uint32_t wanted = outcome == Outcome::kWaitToWrite ? EPOLLOUT : EPOLLIN;
  if (wanted == place->watched) return;
  epoll_event event{wanted, {.fd = place->client}};
  const int change = place->watched == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  place->watched = wanted;
  if (epoll_ctl(events_, change, place->client, &event) != 0) Drop(place);
}

void TlsHandshakes::Drop(Place place) {
  by_client_.erase(place->client);
  place->stream.reset();
  close(place->client);  // epoll forgets it
  connections_.erase(place);
}

}  // namespace annulus::server
