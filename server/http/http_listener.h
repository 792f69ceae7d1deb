#ifndef ANNULUS_SERVER_HTTP_HTTP_LISTENER_H_
#define ANNULUS_SERVER_HTTP_HTTP_LISTENER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/api.h"
#include "server/base/memory_budget.h"
#include "server/http/http_connection.h"
#include "server/http/http_exchange.h"
#include "server/net/connection_acceptor.h"
#include "server/net/peer_stream.h"

namespace annulus::server {

// Serves HTTP/1.1 on an address, plain or with TLS. One thread owns all connections (epoll) and
// never waits for a client; the work for requests is done elsewhere (HttpService). If there are too
// many connections, closes those whose clients have left, or else one that waits for a request, so
// that new clients are served: of the client address with most connections, the one that waits for
// longest. If there is none, the newest one whose body has yet to come, of the address with most
// connections, if it has more than the new one's. Else the new one, or the oldest
// (Options::any_makes_room).
class HttpListener {
 public:
  struct Options {
    std::string address;  // HOST:PORT
    size_t max_connections;
    // Whether a connection that is being answered may be closed to make room for a new one.
    bool any_makes_room = false;
    HttpLimits limits;
  };

  // With TLS if `tls` is not null. Bodies hold memory of `budget`. UNAVAILABLE if the address is in
  // use or not this machine's. `service` must outlive the listener.
  static absl::StatusOr<std::unique_ptr<HttpListener>> Start(Options options, HttpService& service,
                                                             std::shared_ptr<MemoryBudget> budget,
                                                             std::unique_ptr<TlsStreams> tls);
  // Closes all connections at once, and tells their exchanges so. Replies that come later go
  // nowhere.
  ~HttpListener();
  HttpListener(const HttpListener&) = delete;
  HttpListener& operator=(const HttpListener&) = delete;

  int port() const { return acceptor_->port(); }

 private:
  class Mailbox;
  class Reply;

  // Clients by address, with how many connections each has.
  using Hosts = std::unordered_map<std::string, int>;
  struct Entry {
    int descriptor;
    Hosts::value_type* host;  // the client that it counts for
    std::unique_ptr<HttpConnection> connection;
    uint32_t watched;      // events of epoll
    SteadyTime deadline;   // its place in deadlines_
    bool goes_on = false;  // in again_
  };
  using Entries = std::map<uint64_t, Entry>;  // in order of arrival
  using Next = HttpConnection::Next;

  HttpListener(Options options, HttpService& service, std::shared_ptr<MemoryBudget> budget,
               std::unique_ptr<TlsStreams> tls, std::unique_ptr<ConnectionAcceptor> acceptor);

  // These run on the listener's thread.
  void Loop();
  int WaitMs() const;
  void WelcomeSome(SteadyTime now);
  void Welcome(int descriptor, SteadyTime now);
  bool MakeRoom(const std::string& host);
  void CloseThoseThatLeft();
  Entries::iterator LongestIdleOfMost();
  Entries::iterator NewestBodyOfMost(const std::string& host);
  void OnEvents(uint64_t id, uint32_t events, SteadyTime now);
  void GoOn(SteadyTime now);
  void CheckDeadlines(SteadyTime now);
  // Does what `next` says, and watches for what the connection waits for.
  void Settle(Entries::iterator entry, Next next);
  void Close(Entries::iterator entry);

  const Options options_;
  HttpService& service_;
  const std::shared_ptr<MemoryBudget> budget_;
  const std::unique_ptr<TlsStreams> tls_;  // null: no TLS
  const std::shared_ptr<Mailbox> mailbox_;
  int epoll_;

  // Used by the thread only.
  uint64_t next_id_ = 1;
  Hosts hosts_;
  Entries entries_;
  std::set<std::pair<SteadyTime, uint64_t>> deadlines_;
  std::vector<uint64_t> again_;  // connections that can go on without an event
  std::deque<int> arriving_;     // connections that wait for their turn
  int handshakes_left_ = 0;      // steps of TLS handshakes that this turn may take
  bool left_closed_ = false;     // CloseThoseThatLeft ran in this turn of the loop

  std::thread thread_;
  std::unique_ptr<ConnectionAcceptor> acceptor_;  // last member: it passes connections to the rest
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_HTTP_LISTENER_H_
