#ifndef ANNULUS_SERVER_GRPC_CALLS_UNARY_CALL_H_
#define ANNULUS_SERVER_GRPC_CALLS_UNARY_CALL_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <cstddef>
#include <limits>
#include <mutex>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/generation/service_context.h"
#include "server/grpc/calls/grpc_call.h"
#include "server/grpc/calls/wire.h"
#include "server/work/call_memory.h"
#include "server/work/guarded.h"
#include "server/work/lifecycle.h"

namespace annulus::server {

// Handles a request: fills the response, or fails.
template <typename Request, typename Response>
using UnaryHandler = absl::Status (*)(ServiceContext& context, const Request& request,
                                      Response& response);

// The same for calls that depend on the tenant.
template <typename Request, typename Response>
using TenantHandler = absl::Status (*)(ServiceContext& context, const TenantId& tenant,
                                       const Request& request, Response& response);

// Returns an upper bound of the heap memory of the handler, including its response; an error if the
// answer would be too large to send.
template <typename Request>
using UnaryCost = absl::StatusOr<size_t> (*)(ServiceContext& context, const Request& request,
                                             const CancelFlag& cancel);
// A handler for work that grows with the request. Must end early when `cancel` is set.
template <typename Request, typename Response>
using PoolHandler = absl::Status (*)(ServiceContext& context, const Request& request,
                                     Response& response, const CancelFlag& cancel);

// For work that depends on the tenant and whose cost becomes known only on the way: the handler
// itself holds memory as CallMemory::kWork.
struct OwnWork {
  ServiceContext& context;
  const Caller& caller;
  CallMemory& memory;
  const TenantId& tenant = caller.tenant;
};
template <typename Request, typename Response>
using OwnWorkHandler = absl::Status (*)(const OwnWork& work, const Request& request,
                                        Response& response, const CancelFlag& cancel);

// The parts of a raw unary call. All must live until OnDone.
struct RawUnaryCall {
  grpc::CallbackServerContext* call;
  const grpc::ByteBuffer* request;
  grpc::ByteBuffer* response;
  absl::string_view name;   // the method's name, a literal
  bool for_admins = false;  // whether AdminGate admits the call
  bool long_work = false;   // the work may take long even for a short request
  // Limit of the request's size, in addition to max-message-size.
  size_t most_request_bytes = std::numeric_limits<size_t>::max();
  // The field that decides how much the call takes, a literal: errors of size name it.
  absl::string_view size_field = "";
};

// Runs one unary call from bytes to bytes. Holds its memory until the answer was sent, cuts off a
// client that does not read, and ends a call that outlives a drain with the drain's error. Deletes
// itself.
class UnaryReactor final : public grpc::ServerUnaryReactor, public Abortable {
 public:
  UnaryReactor(ServiceContext& context, const RawUnaryCall& raw)
      : context_(context),
        raw_(raw),
        call_(ReadCall(raw.name, context.peers, *raw.call)),
        job_(context.pool.NewId()),
        memory_(context.prompts) {}

  // Checks the caller, and holds memory for the request.
  absl::Status Admit() {
    ANNULUS_RETURN_IF_ERROR(raw_.for_admins ? AdmitAdmin() : context_.Admit(call_));
    return memory_.Hold(CallMemory::kReceived, raw_.request->Length());
  }

  // Registers long work: a drain waits for it, and cuts it off when the grace time is over.
  void Follow() { context_.lifecycle.Follow(*this); }

  // Decodes the request, calls the handler, encodes the response and finishes. `cost` may be null
  // if answers are small.
  template <typename Request, typename Response>
  void Run(UnaryHandler<Request, Response> handler, std::type_identity_t<UnaryCost<Request>> cost) {
    RunGuarded<Request, Response>(cost, CancelFlag::Never(),
                                  [this, handler](const Request& request, Response& response) {
                                    return handler(context_, request, response);
                                  });
  }
  template <typename Request, typename Response>
  void Run(TenantHandler<Request, Response> handler,
           std::type_identity_t<UnaryCost<Request>> cost) {
    RunGuarded<Request, Response>(
        cost, CancelFlag::Never(), [this, handler](const Request& request, Response& response) {
          return handler(context_, call_.caller.tenant, request, response);
        });
  }

  // The same in the pool. An error if the pool takes no job.
  template <typename Request, typename Response>
  absl::Status RunInPool(PoolHandler<Request, Response> handler,
                         std::type_identity_t<UnaryCost<Request>> cost) {
    return PostJob<Request, Response>(
        cost, [this, handler](const Request& request, Response& response, const WorkTurn& turn) {
          return handler(context_, request, response, turn);
        });
  }
  template <typename Request, typename Response>
  absl::Status RunInPool(OwnWorkHandler<Request, Response> handler) {
    return PostJob<Request, Response>(
        nullptr, [this, handler](const Request& request, Response& response, const WorkTurn& turn) {
          return handler({context_, call_.caller, memory_}, request, response, turn);
        });
  }

  void OnCancel() override {
    if (context_.pool.Cancel(job_)) End(absl::CancelledError("the client cancelled the call"));
  }

  // Work that has begun continues to its end, but its answer is not sent.
  void Abort(absl::Status status) override {
    std::lock_guard lock(mutex_);
    if (aborted_.ok()) aborted_ = std::move(status);
  }

  void End(absl::Status status) {
    {
      std::lock_guard lock(mutex_);
      if (!aborted_.ok()) status = aborted_;
    }
    if (!status.ok()) raw_.response->Clear();
    // Free the request now: a client that does not read its answer would keep it.
    DropMessage(*raw_.request);
    context_.unread.Begin(answering_);
    Finish(ToGrpcStatus(
        context_.Conclude(call_, NameIfTooLarge(std::move(status), raw_.size_field)), *raw_.call));
  }

  void OnDone() override {
    context_.unread.End(answering_);
    context_.lifecycle.Leave(*this);
    delete this;
  }

 private:
  // Checks the caller of an administrator's call, and logs the outcome in any case.
  absl::Status AdmitAdmin() {
    const bool by_token = context_.admin_gate.HasToken(call_);
    const absl::Status status = by_token ? context_.CheckHeaders(call_) : AdmitAdminWithoutToken();
    const bool nobody = by_token || absl::IsUnauthenticated(status);
    context_.log.Audit("admin_call",
                       {{"call", raw_.name},
                        {"peer", call_.peer},
                        LogField::IfAny("tenant", nobody ? "" : call_.caller.tenant.name()),
                        {"by", by_token ? "admin token" : "caller"},
                        {"allowed", status.ok() ? "yes" : "no"}});
    return status;
  }
  absl::Status AdmitAdminWithoutToken() {
    ANNULUS_RETURN_IF_ERROR(context_.Authenticate(call_));
    return context_.admin_gate.CheckWithoutToken(call_.caller);
  }

  // If the work was cancelled but not by the client, the drain did it.
  absl::Status OrCutOff(absl::Status status) const {
    return absl::IsCancelled(status) && !raw_.call->IsCancelled() ? CutOffError() : status;
  }

  template <typename Request, typename Response, typename Handle>
  absl::Status PostJob(UnaryCost<Request> cost, Handle handle) {
    const auto run = [this, handle, cost](const WorkTurn& turn) {
      if (turn.cancelled()) return End(OrCutOff(absl::CancelledError("the call was cancelled")));
      RunGuarded<Request, Response>(cost, turn, [&](const Request& request, Response& response) {
        return OrCutOff(handle(request, response, turn));
      });
    };
    const size_t size = raw_.long_work ? WorkPool::kShortBytes + 1 : raw_.request->Length();
    Job job{raw_.name, ClientOf(call_), size, run};
    if (context_.pool.TryRun(job_, std::move(job))) return absl::OkStatus();
    return context_.PoolRefusal();
  }

  template <typename Request, typename Response, typename Handle>
  void RunGuarded(UnaryCost<Request> cost, const CancelFlag& cancel, const Handle& handle) {
    absl::Status status = Guarded([&] { return Answer<Request, Response>(cost, cancel, handle); });
    memory_.Release(CallMemory::kDecoded);
    memory_.Release(CallMemory::kWork);
    End(std::move(status));
  }

  template <typename Request, typename Response, typename Handle>
  absl::Status Answer(UnaryCost<Request> cost, const CancelFlag& cancel, const Handle& handle) {
    const size_t max_bytes = context_.config.max_message_bytes;
    Request request;
    Response response;
    ANNULUS_RETURN_IF_ERROR(DecodeMessage(*raw_.request, max_bytes, memory_, request));
    if (cost != nullptr) {
      ANNULUS_ASSIGN_OR_RETURN(const size_t bytes, cost(context_, request, cancel));
      ANNULUS_RETURN_IF_ERROR(memory_.Hold(CallMemory::kWork, bytes));
    }
    ANNULUS_RETURN_IF_ERROR(handle(request, response));
    const size_t size = response.ByteSizeLong();
    if (size > max_bytes) return AnswerTooLargeError(size, max_bytes);
    ANNULUS_RETURN_IF_ERROR(memory_.Hold(CallMemory::kKept, size));
    EncodeMessage(response, *raw_.response);
    return absl::OkStatus();
  }

  ServiceContext& context_;
  const RawUnaryCall raw_;
  GrpcAnswering answering_{*raw_.call};
  CallContext call_;  // constant once Admit has returned
  const JobId job_;   // used if the call runs in the pool
  CallMemory memory_;

  std::mutex mutex_;
  absl::Status aborted_;
};

// Limit for requests that consist of names and numbers. A longer one would take long to decode, and
// cannot be valid.
inline constexpr size_t kMostSmallRequestBytes = size_t{64} << 10;

// For handlers that return at once. Runs them on gRPC's thread.
template <typename Handler>
grpc::ServerUnaryReactor* AnswerNow(ServiceContext& context, const RawUnaryCall& raw,
                                    Handler handler) {
  auto* const reactor = new UnaryReactor(context, raw);
  const absl::Status admitted = Guarded([&] {
    ANNULUS_RETURN_IF_ERROR(CheckMessageSize(raw.request->Length(), kMostSmallRequestBytes));
    return reactor->Admit();
  });
  if (admitted.ok()) {
    reactor->Run(handler, nullptr);
  } else {
    reactor->End(admitted);
  }
  return reactor;
}

template <typename Run>
grpc::ServerUnaryReactor* StartInPool(ServiceContext& context, const RawUnaryCall& raw, Run run) {
  auto* const reactor = new UnaryReactor(context, raw);
  const absl::Status begun = Guarded([&] {
    ANNULUS_RETURN_IF_ERROR(CheckMessageSize(raw.request->Length(), raw.most_request_bytes));
    ANNULUS_RETURN_IF_ERROR(reactor->Admit());
    reactor->Follow();
    return run(*reactor);
  });
  if (!begun.ok()) reactor->End(begun);
  return reactor;
}

// For handlers whose work grows with the request. Runs them in the pool.
template <typename Request, typename Response>
grpc::ServerUnaryReactor* AnswerInPool(ServiceContext& context, const RawUnaryCall& raw,
                                       PoolHandler<Request, Response> handler,
                                       UnaryCost<Request> cost) {
  return StartInPool(context, raw,
                     [handler, cost](UnaryReactor& call) { return call.RunInPool(handler, cost); });
}

template <typename Request, typename Response>
grpc::ServerUnaryReactor* AnswerInPool(ServiceContext& context, const RawUnaryCall& raw,
                                       OwnWorkHandler<Request, Response> handler) {
  return StartInPool(context, raw,
                     [handler](UnaryReactor& call) { return call.RunInPool(handler); });
}

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GRPC_CALLS_UNARY_CALL_H_
