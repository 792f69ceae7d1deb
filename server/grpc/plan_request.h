#ifndef ANNULUS_SERVER_GRPC_PLAN_REQUEST_H_
#define ANNULUS_SERVER_GRPC_PLAN_REQUEST_H_

#include "absl/status/status.h"
#include "annulus/v1/inference.pb.h"
#include "server/grpc/calls/unary_call.h"

namespace annulus::server {

// Handles the call Plan: builds the request's prompt, as Generate would, and asks the engine what
// it would cost. Blocks until it answers: call it on a WorkPool thread. An OwnWorkHandler.
absl::Status HandlePlan(const OwnWork& work, const v1::PlanRequest& request,
                        v1::PlanResponse& response, const CancelFlag& cancel);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GRPC_PLAN_REQUEST_H_
