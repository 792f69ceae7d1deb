#ifndef ANNULUS_SERVER_GENERATION_UNREAD_ANSWERS_H_
#define ANNULUS_SERVER_GENERATION_UNREAD_ANSWERS_H_

#include <chrono>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "engine/api.h"

namespace annulus::server {

// A call whose answers a client has to read.
class Answering {
 public:
  // Ends the call, because its client does not read. Called with a lock held that
  // UnreadAnswers::End takes, so the call must end on another thread.
  virtual void CutOff() = 0;
  // Whether the client cancelled the call or went away.
  virtual bool ClientIsGone() const = 0;

 protected:
  ~Answering() = default;
};

// The calls whose client has not yet read the message or status that was last sent. CutOffSince
// ends those of clients that never read. Nothing else would end such a call: with a closed
// flow-control window and no deadline it could stay forever. Thread-safe.
class UnreadAnswers {
 public:
  // A message or status was given to the transport to send. `call` must live until End.
  void Begin(Answering& call);
  // It was sent, or the call is over. No-op without a Begin.
  void End(Answering& call);

  // Cuts off every call that has been waiting since before `limit`; each call only once.
  void CutOffSince(SteadyTime limit, SteadyTime now);

  // Whether there is a call that is over on our side, and whose client has been gone or cut off for
  // kStuck, but which the transport has not ended. Such calls never end: the transport has lost
  // them (gRPC 1.51 does if it cannot start a thread).
  bool HasStuck(SteadyTime now) const;
  static constexpr std::chrono::seconds kStuck{60};

 private:
  struct Wait {
    SteadyTime since;                               // max(): was cut off
    std::optional<SteadyTime> gone = std::nullopt;  // since when nobody reads
  };
  mutable std::mutex mutex_;
  std::unordered_map<Answering*, Wait> waiting_;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GENERATION_UNREAD_ANSWERS_H_
