#ifndef ANNULUS_SERVER_UNARY_CALL_H_
#define ANNULUS_SERVER_UNARY_CALL_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <utility>

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

// The same for what differs between tenants.
template <typename Request, typename Response>
using TenantHandler = absl::Status (*)(ServiceContext& context, const TenantId& tenant,
                                       const Request& request, Response& response);

// One raw unary call from bytes to bytes. Its parts live until OnDone.
struct RawUnaryCall {
  grpc::CallbackServerContext* call;
  const grpc::ByteBuffer* request;
  grpc::ByteBuffer* response;
  absl::string_view name;  // for the log; a literal
};

// Accounts for the bytes of one unary call until its answer was sent, and sees to it that a client
// that does not read is cut off. Deletes itself.
class UnaryReactor final : public grpc::ServerUnaryReactor {
 public:
  UnaryReactor(ServiceContext& context, const RawUnaryCall& raw)
      : context_(context), raw_(raw), job_(context.pool.NewId()), lease_(context.prompts) {}

  // The token is right and there is room for the request.
  absl::Status Admit() {
    ANNULUS_ASSIGN_OR_RETURN(caller_, context_.authenticator.Authenticate(*raw_.call));
    return Reserve(raw_.request->Length());
  }

  // Decodes, handles, encodes and finishes.
  template <typename Request, typename Response>
  void Run(UnaryHandler<Request, Response> handler) {
    End(Answer<Request, Response>([this, handler](const Request& request, Response& response) {
      return handler(context_, request, response);
    }));
  }
  template <typename Request, typename Response>
  void Run(TenantHandler<Request, Response> handler) {
    End(Answer<Request, Response>([this, handler](const Request& request, Response& response) {
      return handler(context_, caller_.tenant, request, response);
    }));
  }

  // The same in the pool.
  template <typename Request, typename Response>
  void RunInPool(UnaryHandler<Request, Response> handler) {
    const auto run = [this, handler](const WorkTurn& turn) {
      if (turn.cancelled()) return End(Unwanted());
      Run(handler);
    };
    Job job{raw_.name, ClientOf(*raw_.call, caller_.tenant), raw_.request->Length(), run};
    if (!context_.pool.TryRun(job_, std::move(job))) End(context_.PoolRefusal());
  }

  void OnCancel() override {
    if (context_.pool.Cancel(job_)) End(absl::CancelledError("the client cancelled the call"));
  }

  void End(const absl::Status& status) {
    context_.unread.Begin(*raw_.call);
    Finish(context_.Conclude(raw_.name, status));
  }

  void OnDone() override {
    context_.unread.End(*raw_.call);
    delete this;
  }

 private:
  // Who cancelled the job: the client, or else the drain.
  absl::Status Unwanted() const {
    return raw_.call->IsCancelled() ? absl::CancelledError("the client cancelled the call")
                                    : DrainingError();
  }

  absl::Status Reserve(size_t bytes) {
    if (lease_.TryResize(bytes)) return absl::OkStatus();
    return PromptMemoryError(bytes, *context_.prompts);
  }

  template <typename Request, typename Response, typename Handle>
  absl::Status Answer(const Handle& handle) {
    Request request;
    Response response;
    ANNULUS_RETURN_IF_ERROR(
        DecodeMessage(*raw_.request, context_.config.max_message_bytes, request));
    ANNULUS_RETURN_IF_ERROR(handle(request, response));
    ANNULUS_RETURN_IF_ERROR(Reserve(raw_.request->Length() + response.ByteSizeLong()));
    EncodeMessage(response, *raw_.response);
    return absl::OkStatus();
  }

  ServiceContext& context_;
  const RawUnaryCall raw_;
  Identity caller_;  // set by Admit
  const JobId job_;  // if it runs in the pool
  MemoryLease lease_;
};

// For handlers that return at once: runs on gRPC's thread.
template <typename Handler>
grpc::ServerUnaryReactor* AnswerNow(ServiceContext& context, const RawUnaryCall& raw,
                                    Handler handler) {
  auto* const reactor = new UnaryReactor(context, raw);
  const absl::Status admitted = reactor->Admit();
  if (admitted.ok()) {
    reactor->Run(handler);
  } else {
    reactor->End(admitted);
  }
  return reactor;
}

// For handlers whose work grows with the request: runs in the pool.
template <typename Request, typename Response>
grpc::ServerUnaryReactor* AnswerInPool(ServiceContext& context, const RawUnaryCall& raw,
                                       UnaryHandler<Request, Response> handler) {
  auto* const reactor = new UnaryReactor(context, raw);
  const absl::Status admitted = reactor->Admit();
  if (!admitted.ok()) {
    reactor->End(admitted);
  } else {
    reactor->RunInPool(handler);
  }
  return reactor;
}

}  // namespace annulus

#endif  // ANNULUS_SERVER_UNARY_CALL_H_
