#ifndef ANNULUS_CLIENT_MANY_GENERATIONS_H_
#define ANNULUS_CLIENT_MANY_GENERATIONS_H_

#include <grpcpp/support/status.h>

#include <cstddef>
#include <vector>

#include "annulus/v1/inference.pb.h"
#include "client/connection.h"
#include "client/generation.h"

namespace annulus::client {

// Receives the events of all questions of one AskMany call, on the thread that called StreamMany.
// OnQueued, OnProgress and OnDelta do not say which question they belong to.
class ManyObserver : public GenerationObserver {
 public:
  // Question `index` has ended, with success or failure (generation.status). Return false to cancel
  // the call if the other answers are not wanted.
  virtual bool OnEnd(size_t index, Generation generation) = 0;
};

// Runs one AskMany call to its end and returns the status of the call itself. Questions that have
// not ended by then get no OnEnd. INTERNAL if the call ends with OK before every question has
// ended, or if the server answers a question that was not asked.
grpc::Status StreamMany(Connection& connection, const v1::AskManyRequest& request,
                        ManyObserver& observer);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_MANY_GENERATIONS_H_
