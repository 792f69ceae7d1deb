#ifndef ANNULUS_SERVER_UNARY_CALL_H_
#define ANNULUS_SERVER_UNARY_CALL_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/base/status_macros.h"
#include "server/service_context.h"
#include "server/wire.h"

namespace annulus {

// Fills the response, or fails.
template <typename Request, typename Response>
using UnaryHandler = absl::Status (*)(ServiceContext& context, const Request& request,
                                      Response& response);

// One raw unary call from bytes to bytes. Its parts live until Finish.
struct RawUnaryCall {
  grpc::CallbackServerContext* call;
  const grpc::ByteBuffer* request;
  grpc::ByteBuffer* response;
  absl::string_view name;  // for the log; a literal
};

// Decodes, handles, encodes and finishes.
template <typename Request, typename Response>
void RunUnary(ServiceContext& context, const RawUnaryCall& raw, grpc::ServerUnaryReactor* reactor,
              UnaryHandler<Request, Response> handler) {
  auto answer = [&]() -> absl::Status {
    Request request;
    Response response;
    ANNULUS_RETURN_IF_ERROR(DecodeMessage(*raw.request, context.config.max_message_bytes, request));
    ANNULUS_RETURN_IF_ERROR(handler(context, request, response));
    EncodeMessage(response, *raw.response);
    return absl::OkStatus();
  };
  reactor->Finish(context.Conclude(raw.name, answer()));
}

// For handlers that return at once: runs on gRPC's thread.
template <typename Request, typename Response>
grpc::ServerUnaryReactor* AnswerNow(ServiceContext& context, const RawUnaryCall& raw,
                                    UnaryHandler<Request, Response> handler) {
  grpc::ServerUnaryReactor* const reactor = raw.call->DefaultReactor();
  const absl::Status allowed = context.authenticator.Check(*raw.call);
  if (allowed.ok()) {
    RunUnary(context, raw, reactor, handler);
  } else {
    reactor->Finish(context.Conclude(raw.name, allowed));
  }
  return reactor;
}

// For handlers whose work grows with the request: runs in the pool.
template <typename Request, typename Response>
grpc::ServerUnaryReactor* AnswerInPool(ServiceContext& context, const RawUnaryCall& raw,
                                       UnaryHandler<Request, Response> handler) {
  grpc::ServerUnaryReactor* const reactor = raw.call->DefaultReactor();
  absl::Status status = context.authenticator.Check(*raw.call);
  if (status.ok()) {
    const bool accepted = context.pool.TryRun(
        [&context, raw, reactor, handler] { RunUnary(context, raw, reactor, handler); });
    if (accepted) return reactor;
    status = BusyError();
  }
  reactor->Finish(context.Conclude(raw.name, status));
  return reactor;
}

}  // namespace annulus

#endif  // ANNULUS_SERVER_UNARY_CALL_H_
