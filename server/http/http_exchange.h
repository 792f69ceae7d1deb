#ifndef ANNULUS_SERVER_HTTP_HTTP_EXCHANGE_H_
#define ANNULUS_SERVER_HTTP_HTTP_EXCHANGE_H_

// The seam between connections and what answers their requests.

#include <memory>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "server/base/memory_budget.h"
#include "server/http/body_bytes.h"
#include "server/http/http_message.h"

namespace annulus::server {

// The way back to the client of one request. Thread-safe.
class HttpReply {
 public:
  enum class End : uint8_t {
    kMore,    // more of this answer follows
    kLast,    // the answer is complete
    kBreak,   // the answer cannot be completed: the connection is closed after these bytes
    kReadOn,  // no answer yet: a part of the body is dealt with, and the next one may come
  };
  virtual ~HttpReply() = default;
  // Has the connection write `bytes`, whole lines and chunks of HTTP. With kMore, the next call
  // must wait for HttpExchange::OnWritten. No-op once the client has gone.
  virtual void Send(std::string bytes, End end) = 0;
};

// One request under way. All functions are called on the listener's thread and must not block.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  // What the bodies of the caller's requests may hold together while they come; null: no limit.
  virtual std::shared_ptr<MemoryBudget> body_share() const { return nullptr; }
  // Whether the body is passed on in parts as it comes, each but the last by OnPart. Then it may be
  // as long as HttpLimits::request allows, else as HttpLimits::whole_body.
  virtual bool takes_parts() const { return false; }
  // A part of the body has come, in order. Nothing more is read until the exchange sends kReadOn.
  // It may send an answer at any time; then the connection is closed behind it.
  virtual void OnPart(BodyBytes) {}
  // The request has come: its body, or the last part of it. Must lead to an answer by HttpReply,
  // now or later. Called once, or Refuse.
  virtual void Start(BodyBytes body) = 0;
  // The body does not come, or cannot be taken, for this reason. Must lead to an answer.
  virtual void Refuse(const absl::Status& status) = 0;
  // What was sent last with kMore is written.
  virtual void OnWritten() = 0;
  // Nothing was written for the time of a heartbeat. May send something.
  virtual void OnBeat() = 0;
  // The client has gone before the answer was complete: the work for it must end.
  virtual void OnGone() = 0;
  // The last call, in any case: the listener forgets the exchange.
  virtual void OnOver() = 0;
};

// Answers the requests of all connections of a listener.
class HttpService {
 public:
  // An answer at once, or an exchange that takes the body.
  using Opening = std::variant<HttpAnswer, std::shared_ptr<HttpExchange>>;

  virtual ~HttpService() = default;
  // Decides on a request whose head has come. `peer`: see CallContext. Called on the listener's
  // thread; must not block.
  virtual Opening Open(HttpRequest request, const std::string& peer,
                       std::shared_ptr<HttpReply> reply) = 0;
  // A service may count how the requests of a connection end. Returns a number for one that has
  // come from `peer`; RemovePeer is called with it when the connection ends.
  virtual uint64_t AddPeer(const std::string& /*peer*/) { return 0; }
  virtual void RemovePeer(uint64_t /*number*/) {}
  // Whether the connection must be closed now, without an answer.
  virtual bool IsCondemned(uint64_t /*number*/) { return false; }
  // The answer to bytes that are not a request, or no request accepted here.
  virtual HttpAnswer OnFault(const HttpFault& fault) = 0;
  // All requests that have come by now were passed to Open. Called on the listener's thread, each
  // time before it waits.
  virtual void OnTurn() {}
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_HTTP_EXCHANGE_H_
