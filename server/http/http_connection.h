#ifndef ANNULUS_SERVER_HTTP_HTTP_CONNECTION_H_
#define ANNULUS_SERVER_HTTP_HTTP_CONNECTION_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "engine/api.h"
#include "server/base/memory_budget.h"
#include "server/http/body_bytes.h"
#include "server/http/http_exchange.h"
#include "server/http/request_parser.h"
#include "server/net/peer_stream.h"

namespace annulus::server {

// What a client may take of a listener.
struct HttpLimits {
  RequestParser::Limits request{16 << 10, 16 << 20};
  size_t whole_body = SIZE_MAX;                 // bytes of a body that is not taken in parts
  std::chrono::milliseconds idle_time{60'000};  // without a request
  // From a request's first byte to the end of its head.
  std::chrono::milliseconds head_time{2'000};
  // A body gets this time, and a second for each KiB that has come.
  std::chrono::milliseconds body_time{10'000};
  std::chrono::milliseconds unread_time{60'000};  // to read what was written for it
  // See HttpExchange::OnBeat; 0: never.
  std::chrono::milliseconds heartbeat{5'000};
  bool keep_alive = true;  // whether a connection may have more than one request
};

// One connection: reads requests in turn, has the service answer them and writes the answers. While
// a request is answered, nothing is read, so of a client that sends more only one piece waits here.
// Not thread-safe: used by its listener's thread.
class HttpConnection {
 public:
  // What the listener must do next.
  enum class Next : uint8_t {
    kWait,   // wait for events() or deadline()
    kAgain,  // call Advance again when other connections had their turn
    kClose,
  };
  // Creates the way back for the request with this number, counted from 1.
  using ReplyMaker = std::function<std::shared_ptr<HttpReply>(uint64_t request)>;

  HttpConnection(std::unique_ptr<PeerStream> stream, std::string peer, const HttpLimits& limits,
                 HttpService& service, std::shared_ptr<MemoryBudget> budget, ReplyMaker replies,
                 SteadyTime now);
  // Tells the exchange, if there is one, that the client has gone.
  ~HttpConnection();
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  // Does what can be done without waiting. Call it when an event has come.
  Next Advance(SteadyTime now);
  // The client has closed its side.
  Next OnHangUp();
  // Takes what an exchange sends. Ignores what a former request's exchange still sends.
  Next Take(uint64_t request, std::string bytes, HttpReply::End end, SteadyTime now);
  // The deadline has passed.
  Next OnDeadline(SteadyTime now);

  SteadyTime deadline() const { return deadline_; }
  uint32_t events() const { return events_; }  // of epoll
  // Whether it waits for a request, so that closing it loses no answer.
  bool waits_for_request() const { return phase_ == Phase::kIdle || phase_ == Phase::kHead; }
  // Since when, if it does.
  SteadyTime idle_since() const { return idle_since_; }
  bool in_handshake() const { return stream_->in_handshake(); }
  // Whether the rest of a request has yet to come, so that nothing was done for it.
  bool reads_body() const { return phase_ == Phase::kBody; }
  // Whether nobody reads what it would answer.
  bool client_has_left() const { return stream_->peer_has_left(); }

 private:
  enum class Phase : uint8_t { kIdle, kHead, kBody, kAnswering, kParting };

  // Each does a bounded amount of work. kAgain: go on with Advance.
  Next ReadRequest(SteadyTime now);
  Next ReadMore(SteadyTime now);
  Next Parse(SteadyTime now);
  Next Write(SteadyTime now);
  Next Part(SteadyTime now);
  Next OnHead(SteadyTime now);
  Next OnBodyEnd(SteadyTime now);
  Next PassOnPart(SteadyTime now);
  Next RefuseFault(SteadyTime now);
  void SetBodyDeadline();
  Next OnWritten(SteadyTime now);
  void AwaitRequest(SteadyTime now);
  void Answer(const HttpAnswer& answer, bool keep_alive, bool with_body, SteadyTime now);
  void AwaitAnswer(SteadyTime now);
  Next RefuseBody(const absl::Status& status, SteadyTime now);
  void Queue(std::string bytes, HttpReply::End end, SteadyTime now);
  void EndExchange(bool gone);
  Next Wait(PeerStream::Outcome outcome);

  const std::unique_ptr<PeerStream> stream_;
  const std::string peer_;
  const HttpLimits& limits_;
  HttpService& service_;
  const std::shared_ptr<MemoryBudget> budget_;
  const ReplyMaker replies_;
  const uint64_t peer_number_;

  Phase phase_ = Phase::kIdle;
  SteadyTime idle_since_{};
  SteadyTime deadline_;
  uint32_t events_;
  uint64_t request_ = 0;  // the number of the newest request
  std::optional<RequestParser> parser_;
  std::optional<BodyBytes> body_;
  SteadyTime body_since_;    // without the time that parts took here
  SteadyTime passed_on_at_;  // when the newest part was passed on
  size_t passed_on_ = 0;     // bytes of the body
  std::string input_;        // what the parser has not taken
  std::shared_ptr<HttpExchange> exchange_;
  bool keep_alive_ = false;  // whether the connection may be used after this answer
  bool interim_ = false;     // output_ is "100 Continue", before the body
  std::string output_;       // what is being written
  size_t written_ = 0;       // of output_
  HttpReply::End end_ = HttpReply::End::kMore;  // what follows output_
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_HTTP_CONNECTION_H_
