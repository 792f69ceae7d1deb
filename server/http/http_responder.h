#ifndef ANNULUS_SERVER_HTTP_HTTP_RESPONDER_H_
#define ANNULUS_SERVER_HTTP_HTTP_RESPONDER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "server/http/http_message.h"
#include "server/net/connection_acceptor.h"
#include "server/net/peer_stream.h"

namespace annulus::server {

// Answers GET and HEAD over HTTP/1.1, plain or with TLS, for scrapers and probes: one request per
// connection, on one thread that never waits for a client. A client that sends nothing, sends too
// slowly or does not read costs one descriptor for a few seconds. If there are too many
// connections, closes the oldest one that has not sent its request, or else the oldest, so that new
// clients are always served.
class HttpResponder {
 public:
  // Called on the responder's thread; must return quickly.
  using Handler = std::function<HttpAnswer(const HttpRequest&)>;
  using Routes = std::map<std::string, Handler>;  // by path: "/metrics"

  static constexpr size_t kMostConnections = 128;
  static constexpr size_t kMostHeadBytes = 8 << 10;
  // Time that a new connection has for its TLS handshake and request.
  static constexpr std::chrono::milliseconds kTimeToAsk{2000};
  static constexpr std::chrono::milliseconds kTimeToRead{5000};  // time to read the answer

  // Listens on "HOST:PORT", with TLS if `tls` is not null. UNAVAILABLE if the address is in use or
  // not this machine's.
  static absl::StatusOr<std::unique_ptr<HttpResponder>> Start(
      const std::string& address, Routes routes, std::unique_ptr<TlsStreams> tls = nullptr);
  ~HttpResponder();  // closes all connections at once
  HttpResponder(const HttpResponder&) = delete;
  HttpResponder& operator=(const HttpResponder&) = delete;

  int port() const { return acceptor_->port(); }

 private:
  using Time = std::chrono::steady_clock::time_point;
  enum class Phase : uint8_t { kAsking, kAsked, kAnswering, kParting };

  // In order of arrival.
  struct Connection {
    int descriptor;
    std::unique_ptr<PeerStream> stream;
    Time deadline;
    uint32_t watched;  // events of epoll
    Phase phase = Phase::kAsking;
    std::string received = {};
    // While kAsked: a request that waits for the end of the round, and its handler.
    HttpRequest request = {};
    const Handler* handler = nullptr;
    std::string answer = {};
    size_t sent = 0;
  };
  using Place = std::list<Connection>::iterator;

  HttpResponder(std::unique_ptr<ConnectionAcceptor> acceptor, Routes routes,
                std::unique_ptr<TlsStreams> tls);

  void Arrive(int connection);  // on the acceptor's thread
  void Loop();
  int WaitMs() const;
  void Welcome();
  void MakeRoom();
  // These return false if the connection must be closed.
  bool Serve(Connection& connection);
  bool Read(Connection& connection);
  bool Send(Connection& connection);
  void Answer(Connection& connection, const HttpAnswer& answer, bool with_body = true);
  void TakeHead(Connection& connection, size_t head_bytes);
  void AnswerRound();
  // Has epoll watch for the event that `outcome` (kWaitToRead or kWaitToWrite) waits for.
  void Watch(Connection& connection, PeerStream::Outcome outcome);
  Place Close(Place place);
  void CloseLate(Time now);

  const Routes routes_;
  const std::unique_ptr<TlsStreams> tls_;  // used by the thread only; null: no TLS
  int epoll_;
  int wake_;  // eventfd, written for each new connection and by the destructor
  std::mutex mutex_;
  std::vector<int> arrived_;
  bool stopping_ = false;
  // Connections whose request was read in this round; some may be closed since.
  std::vector<int> asked_;              // used by the thread only
  uint64_t round_ = 0;                  // used by the thread only
  std::list<Connection> connections_;   // used by the thread only
  std::map<int, Place> by_descriptor_;  // used by the thread only
  std::thread thread_;
  std::unique_ptr<ConnectionAcceptor> acceptor_;  // last member: it passes connections to the rest
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_HTTP_RESPONDER_H_
