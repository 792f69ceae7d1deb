#include "server/http/http_listener.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <iterator>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "server/base/peer_address.h"
#include "server/net/socket_address.h"

namespace annulus::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int kEvents = 64;
// New connections, and steps of TLS handshakes, before the others have their turn.
constexpr int kArrivals = 16;
constexpr int kHandshakes = 4;
constexpr size_t kMostArriving = 1024;  // that wait for their turn
constexpr uint64_t kWakeId = 0;         // of the mailbox among the connections

bool WatchFor(int epoll, int operation, int descriptor, uint64_t id, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  return epoll_ctl(epoll, operation, descriptor, &event) == 0;
}

}  // namespace

// What other threads tell the listener's thread. Shared with the replies, which may outlive the
// listener. Thread-safe.
class HttpListener::Mailbox {
 public:
  struct Sent {
    uint64_t connection;
    uint64_t request;
    std::string bytes;
    HttpReply::End end;
  };
  struct Mail {
    std::vector<int> arrived;
    std::vector<Sent> sent;
    bool stop = false;
  };

  Mailbox() : wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~Mailbox() {
    for (const int connection : mail_.arrived) close(connection);
    if (wake_ >= 0) close(wake_);
  }
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  int wake() const { return wake_; }

  void Arrive(int connection) {
    std::lock_guard lock(mutex_);
    mail_.arrived.push_back(connection);
    Ring();
  }
  void Send(Sent sent) {
    std::lock_guard lock(mutex_);
    if (mail_.stop) return;
    mail_.sent.push_back(std::move(sent));
    Ring();
  }
  void Stop() {
    std::lock_guard lock(mutex_);
    mail_.stop = true;
    Ring();
  }
  // Takes all but `stop`, which stays set.
  Mail Take() {
    std::lock_guard lock(mutex_);
    if (rung_) {
      uint64_t rings;
      [[maybe_unused]] const ssize_t size = read(wake_, &rings, sizeof(rings));
      rung_ = false;
    }
    Mail taken = std::move(mail_);
    mail_ = Mail{{}, {}, taken.stop};
    return taken;
  }

 private:
  void Ring() {
    if (std::exchange(rung_, true)) return;
    const uint64_t one = 1;
    ANNULUS_CHECK(write(wake_, &one, sizeof(one)) == sizeof(one)) << "cannot wake the listener";
  }

  const int wake_;  // eventfd
  std::mutex mutex_;
  Mail mail_;
  bool rung_ = false;
};

class HttpListener::Reply final : public HttpReply {
 public:
  Reply(std::shared_ptr<Mailbox> mailbox, uint64_t connection, uint64_t request)
      : mailbox_(std::move(mailbox)), connection_(connection), request_(request) {}
  void Send(std::string bytes, End end) override {
    mailbox_->Send({connection_, request_, std::move(bytes), end});
  }

 private:
  const std::shared_ptr<Mailbox> mailbox_;
  const uint64_t connection_;
  const uint64_t request_;
};

absl::StatusOr<std::unique_ptr<HttpListener>> HttpListener::Start(
    Options options, HttpService& service, std::shared_ptr<MemoryBudget> budget,
    std::unique_ptr<TlsStreams> tls) {
  auto acceptor = ConnectionAcceptor::Listen(options.address);
  if (!acceptor.ok()) return acceptor.status();
  std::unique_ptr<HttpListener> listener(new HttpListener(
      std::move(options), service, std::move(budget), std::move(tls), *std::move(acceptor)));
  const int wake = listener->mailbox_->wake();
  if (listener->epoll_ < 0 || wake < 0 ||
      !WatchFor(listener->epoll_, EPOLL_CTL_ADD, wake, kWakeId, EPOLLIN)) {
    return absl::UnavailableError(absl::StrCat(
        listener->options_.address,
        ": no file descriptor is left, or no more can be watched; raise their limit (ulimit -n)"));
  }
  HttpListener* const self = listener.get();
  self->thread_ = std::thread([self] { self->Loop(); });
  // No limit here: MakeRoom limits the number of connections.
  self->acceptor_->Start(INT_MAX, [self](int connection) { self->mailbox_->Arrive(connection); });
  return listener;
}

HttpListener::HttpListener(Options options, HttpService& service,
                           std::shared_ptr<MemoryBudget> budget, std::unique_ptr<TlsStreams> tls,
                           std::unique_ptr<ConnectionAcceptor> acceptor)
    : options_(std::move(options)),
      service_(service),
      budget_(std::move(budget)),
      tls_(std::move(tls)),
      mailbox_(std::make_shared<Mailbox>()),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      acceptor_(std::move(acceptor)) {}

HttpListener::~HttpListener() {
  acceptor_.reset();
  if (thread_.joinable()) {
    mailbox_->Stop();
    thread_.join();
  }
  if (epoll_ >= 0) close(epoll_);
}

void HttpListener::Loop() {
  std::array<epoll_event, kEvents> events;
  for (;;) {
    const int count = epoll_wait(epoll_, events.data(), kEvents, WaitMs());
    const SteadyTime now = steady_clock::now();
    handshakes_left_ = kHandshakes;
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<size_t>(i)];
      if (event.data.u64 != kWakeId) OnEvents(event.data.u64, event.events, now);
    }
    Mailbox::Mail mail = mailbox_->Take();
    arriving_.insert(arriving_.end(), mail.arrived.begin(), mail.arrived.end());
    WelcomeSome(now);
    for (Mailbox::Sent& sent : mail.sent) {
      const auto entry = entries_.find(sent.connection);
      if (entry == entries_.end()) continue;
      Settle(entry,
             entry->second.connection->Take(sent.request, std::move(sent.bytes), sent.end, now));
    }
    if (mail.stop) break;
    GoOn(now);
    service_.OnTurn();
    CheckDeadlines(steady_clock::now());
  }
  for (const int descriptor : std::exchange(arriving_, {})) close(descriptor);
  while (!entries_.empty()) Close(entries_.begin());
}

// Milliseconds until the next deadline; -1: none.
int HttpListener::WaitMs() const {
  if (!again_.empty() || !arriving_.empty()) return 0;
  if (deadlines_.empty()) return -1;
  const auto left =
      std::chrono::ceil<milliseconds>(deadlines_.begin()->first - steady_clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, INT_MAX));
}

// Only some of those that have arrived, or a flood of them would hold up the others' requests.
void HttpListener::WelcomeSome(SteadyTime now) {
  left_closed_ = false;
  for (int i = 0; i < kArrivals && !arriving_.empty(); ++i) {
    const int descriptor = arriving_.front();
    arriving_.pop_front();
    Welcome(descriptor, now);
  }
  while (arriving_.size() > kMostArriving) {
    close(arriving_.back());
    arriving_.pop_back();
  }
}

void HttpListener::Welcome(int descriptor, SteadyTime now) {
  auto stream = tls_ != nullptr ? tls_->Begin(descriptor) : PlainStream(descriptor);
  const std::string peer = PeerAddress(descriptor);
  const std::string host = AddressOf(peer);
  const uint64_t id = next_id_++;
  if (stream == nullptr || !MakeRoom(host) ||
      !WatchFor(epoll_, EPOLL_CTL_ADD, descriptor, id, EPOLLIN)) {
    stream.reset();
    close(descriptor);
    return;
  }
  auto replies = [mailbox = mailbox_, id](uint64_t request) -> std::shared_ptr<HttpReply> {
    return std::make_shared<Reply>(mailbox, id, request);
  };
  auto connection = std::make_unique<HttpConnection>(std::move(stream), peer, options_.limits,
                                                     service_, budget_, std::move(replies), now);
  const SteadyTime deadline = connection->deadline();
  deadlines_.emplace(deadline, id);
  Hosts::value_type& client = *hosts_.try_emplace(host).first;
  ++client.second;
  const auto entry =
      entries_.emplace(id, Entry{descriptor, &client, std::move(connection), EPOLLIN, deadline})
          .first;
  // The request may have come already; read it now, before MakeRoom could close the connection.
  if (tls_ == nullptr) Settle(entry, entry->second.connection->Advance(now));
}

bool HttpListener::MakeRoom(const std::string& host) {
  if (entries_.size() < options_.max_connections) return true;
  if (!std::exchange(left_closed_, true)) CloseThoseThatLeft();
  if (entries_.size() < options_.max_connections) return true;
  auto waiting = LongestIdleOfMost();
  if (waiting == entries_.end()) {
    waiting = options_.any_makes_room ? entries_.begin() : NewestBodyOfMost(host);
  }
  if (waiting == entries_.end()) return false;
  Close(waiting);
  return true;
}

// Their ends may not have come up as events yet. Asks the system about each connection, so it must
// not run for each that arrives.
void HttpListener::CloseThoseThatLeft() {
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const auto next = std::next(entry);
    if (entry->second.connection->client_has_left()) Close(entry);
    entry = next;
  }
}

// Not the oldest connection, which may be a client's that asks all the time.
HttpListener::Entries::iterator HttpListener::LongestIdleOfMost() {
  auto longest = entries_.end();
  const auto rank = [](const Entry& one) {
    return std::pair(-one.host->second, one.connection->idle_since());
  };
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (!entry->second.connection->waits_for_request()) continue;
    if (longest == entries_.end() || rank(entry->second) < rank(longest->second)) longest = entry;
  }
  return longest;
}

HttpListener::Entries::iterator HttpListener::NewestBodyOfMost(const std::string& host) {
  int most = 0;
  for (const auto& [name, count] : hosts_) most = std::max(most, count);
  const auto own = hosts_.find(host);
  if (most <= (own == hosts_.end() ? 0 : own->second) + 1) return entries_.end();
  auto newest = entries_.end();
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    const Entry& one = entry->second;
    if (one.connection->reads_body() && one.host->second == most) newest = entry;
  }
  return newest;
}

void HttpListener::OnEvents(uint64_t id, uint32_t events, SteadyTime now) {
  const auto entry = entries_.find(id);
  if (entry == entries_.end()) return;
  HttpConnection& connection = *entry->second.connection;
  Next next = Next::kAgain;
  const bool hung_up = (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
  if (entry->second.goes_on && !hung_up) return;  // one turn for each
  // Epoll tells of it again.
  if (!hung_up && connection.in_handshake() && handshakes_left_-- <= 0) return;
  if (hung_up) next = connection.OnHangUp();
  Settle(entry, next == Next::kClose ? next : connection.Advance(now));
}

void HttpListener::GoOn(SteadyTime now) {
  for (const uint64_t id : std::exchange(again_, {})) {
    const auto entry = entries_.find(id);
    if (entry == entries_.end()) continue;
    entry->second.goes_on = false;
    Settle(entry, entry->second.connection->Advance(now));
  }
}

void HttpListener::CheckDeadlines(SteadyTime now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const uint64_t id = deadlines_.begin()->second;
    const auto entry = entries_.find(id);
    deadlines_.erase(deadlines_.begin());
    entry->second.deadline = SteadyTime::max();
    Settle(entry, entry->second.connection->OnDeadline(now));
  }
}

void HttpListener::Settle(Entries::iterator entry, Next next) {
  if (next == Next::kClose) return Close(entry);
  const uint64_t id = entry->first;
  Entry& held = entry->second;
  // Once, or a client that sends without end would have more and more turns.
  if (next == Next::kAgain && !std::exchange(held.goes_on, true)) again_.push_back(id);
  const uint32_t events = held.connection->events();
  if (events != std::exchange(held.watched, events)) {
    WatchFor(epoll_, EPOLL_CTL_MOD, held.descriptor, id, events);
  }
  const SteadyTime deadline = held.connection->deadline();
  if (deadline == held.deadline) return;
  if (held.deadline != SteadyTime::max()) deadlines_.erase({held.deadline, id});
  if (deadline != SteadyTime::max()) deadlines_.emplace(deadline, id);
  held.deadline = deadline;
}

void HttpListener::Close(Entries::iterator entry) {
  if (entry->second.deadline != SteadyTime::max()) {
    deadlines_.erase({entry->second.deadline, entry->first});
  }
  const int descriptor = entry->second.descriptor;
  Hosts::value_type& host = *entry->second.host;
  entries_.erase(entry);
  if (--host.second == 0) hosts_.erase(hosts_.find(host.first));
  close(descriptor);  // epoll forgets it
}

}  // namespace annulus::server
