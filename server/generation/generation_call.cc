#include "server/generation/generation_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/base/peer_address.h"
#include "server/generation/prefill.h"
#include "server/work/guarded.h"

namespace annulus::server {
namespace {

// Memory of a choice beside its prompt and events: the object, its sink and table entries.
constexpr size_t kChoiceBytes = 4096;
// Small, so that all sinks of a call together take about as much as the single sink of other calls.
constexpr SinkLimits kChoiceSink{.max_bytes = size_t{32} << 10, .max_deltas = 32};

}  // namespace

GenerationCall::GenerationCall(ServiceContext& context, CallContext call, SinkReader& reader,
                               CallMemory memory)
    : context_(context),
      reader_(reader),
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
  ANNULUS_ASSIGN_OR_RETURN(AskedGeneration asked, decoder(memory_, cancel));
  absl::Status status = [&]() -> absl::Status {
    if (asked.spec.has_request_id()) {
      ANNULUS_RETURN_IF_ERROR(CheckRequestId(asked.spec.request_id()));
      run_.set_request_id(asked.spec.request_id());
    }
    if (asked.choices > 1) return SubmitChoices(engine, asked, cancel);
    return run_.Submit(engine, asked, most_answer_bytes_, memory_, cancel);
  }();
  return asked.prefill_only ? PlacePrefillField(std::move(status)) : status;
}

GenerationCall::Choice::Choice(ServiceContext& context, const CallContext& call, SinkReader& reader)
    : memory(context.prompts), run(context, call, kChoiceSink, reader) {}

GenerationRun& GenerationCall::RunOf(int choice) {
  if (choice == 0) return run_;
  std::lock_guard lock(mutex_);
  return more_[static_cast<size_t>(choice) - 1]->run;
}

// Makes the choices after the first, and takes their places in the quotas.
absl::Status GenerationCall::AddChoices(int count) {
  std::vector<std::unique_ptr<Choice>> more;
  for (int i = 1; i < count; ++i) {
    Choice& choice = *more.emplace_back(std::make_unique<Choice>(context_, call_, reader_));
    choice.run.set_request_id(absl::StrCat(run_.request_id(), "-", i));
    ANNULUS_RETURN_IF_ERROR(choice.memory.Hold(CallMemory::kReceived, kChoiceBytes));
    if (may_follow_) choice.run.MayFollow();
    ANNULUS_RETURN_IF_ERROR(choice.run.TakePlace());
  }
  std::lock_guard lock(mutex_);
  if (ended_) return absl::CancelledError("the call has ended");
  more_ = std::move(more);
  return absl::OkStatus();
}

// Submits all choices at once. The engine lets the others wait while the first one computes the
// prompt. If the call ends meanwhile, Leave ends each choice, which may linger.
absl::Status GenerationCall::SubmitChoices(Engine& engine, AskedGeneration& asked,
                                           const CancelFlag& cancel) {
  v1::GenerationSpec& spec = asked.spec;
  ANNULUS_RETURN_IF_ERROR(context_.CheckModel(spec.model()));
  // As for one choice; but one that follows an earlier request needs no place in the queue.
  if (!spec.has_request_id()) {
    ANNULUS_RETURN_IF_ERROR(engine.CheckQueue(call_.caller.tenant, AddressOf(call_.peer)));
  }
  ANNULUS_RETURN_IF_ERROR(AddChoices(asked.choices));
  CallMemory memory(context_.prompts);  // of the prompt that is copied for each choice
  const FoundDocuments* const found = asked.documents.has_value() ? &*asked.documents : nullptr;
  ANNULUS_ASSIGN_OR_RETURN(
      BuiltRequest built,
      BuildRequest(spec, engine, context_.documents, call_.caller.tenant, memory, cancel, found));
  const uint64_t seed = *built.spec.sampling.seed;
  absl::Status status;
  for (int i = 0; i < asked.choices && status.ok(); ++i) {
    GenerationRun& run = RunOf(i);
    built.spec.sampling.seed = seed + static_cast<uint64_t>(i);
    if (spec.sampling().has_seed()) spec.mutable_sampling()->set_seed(*built.spec.sampling.seed);
    if (spec.has_request_id()) spec.set_request_id(run.request_id());
    CallMemory& own = i == 0 ? memory_ : more_[static_cast<size_t>(i) - 1]->memory;
    status = run.Submit(engine, asked, most_answer_bytes_, own, cancel, &built);
    built.spec.ignore_cache = false;  // what the first one computes serves all
  }
  {
    std::lock_guard lock(mutex_);
    submitted_ = status.ok();
  }
  if (status.ok()) return status;
  for (const auto& choice : more_) choice->run.Abort(status);
  run_.Abort(status);
  return status;
}

std::optional<GenerationCall::ChoiceEvent> GenerationCall::NextEvent() {
  int count = 1;
  {
    std::lock_guard lock(mutex_);
    count += static_cast<int>(more_.size());
  }
  for (int looked = 0; looked < count; ++looked) {
    const int choice = turn_++ % count;
    if (auto event = RunOf(choice).NextEvent()) return ChoiceEvent{choice, *std::move(event)};
  }
  return std::nullopt;
}

bool GenerationCall::queued() const {
  std::lock_guard lock(mutex_);
  return more_.empty() ? run_.queued() : submitted_;
}

void GenerationCall::ConcludeChoice(const ChoiceEvent& end) {
  RunOf(end.choice).Conclude(std::get<Completion>(end.event));
}

void GenerationCall::Cancel() {
  if (std::chrono::steady_clock::now() >= call_.deadline) {
    Leave(DeadlinePassedError(), /*lingers=*/true);
  } else {
    Leave(ClientLeftError(), /*lingers=*/true);
  }
}

void GenerationCall::Abort(absl::Status status) { Leave(status, /*lingers=*/false); }

// Once the client has left, the end of one choice must not keep the others from lingering.
void GenerationCall::Leave(const absl::Status& status, bool lingers) {
  {
    std::lock_guard lock(mutex_);
    ended_ = true;
    client_left_ |= lingers;
    lingers = client_left_;
  }
  for (GenerationRun* const run : Runs()) {
    lingers ? run->AbortForClient(status) : run->Abort(status);
  }
  context_.pool.Cancel(job_);  // frees the request's bytes if the job has not begun
}

// From now on no choices are added: Runs() has all.
void GenerationCall::SetEnded() {
  std::lock_guard lock(mutex_);
  ended_ = true;
}

std::vector<GenerationRun*> GenerationCall::Runs() {
  std::vector<GenerationRun*> runs = {&run_};
  std::lock_guard lock(mutex_);
  for (const auto& choice : more_) runs.push_back(&choice->run);
  return runs;
}

void GenerationCall::Delivered() {
  for (GenerationRun* const run : Runs()) run->Delivered();
}

void GenerationCall::KeepFailure() {
  for (GenerationRun* const run : Runs()) run->KeepFailure();
}

CallEnd GenerationCall::Conclude(const Completion& completion, int choice) {
  RunOf(choice).Conclude(completion);
  const char* const main_field = call_.method == kPrefillDocument ? "name" : "spec";
  CallEnd end =
      context_.Conclude(call_, NameIfTooLarge(completion.status, main_field), run_.request_id());
  RequestBalance& balance = context_.metrics.balance();
  balance.Settle(static_cast<absl::StatusCode>(end.status.code()));
  balance.NoteIfRefused(completion.status, arrived_);
  return end;
}

void GenerationCall::Close() {
  SetEnded();
  for (GenerationRun* const run : Runs()) run->Close();
  context_.lifecycle.Leave(*this);
}

}  // namespace annulus::server
