#ifndef ANNULUS_SERVER_NET_TLS_HANDSHAKES_H_
#define ANNULUS_SERVER_NET_TLS_HANDSHAKES_H_

#include <chrono>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/api.h"
#include "server/net/peer_stream.h"

namespace annulus::server {

// Completes the TLS handshakes of new connections, on a thread of its own: each takes about a
// millisecond of a processor, which would delay what other connections send. Thread-safe.
class TlsHandshakes {
 public:
  // Takes ownership of a connection whose handshake is complete. Called on the thread.
  using Done = std::function<void(int client, std::unique_ptr<PeerStream> stream)>;

  // Connections that have not completed their handshake within `limit` are closed. UNAVAILABLE if
  // the system has no descriptors left.
  static absl::StatusOr<std::unique_ptr<TlsHandshakes>> Start(std::unique_ptr<TlsStreams> streams,
                                                              std::chrono::milliseconds limit,
                                                              Done done);
  ~TlsHandshakes();  // closes connections that have not completed
  TlsHandshakes(const TlsHandshakes&) = delete;
  TlsHandshakes& operator=(const TlsHandshakes&) = delete;

  // Takes ownership of a connected, non-blocking socket.
  void Begin(int client);

 private:
  struct Connection {
    int client;
    std::unique_ptr<PeerStream> stream;
    SteadyTime deadline;
    uint32_t watched = 0;  // events of epoll; 0: not registered
  };
  using Place = std::list<Connection>::iterator;

  TlsHandshakes(std::unique_ptr<TlsStreams> streams, std::chrono::milliseconds limit, Done done,
                int events, int wake);

  void Wake();
  // These run on the thread.
  void Loop();
  int WaitMs() const;
  bool Welcome();  // returns false if the thread must stop
  void Continue(Place place);
  void Drop(Place place);

  const std::unique_ptr<TlsStreams> streams_;
  const std::chrono::milliseconds limit_;
  const Done done_;
  const int events_;  // epoll
  const int wake_;    // eventfd

  std::mutex mutex_;
  std::vector<int> arrived_;
  bool stopping_ = false;

  // Used by the thread only.
  std::list<Connection> connections_;  // in order of arrival, so of their deadlines
  std::map<int, Place> by_client_;

  std::thread thread_;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_NET_TLS_HANDSHAKES_H_
