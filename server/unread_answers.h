#ifndef ANNULUS_SERVER_UNREAD_ANSWERS_H_
#define ANNULUS_SERVER_UNREAD_ANSWERS_H_

#include <grpcpp/server_context.h>

#include <mutex>
#include <unordered_map>

#include "engine/api.h"

namespace annulus {

// Calls whose next or last words wait for the client to read, so that those of clients that never
// do can be torn down: nothing else ends a call without a deadline whose client holds its window
// shut. Thread-safe.
class UnreadAnswers {
 public:
  // Something was given to gRPC to be sent. `call` must live until End.
  void Begin(grpc::CallbackServerContext& call);
  // It was sent, or the call is over. Does nothing without a Begin.
  void End(grpc::CallbackServerContext& call);

  // Cancels every call that has waited since before `limit`; once.
  void CutOffSince(SteadyTime limit);

 private:
  std::mutex mutex_;
  std::unordered_map<grpc::CallbackServerContext*, SteadyTime> waiting_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_UNREAD_ANSWERS_H_
