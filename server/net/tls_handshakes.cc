#include "server/net/tls_handshakes.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"

namespace annulus::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using Outcome = PeerStream::Outcome;

// Handshakes between looks at new connections and deadlines.
constexpr int kHandshakesAtATime = 16;

}  // namespace

absl::StatusOr<std::unique_ptr<TlsHandshakes>> TlsHandshakes::Start(
    std::unique_ptr<TlsStreams> streams, milliseconds limit, Done done) {
  const int events = epoll_create1(EPOLL_CLOEXEC);
  const int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  epoll_event waking{EPOLLIN, {.fd = wake}};
  if (events < 0 || wake < 0 || epoll_ctl(events, EPOLL_CTL_ADD, wake, &waking) != 0) {
    const std::string cause = std::strerror(errno);
    if (events >= 0) close(events);
    if (wake >= 0) close(wake);
    return absl::UnavailableError(absl::StrCat("cannot watch TLS handshakes: ", cause));
  }
  return std::unique_ptr<TlsHandshakes>(
      new TlsHandshakes(std::move(streams), limit, std::move(done), events, wake));
}

TlsHandshakes::TlsHandshakes(std::unique_ptr<TlsStreams> streams, milliseconds limit, Done done,
                             int events, int wake)
    : streams_(std::move(streams)),
      limit_(limit),
      done_(std::move(done)),
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
  for (const int client : arrived) {
    std::unique_ptr<PeerStream> stream = streams_->Begin(client);
    if (stream == nullptr) {
      close(client);
      continue;
    }
    const Place place = connections_.insert(
        connections_.end(), {client, std::move(stream), steady_clock::now() + limit_});
    by_client_[client] = place;
    Continue(place);
  }
  return true;
}

void TlsHandshakes::Continue(Place place) {
  const Outcome outcome = place->stream->Handshake();
  if (outcome == Outcome::kEnded) return Drop(place);
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
