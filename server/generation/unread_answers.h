#ifndef ANNULUS_SERVER_GENERATION_UNREAD_ANSWERS_H_
#define ANNULUS_SERVER_GENERATION_UNREAD_ANSWERS_H_

#include <grpcpp/server_context.h>

#include <mutex>
#include <unordered_map>

#include "engine/api.h"

namespace annulus::server {

// The calls whose client has not yet read the message or status that was last sent. CutOffSince
// cancels those of clients that never read. Nothing else would end such a call: with a closed
// flow-control window and no deadline it could stay forever. Thread-safe.
class UnreadAnswers {
 public:
  // A message or status was given to gRPC to send. `call` must live until End.
  void Begin(grpc::CallbackServerContext& call);
  // It was sent, or the call is over. No-op without a Begin.
  void End(grpc::CallbackServerContext& call);

  // Cancels every call that has been waiting since before `limit`; each call only once.
  void CutOffSince(SteadyTime limit);

 private:
  std::mutex mutex_;
  std::unordered_map<grpc::CallbackServerContext*, SteadyTime> waiting_;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GENERATION_UNREAD_ANSWERS_H_
