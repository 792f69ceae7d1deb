#include "server/generation/generation_call.h"

#include <utility>

#include "server/base/errors.h"
#include "server/grpc/prefill_messages.h"
#include "server/net/connection_relay.h"
#include "server/work/guarded.h"

namespace annulus::server {

GenerationCall::GenerationCall(ServiceContext& context, absl::string_view name, SinkReader& reader)
    : context_(context),
      facts_{.method = name},
      job_(context.pool.NewId()),
      memory_(context.prompts),
      run_(context, facts_, SinkLimits{}, reader) {
  context.metrics.balance().Offer();
}

std::shared_ptr<GenerationCall> GenerationCall::Create(ServiceContext& context,
                                                       absl::string_view name, SinkReader& reader) {
  return std::shared_ptr<GenerationCall>(new GenerationCall(context, name, reader));
}

void GenerationCall::Start(const grpc::CallbackServerContext& call, size_t request_bytes,
                           Decoder decoder, size_t most_answer_bytes) {
  facts_.deadline = SteadyDeadline(call);
  most_answer_bytes_ = most_answer_bytes;
  const absl::Status status =
      Guarded([&] { return Begin(call, request_bytes, std::move(decoder)); });
  if (!status.ok()) run_.End(status);
}

absl::Status GenerationCall::Begin(const grpc::CallbackServerContext& call, size_t request_bytes,
                                   Decoder decoder) {
  ANNULUS_RETURN_IF_ERROR(context_.Admit(call, facts_.method, facts_.caller));
  facts_.connection = ClientAddress(call.peer());
  facts_.trace = TraceOf(call);
  // Check first that the call can begin, since a call that cannot must use no quota. From Enter on,
  // other threads may end this call and so end its place.
  ANNULUS_RETURN_IF_ERROR(context_.lifecycle.engine_for_changes().status());
  ANNULUS_RETURN_IF_ERROR(run_.TakePlace());
  ANNULUS_ASSIGN_OR_RETURN(Engine* const engine, context_.lifecycle.Enter(*this));
  ANNULUS_RETURN_IF_ERROR(memory_.Hold(CallMemory::kReceived, request_bytes));
  const auto run = [self = shared_from_this(), engine, decoder = std::move(decoder)](
                       const WorkTurn& turn) { self->Prepare(*engine, decoder, turn); };
  Job job{facts_.method, ClientOf(call, facts_.caller.tenant), request_bytes, run};
  if (context_.pool.TryRun(job_, std::move(job))) return absl::OkStatus();
  return context_.PoolRefusal();
}

void GenerationCall::Prepare(Engine& engine, const Decoder& decoder, const CancelFlag& cancel) {
  const absl::Status status = Guarded([&] { return Submit(engine, decoder, cancel); });
  memory_.Release(CallMemory::kDecoded);
  memory_.Release(CallMemory::kWork);
  if (!status.ok()) run_.End(status);
}

absl::Status GenerationCall::Submit(Engine& engine, const Decoder& decoder,
                                    const CancelFlag& cancel) {
  if (run_.aborted()) return absl::OkStatus();  // the sink has its end already
  ANNULUS_ASSIGN_OR_RETURN(const AskedGeneration asked, decoder(memory_));
  absl::Status status = [&]() -> absl::Status {
    if (asked.spec.has_request_id()) {
      ANNULUS_RETURN_IF_ERROR(CheckRequestId(asked.spec.request_id()));
      run_.set_request_id(asked.spec.request_id());
    }
    return run_.Submit(engine, asked, most_answer_bytes_, memory_, cancel);
  }();
  return asked.prefill_only ? PlacePrefillField(std::move(status)) : status;
}

void GenerationCall::Cancel() {
  if (std::chrono::steady_clock::now() >= facts_.deadline) {
    Abort(DeadlinePassedError());
  } else {
    Abort(absl::CancelledError("the client cancelled the call or went away"));
  }
}

void GenerationCall::Abort(absl::Status status) {
  run_.Abort(std::move(status));
  context_.pool.Cancel(job_);  // frees the request's bytes if the job has not begun
}

grpc::Status GenerationCall::Conclude(const Completion& completion,
                                      grpc::CallbackServerContext& call) {
  run_.Conclude(completion);
  const char* const main_field = facts_.method == "PrefillDocument" ? "name" : "spec";
  grpc::Status status =
      context_.Conclude({facts_.method, facts_.caller.tenant, run_.request_id(), facts_.connection},
                        NameIfTooLarge(completion.status, main_field), call);
  RequestBalance& balance = context_.metrics.balance();
  balance.Settle(static_cast<absl::StatusCode>(status.error_code()));
  balance.NoteIfRefused(completion.status, arrived_);
  return status;
}

void GenerationCall::Close() {
  run_.Close();
  context_.lifecycle.Leave(*this);
}

}  // namespace annulus::server
