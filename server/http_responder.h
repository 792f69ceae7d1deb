#ifndef ANNULUS_SERVER_HTTP_RESPONDER_H_
#define ANNULUS_SERVER_HTTP_RESPONDER_H_

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
#include "server/connection_acceptor.h"
#include "server/http_message.h"
#include "server/peer_stream.h"

namespace annulus {

// Answers GET and HEAD over HTTP/1.1 for scrapers and probes, plain or through TLS, one request a
// connection, from one thread that never waits for a client. Clients that say nothing, trickle or
// do not read cost a descriptor for a few seconds; where there are too many connections, the one
// that has owed its request for longest is closed, so newcomers are always served.
class HttpResponder {
 public:
  // Called on the responder's thread: must return soon.
  using Handler = std::function<HttpAnswer(const HttpRequest&)>;
  using Routes = std::map<std::string, Handler>;  // by path: "/metrics"

  static constexpr size_t kMostConnections = 128;
  static constexpr size_t kMostHeadBytes = 8 << 10;
  // From its arrival on, the handshake of TLS included.
  static constexpr std::chrono::milliseconds kTimeToAsk{2000};
  static constexpr std::chrono::milliseconds kTimeToRead{5000};  // the answer

  // Listens on "HOST:PORT", and speaks TLS if `tls` is not null. UNAVAILABLE: the address is in use
  // or not this machine's.
  static absl::StatusOr<std::unique_ptr<HttpResponder>> Start(
      const std::string& address, Routes routes, std::unique_ptr<TlsStreams> tls = nullptr);
  ~HttpResponder();  // closes all connections at once
  HttpResponder(const HttpResponder&) = delete;
  HttpResponder& operator=(const HttpResponder&) = delete;

  int port() const { return acceptor_->port(); }

 private:
  using Time = std::chrono::steady_clock::time_point;
  enum class Phase : uint8_t { kAsking, kAnswering, kParting };

  // In order of arrival.
  struct Connection {
    int descriptor;
    std::unique_ptr<PeerStream> stream;
    Time deadline;
    uint32_t watched;  // events of epoll
    Phase phase = Phase::kAsking;
    std::string received = {};
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
  // Both: false when the connection is done with.
  bool Serve(Connection& connection);
  bool Read(Connection& connection);
  bool Send(Connection& connection);
  void Answer(Connection& connection, const HttpAnswer& answer, bool with_body = true);
  void AnswerHead(Connection& connection, size_t head_bytes);
  // Until `outcome` is over, one that says what to wait for.
  void Watch(Connection& connection, PeerStream::Outcome outcome);
  Place Close(Place place);
  void CloseLate(Time now);

  const Routes routes_;
  const std::unique_ptr<TlsStreams> tls_;  // of the thread; null: plain
  int epoll_;
  int wake_;  // written when somebody arrives, and at the end
  std::mutex mutex_;
  std::vector<int> arrived_;
  bool stopping_ = false;
  std::list<Connection> connections_;  // the thread's own, as is the next
  std::map<int, Place> by_descriptor_;
  std::thread thread_;
  std::unique_ptr<ConnectionAcceptor> acceptor_;  // stands last: it hands connections over
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_HTTP_RESPONDER_H_
