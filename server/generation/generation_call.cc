#include "server/generation/generation_call.h"

#include <utility>

#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/generation/prefill.h"
#include "server/work/guarded.h"

namespace annulus::server {

GenerationCall::GenerationCall(ServiceContext& context, CallContext call, SinkReader& reader,
                               CallMemory memory)
    : context_(context),
      call_(std::move(call)),
      job_(context.pool.NewId()),
      memory_(std::move(memory)),
      run_(context, call_, SinkLimits{}, reader) {
  context.metrics.balance().Offer();
}

std::shared_ptr<GenerationCall> GenerationCall::Create(ServiceContext& context, CallContext call,
                                                       SinkReader& reader) {
  return Create(context, std::move(call), reader, CallMemory(context.prompts));
}

std::shared_ptr<GenerationCall> GenerationCall::Create(ServiceContext& context, CallContext call,
                                                       SinkReader& reader, CallMemory memory) {
  return std::shared_ptr<GenerationCall>(
      new GenerationCall(context, std::move(call), reader, std::move(memory)));
}

void GenerationCall::Start(size_t request_bytes, Decoder decoder, size_t most_answer_bytes) {
  most_answer_bytes_ = most_answer_bytes;
  const absl::Status status = Guarded([&] { return Begin(request_bytes, std::move(decoder)); });
  if (!status.ok()) run_.End(status);
}

absl::Status GenerationCall::Begin(size_t request_bytes, Decoder decoder) {
  ANNULUS_RETURN_IF_ERROR(context_.Admit(call_));
  // Check first that the call can begin, since a call that cannot must use no quota. From Enter on,
  // other threads may end this call and so end its place.
  ANNULUS_RETURN_IF_ERROR(context_.lifecycle.engine_for_changes().status());
  ANNULUS_RETURN_IF_ERROR(run_.TakePlace());
  ANNULUS_ASSIGN_OR_RETURN(Engine* const engine, context_.lifecycle.Enter(*this));
  ANNULUS_RETURN_IF_ERROR(memory_.Hold(CallMemory::kReceived, request_bytes));
  const auto run = [self = shared_from_this(), engine, decoder = std::move(decoder)](
                       const WorkTurn& turn) { self->Prepare(*engine, decoder, turn); };
  Job job{call_.method, ClientOf(call_), request_bytes, run};
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
  ANNULUS_ASSIGN_OR_RETURN(const AskedGeneration asked, decoder(memory_, cancel));
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
  if (std::chrono::steady_clock::now() >= call_.deadline) {
    Abort(DeadlinePassedError());
  } else {
    Abort(absl::CancelledError("the client cancelled the call or disconnected"));
  }
}

void GenerationCall::Abort(absl::Status status) {
  run_.Abort(std::move(status));
  context_.pool.Cancel(job_);  // frees the request's bytes if the job has not begun
}

CallEnd GenerationCall::Conclude(const Completion& completion) {
  run_.Conclude(completion);
  const char* const main_field = call_.method == kPrefillDocument ? "name" : "spec";
  CallEnd end =
      context_.Conclude(call_, NameIfTooLarge(completion.status, main_field), run_.request_id());
  RequestBalance& balance = context_.metrics.balance();
  balance.Settle(static_cast<absl::StatusCode>(end.status.code()));
  balance.NoteIfRefused(completion.status, arrived_);
  return end;
}

void GenerationCall::Close() {
  run_.Close();
  context_.lifecycle.Leave(*this);
}

}  // namespace annulus::server
