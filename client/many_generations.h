#ifndef ANNULUS_CLIENT_MANY_GENERATIONS_H_
#define ANNULUS_CLIENT_MANY_GENERATIONS_H_

#include <grpcpp/support/status.h>

#include <cstddef>
#include <vector>

#include "annulus/v1/inference.pb.h"
#include "client/connection.h"
#include "client/generation.h"

namespace annulus {

// Sees the questions of one AskMany call, on the thread that called StreamMany. What comes before
// the end of a question comes without its number.
class ManyObserver : public GenerationObserver {
 public:
  // A question has ended, well or not. False: nobody wants the others; the call is cancelled.
  virtual bool OnEnd(size_t index, Generation generation) = 0;
};

// Runs one call of AskMany to its end. Returns the call's own status: questions that have not ended
// by then have no OnEnd. A call that ends well without an end of every question is INTERNAL, and so
// is one that speaks of a question that was not asked.
grpc::Status StreamMany(Connection& connection, const v1::AskManyRequest& request,
                        ManyObserver& observer);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_MANY_GENERATIONS_H_
