#ifndef ANNULUS_SERVER_NET_TLS_HANDSHAKES_H_
#define ANNULUS_SERVER_NET_TLS_HANDSHAKES_H_

#include <chrono>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
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
  // Told of a handshake that failed by what the client, "10.0.0.7", sent or refused, and not
  // because it left or was slow. Called on the thread; null: nobody is told.
  using Failed = std::function<void(const std::string& client, const std::string& why)>;

  struct Limits {
    std::chrono::milliseconds time;  // to complete a handshake
    // Handshakes that are not complete. Beyond these, the oldest of the address that has most of
    // them is closed, so that no client can keep others out with handshakes that it never ends. As
    // many connections may wait for their handshake to begin; beyond these, those whose clients
    // have left are closed, then the newest of the addresses that have most.
    size_t connections;
  };

  // UNAVAILABLE if the system has no descriptors left.
  static absl::StatusOr<std::unique_ptr<TlsHandshakes>> Start(std::unique_ptr<TlsStreams> streams,
                                                              const Limits& limits, Done done,
                                                              Failed failed = nullptr);
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
    std::string host;      // the client that it counts for
    uint32_t watched = 0;  // events of epoll; 0: not registered
  };
  struct Arrived {
    int client;
    std::string host;
  };
  using Place = std::list<Connection>::iterator;

  TlsHandshakes(std::unique_ptr<TlsStreams> streams, const Limits& limits, Done done, Failed failed,
                int events, int wake);

  void Wake();
  // These run on the thread.
  void Loop();
  int WaitMs() const;
  bool Welcome();  // returns false if the thread must stop
  void MakeRoom();
  void CloseSomeArriving();
  void Continue(Place place);
  void Drop(Place place);

  const std::unique_ptr<TlsStreams> streams_;
  const Limits limits_;
  const Done done_;
  const Failed failed_;
  const int events_;  // epoll
  const int wake_;    // eventfd

  std::mutex mutex_;
  std::vector<int> arrived_;
  bool stopping_ = false;

  // Used by the thread only.
  std::deque<Arrived> arriving_;       // those of arrived_ that wait for their turn
  std::list<Connection> connections_;  // in order of arrival, so of their deadlines
  std::map<int, Place> by_client_;

  std::thread thread_;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_NET_TLS_HANDSHAKES_H_
