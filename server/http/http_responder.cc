#include "server/http/http_responder.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"

namespace annulus::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using Outcome = PeerStream::Outcome;

constexpr int kEvents = 64;
constexpr milliseconds kTimeToPart{1000};  // how long to wait for the peer to close

void Ring(int wake) {
  const uint64_t one = 1;
  ANNULUS_CHECK(write(wake, &one, sizeof(one)) == sizeof(one)) << "cannot wake the responder";
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpResponder>> HttpResponder::Start(
    const std::string& address, Routes routes, std::unique_ptr<TlsStreams> tls) {
  auto acceptor = ConnectionAcceptor::Listen(address);
  if (!acceptor.ok()) return acceptor.status();
  std::unique_ptr<HttpResponder> responder(
      new HttpResponder(*std::move(acceptor), std::move(routes), std::move(tls)));
  if (responder->epoll_ < 0 || responder->wake_ < 0) {
    return absl::UnavailableError(
        absl::StrCat(address, ": no file descriptor is left; raise their limit (ulimit -n)"));
  }
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = responder->wake_;
  if (epoll_ctl(responder->epoll_, EPOLL_CTL_ADD, responder->wake_, &event) != 0) {
    return absl::UnavailableError(absl::StrCat(
        address, ": no more descriptors can be watched; raise fs.epoll.max_user_watches"));
  }
  HttpResponder* const self = responder.get();
  self->thread_ = std::thread([self] { self->Loop(); });
  // No limit here: MakeRoom limits the number of connections.
  self->acceptor_->Start(INT_MAX, [self](int connection) { self->Arrive(connection); });
  return responder;
}

HttpResponder::HttpResponder(std::unique_ptr<ConnectionAcceptor> acceptor, Routes routes,
                             std::unique_ptr<TlsStreams> tls)
    : routes_(std::move(routes)),
      tls_(std::move(tls)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      acceptor_(std::move(acceptor)) {}

HttpResponder::~HttpResponder() {
  acceptor_.reset();
  if (thread_.joinable()) {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    Ring(wake_);
    thread_.join();
  }
  for (const int connection : arrived_) close(connection);
  for (const Connection& connection : connections_) close(connection.descriptor);
  if (wake_ >= 0) close(wake_);
  if (epoll_ >= 0) close(epoll_);
}

void HttpResponder::Arrive(int connection) {
  {
    std::lock_guard lock(mutex_);
    arrived_.push_back(connection);
  }
  Ring(wake_);
}

void HttpResponder::Loop() {
  std::array<epoll_event, kEvents> events;
  for (;;) {
    const int count = epoll_wait(epoll_, events.data(), kEvents, WaitMs());
    for (int i = 0; i < count; ++i) {
      const int descriptor = events[static_cast<size_t>(i)].data.fd;
      if (descriptor == wake_) continue;
      const auto found = by_descriptor_.find(descriptor);
      if (found != by_descriptor_.end() && !Serve(*found->second)) Close(found->second);
    }
    {
      std::lock_guard lock(mutex_);
      if (stopping_) return;
    }
    Welcome();
    AnswerRound();
    CloseLate(steady_clock::now());
  }
}

// Milliseconds until the next deadline; -1: none.
int HttpResponder::WaitMs() const {
  if (connections_.empty()) return -1;
  const auto next =
      std::min_element(connections_.begin(), connections_.end(),
                       [](const auto& a, const auto& b) { return a.deadline < b.deadline; });
  const auto left = std::chrono::ceil<milliseconds>(next->deadline - steady_clock::now());
  return static_cast<int>(std::max<int64_t>(left.count(), 0));
}

void HttpResponder::Welcome() {
  uint64_t rings;
  [[maybe_unused]] const ssize_t size = read(wake_, &rings, sizeof(rings));
  std::vector<int> arrived;
  {
    std::lock_guard lock(mutex_);
    arrived.swap(arrived_);
  }
  for (const int descriptor : arrived) {
    MakeRoom();
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = descriptor;
    auto stream = tls_ != nullptr ? tls_->Begin(descriptor) : PlainStream(descriptor);
    if (stream == nullptr || epoll_ctl(epoll_, EPOLL_CTL_ADD, descriptor, &event) != 0) {
      close(descriptor);
      continue;
    }
    const Place place =
        connections_.insert(connections_.end(), {.descriptor = descriptor,
                                                 .stream = std::move(stream),
                                                 .deadline = steady_clock::now() + kTimeToAsk,
                                                 .watched = EPOLLIN});
    by_descriptor_[descriptor] = place;
    // The request may have come already; serve it now, before MakeRoom could close the connection.
    if (!Serve(*place)) Close(place);
  }
}

void HttpResponder::MakeRoom() {
  if (connections_.size() < kMostConnections) return;
  const auto asking = std::find_if(connections_.begin(), connections_.end(),
                                   [](const auto& c) { return c.phase == Phase::kAsking; });
  Close(asking == connections_.end() ? connections_.begin() : asking);
}

bool HttpResponder::Serve(Connection& connection) {
  if (connection.phase == Phase::kAsked) return true;
  if (connection.phase != Phase::kAnswering) {
    if (!Read(connection)) return false;
    if (connection.phase != Phase::kAnswering) return true;
  }
  return Send(connection);
}

bool HttpResponder::Read(Connection& connection) {
  std::array<char, 4096> buffer;
  for (;;) {
    const auto [outcome, size] = connection.stream->Read(buffer.data(), buffer.size());
    if (outcome == Outcome::kEnded) return false;
    if (outcome != Outcome::kMoved) {
      Watch(connection, outcome);
      return true;
    }
    if (connection.phase == Phase::kParting) return true;  // discard anything after the request
    connection.received.append(buffer.data(), size);
    const size_t end = EndOfHead(connection.received);
    if (end != absl::string_view::npos && end <= kMostHeadBytes) {
      TakeHead(connection, end);
      return true;
    }
    if (connection.received.size() > kMostHeadBytes) {
      Answer(connection, {.status = 431,
                          .body = absl::StrCat("a request's head has at most ", kMostHeadBytes,
                                               " bytes here\n")});
      return true;
    }
  }
}

// Answers a bad request. A good one waits until all that have come are read: one page of metrics
// takes milliseconds, and 128 would delay others if each scraper had its own.
void HttpResponder::TakeHead(Connection& connection, size_t head_bytes) {
  auto request = ParseHead(absl::string_view(connection.received).substr(0, head_bytes));
  if (!request.ok()) {
    return Answer(connection, {.status = 400, .body = std::string(request.status().message())});
  }
  const auto route = routes_.find(request->path);
  if (route == routes_.end()) {
    std::string known = "there is nothing here; known are";
    for (const auto& [path, handler] : routes_) absl::StrAppend(&known, " ", path);
    return Answer(connection, {.status = 404, .body = absl::StrCat(known, "\n")});
  }
  const bool head = request->method == "HEAD";
  if (!head && request->method != "GET") {
    return Answer(connection,
                  {.status = 405, .body = "GET and HEAD only\n", .header = "Allow: GET, HEAD"});
  }
  request->certificate_names = connection.stream->certificate_names();
  connection.request = *std::move(request);
  connection.handler = &route->second;
  connection.phase = Phase::kAsked;
  asked_.push_back(connection.descriptor);
}

void HttpResponder::AnswerRound() {
  if (asked_.empty()) return;
  ++round_;
  for (const int descriptor : std::exchange(asked_, {})) {
    const auto found = by_descriptor_.find(descriptor);
    if (found == by_descriptor_.end() || found->second->phase != Phase::kAsked) continue;
    Connection& connection = *found->second;
    connection.request.round = round_;
    const HttpRequest request = std::exchange(connection.request, {});
    Answer(connection, (*connection.handler)(request), request.method != "HEAD");
    if (!Send(connection)) Close(found->second);
  }
}

void HttpResponder::Answer(Connection& connection, const HttpAnswer& answer, bool with_body) {
  connection.answer = Serialize(answer, with_body);
  connection.received = std::string();
  connection.phase = Phase::kAnswering;
  connection.deadline = steady_clock::now() + kTimeToRead;
}

bool HttpResponder::Send(Connection& connection) {
  while (connection.sent < connection.answer.size()) {
    const auto [outcome, size] = connection.stream->Write(
        connection.answer.data() + connection.sent, connection.answer.size() - connection.sent);
    if (outcome == Outcome::kEnded) return false;
    if (outcome != Outcome::kMoved) {
      Watch(connection, outcome);
      return true;
    }
    connection.sent += size;
  }
  // Do not close yet: with unread bytes that would reset the connection, and the peer could lose
  // the answer.
  connection.stream->EndWriting();
  connection.answer = std::string();
  connection.phase = Phase::kParting;
  connection.deadline = steady_clock::now() + kTimeToPart;
  return Read(connection);
}

void HttpResponder::Watch(Connection& connection, Outcome outcome) {
  const uint32_t events = outcome == Outcome::kWaitToWrite ? EPOLLOUT : EPOLLIN;
  if (events == std::exchange(connection.watched, events)) return;
  epoll_event event{};
  event.events = events;
  event.data.fd = connection.descriptor;
  epoll_ctl(epoll_, EPOLL_CTL_MOD, connection.descriptor, &event);
}

HttpResponder::Place HttpResponder::Close(Place place) {
  by_descriptor_.erase(place->descriptor);
  close(place->descriptor);  // epoll forgets it
  return connections_.erase(place);
}

void HttpResponder::CloseLate(Time now) {
  for (Place place = connections_.begin(); place != connections_.end();) {
    place = place->deadline <= now ? Close(place) : std::next(place);
  }
}

}  // namespace annulus::server
