#include "server/generation_call.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "kernels/base/status_macros.h"
#include "server/connection_relay.h"
#include "server/errors.h"
#include "server/guarded.h"
#include "server/prefill_messages.h"
#include "server/quota_error.h"
#include "server/request_builder.h"
#include "server/sha256.h"

namespace annulus {
namespace {

// What tells requests of one name apart: the message, and the texts and titles that it names.
std::string ContentOf(const AskedGeneration& asked, const DocumentStore& store,
                      const TenantId& tenant) {
  const v1::GenerationSpec& spec = asked.spec;
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    spec.SerializeToCodedStream(&coded);
  }
  Sha256 digest;
  // First: at the end it could be an unknown field of the message before it.
  digest.Update(asked.prefill_only ? "prefill " : "generate ");
  if (asked.pin) digest.Update("pin ");
  if (asked.ttl.has_value()) digest.Update(absl::StrCat("ttl ", asked.ttl->count(), " "));
  digest.Update(bytes);
  for (const std::string& name : spec.documents()) {
    const auto document = store.Get(tenant, name);
    if (!document.ok()) {
      digest.Update("none");
      continue;
    }
    const StoredDocument& text = **document;
    digest.Update(absl::StrCat(text.sha256, " ", text.title.size(), " ", text.title));
  }
  return digest.FinishHex();
}

// Errors are in the terms of a generation's request.
absl::StatusOr<RequestId> TrySubmitTo(Engine& engine, const v1::GenerationSpec& spec,
                                      RequestSpec request, std::shared_ptr<TokenSink> sink) {
  const int64_t needed = static_cast<int64_t>(request.prompt.size()) + request.sampling.max_tokens;
  const absl::StatusOr<RequestId> id = engine.Submit(std::move(request), std::move(sink));
  if (id.ok()) return id;
  if (absl::IsOutOfRange(id.status())) {
    return TooLargeError(spec, id.status(), needed, engine.model().max_context);
  }
  return PlaceField(spec, id.status());
}

// Errors are in the terms of the request.
absl::StatusOr<RequestId> SubmitTo(Engine& engine, const v1::GenerationSpec& spec,
                                   RequestSpec request, std::shared_ptr<TokenSink> sink) {
  const bool prefill_only = request.prefill_only;
  auto id = TrySubmitTo(engine, spec, std::move(request), std::move(sink));
  if (!id.ok() && prefill_only) return PlacePrefillField(id.status());
  return id;
}

v1::Origin OriginOf(const Engine& engine, const RequestSpec& request) {
  v1::Origin origin;
  origin.set_seed(request.sampling.seed.value_or(0));
  origin.set_kernels(engine.model().kernels);
  return origin;
}

// Of a request that ended well.
absl::string_view ReasonName(FinishReason reason) {
  if (reason == FinishReason::kPrefilled) return "prefilled";
  return reason == FinishReason::kStop ? "stop" : "length";
}

}  // namespace

GenerationCall::GenerationCall(ServiceContext& context, absl::string_view name, SinkReader& reader)
    : context_(context),
      name_(name),
      sink_(std::make_shared<BoundedSink>(SinkLimits{}, context.delivery, reader)),
      job_(context.pool.NewId()),
      memory_(context.prompts),
      request_id_(context.NewRequestId()) {
  context.metrics.balance().Offer();
}

std::shared_ptr<GenerationCall> GenerationCall::Create(ServiceContext& context,
                                                       absl::string_view name, SinkReader& reader) {
  return std::shared_ptr<GenerationCall>(new GenerationCall(context, name, reader));
}

void GenerationCall::Start(const grpc::CallbackServerContext& call, size_t request_bytes,
                           Decoder decoder, size_t most_answer_bytes) {
  deadline_ = SteadyDeadline(call);
  most_answer_bytes_ = most_answer_bytes;
  const absl::Status status =
      Guarded([&] { return Begin(call, request_bytes, std::move(decoder)); });
  if (!status.ok()) End(status);
}

absl::Status GenerationCall::Begin(const grpc::CallbackServerContext& call, size_t request_bytes,
                                   Decoder decoder) {
  ANNULUS_RETURN_IF_ERROR(context_.Admit(call, name_, caller_));
  connection_ = ClientAddress(call.peer());
  // What cannot begin uses no quota. From Enter on others may end this call, and use the place.
  ANNULUS_RETURN_IF_ERROR(context_.lifecycle.engine_for_changes().status());
  std::optional<QuotaRefusal> refusal;
  place_ = context_.quotas->Begin(caller_, refusal);
  if (refusal) return QuotaError(caller_.tenant, *refusal);
  ANNULUS_ASSIGN_OR_RETURN(Engine* const engine, context_.lifecycle.Enter(*this));
  ANNULUS_RETURN_IF_ERROR(memory_.Hold(CallMemory::kReceived, request_bytes));
  const auto run = [self = shared_from_this(), engine, decoder = std::move(decoder)](
                       const WorkTurn& turn) { self->Prepare(*engine, decoder, turn); };
  Job job{name_, ClientOf(call, caller_.tenant), request_bytes, run};
  if (context_.pool.TryRun(job_, std::move(job))) return absl::OkStatus();
  return context_.PoolRefusal();
}

void GenerationCall::Prepare(Engine& engine, const Decoder& decoder, const CancelFlag& cancel) {
  const absl::Status status = Guarded([&] { return Submit(engine, decoder, cancel); });
  memory_.Release(CallMemory::kDecoded);
  memory_.Release(CallMemory::kWork);
  if (!status.ok()) End(status);
}

absl::Status GenerationCall::Submit(Engine& engine, const Decoder& decoder,
                                    const CancelFlag& cancel) {
  {
    std::lock_guard lock(mutex_);
    if (aborted_) return absl::OkStatus();  // its end is in the sink
  }
  ANNULUS_ASSIGN_OR_RETURN(const AskedGeneration asked, decoder(memory_));
  absl::Status status = SubmitAsked(engine, asked, cancel);
  return asked.prefill_only ? PlacePrefillField(std::move(status)) : status;
}

absl::Status GenerationCall::SubmitAsked(Engine& engine, const AskedGeneration& asked,
                                         const CancelFlag& cancel) {
  const v1::GenerationSpec& spec = asked.spec;
  ANNULUS_RETURN_IF_ERROR(context_.CheckModel(spec.model()));
  if (spec.has_request_id()) {
    ANNULUS_RETURN_IF_ERROR(CheckRequestId(spec.request_id()));
    std::lock_guard lock(mutex_);
    request_id_ = spec.request_id();
  }
  const size_t answer_bytes = LeastAnswerBytes(spec.sampling());
  if (answer_bytes > most_answer_bytes_) {
    return AnswerTooLargeError(answer_bytes, most_answer_bytes_);
  }
  std::string content;
  if (spec.has_request_id()) {
    ANNULUS_RETURN_IF_ERROR(memory_.Hold(CallMemory::kWork, spec.ByteSizeLong()));
    content = ContentOf(asked, context_.documents, caller_.tenant);
    ANNULUS_ASSIGN_OR_RETURN(const bool follows, Follow(content));
    if (follows) {
      context_.metrics.CountAttached();
      return absl::OkStatus();
    }
  }
  ANNULUS_ASSIGN_OR_RETURN(RequestSpec request, BuildRequest(spec, engine, context_.documents,
                                                             caller_.tenant, memory_, cancel));
  if (asked.prefill_only) CutBehindDocuments(request);
  request.pin = asked.pin;
  request.ttl = asked.ttl;
  request.client = AddressOf(connection_);
  request.connection = connection_;
  context_.log.Debug("request_submitted",
                     {{"id", request_id()}, {"prompt_tokens", request.prompt.size()}});
  if (content.empty()) return SubmitOwn(engine, spec, std::move(request));
  return SubmitShared(engine, spec, std::move(request), content);
}

absl::Status GenerationCall::SubmitOwn(Engine& engine, const v1::GenerationSpec& spec,
                                       RequestSpec request) {
  request.deadline = deadline_;
  ANNULUS_RETURN_IF_ERROR(memory_.Keep(KeptBytes(request)));
  const int64_t prompt_tokens = static_cast<int64_t>(request.prompt.size());
  {
    std::lock_guard lock(mutex_);
    origin_ = OriginOf(engine, request);
  }
  ANNULUS_ASSIGN_OR_RETURN(const RequestId id, SubmitTo(engine, spec, std::move(request), sink_));
  place_->CountTokens(prompt_tokens);
  std::lock_guard lock(mutex_);
  engine_ = &engine;
  id_ = id;
  if (aborted_) engine_->Cancel(id_);
  return absl::OkStatus();
}

// The request belongs to all calls that follow it, so none's deadline ends it: each leaves when its
// own has passed.
absl::Status GenerationCall::SubmitShared(Engine& engine, const v1::GenerationSpec& spec,
                                          RequestSpec request, const std::string& content) {
  request.wanted_by = deadline_;
  memory_.Release(CallMemory::kWork);
  AttachTable::Claimed claimed;
  {
    const RequestKey name = key();
    std::lock_guard lock(mutex_);
    ANNULUS_ASSIGN_OR_RETURN(
        claimed, context_.attach.Claim(name, content, sink_, std::chrono::steady_clock::now()));
    AttachLocked(claimed.generation);
  }
  SharedGeneration& generation = *claimed.generation;
  if (!claimed.is_new) {
    context_.metrics.CountAttached();
    return absl::OkStatus();
  }
  // Others may follow it by now, so it goes on without this call, and an end reaches them.
  const absl::Status status = Guarded([&]() -> absl::Status {
    if (!generation.Wanted()) {
      return absl::CancelledError("the client cancelled the call or went away");
    }
    const int64_t prompt_tokens = static_cast<int64_t>(request.prompt.size());
    generation.SetOrigin(OriginOf(engine, request));
    ANNULUS_RETURN_IF_ERROR(generation.Hold(context_.prompts, KeptBytes(request)));
    ANNULUS_ASSIGN_OR_RETURN(const RequestId id,
                             SubmitTo(engine, spec, std::move(request), claimed.generation));
    generation.Submitted(engine, id);
    place_->CountTokens(prompt_tokens);
    return absl::OkStatus();
  });
  if (!status.ok()) generation.Refused(status);
  return absl::OkStatus();
}

absl::StatusOr<bool> GenerationCall::Follow(const std::string& content) {
  const RequestKey name = key();
  std::lock_guard lock(mutex_);
  ANNULUS_ASSIGN_OR_RETURN(
      std::shared_ptr<SharedGeneration> there,
      context_.attach.Follow(name, content, sink_, std::chrono::steady_clock::now()));
  if (there == nullptr) return false;
  AttachLocked(std::move(there));
  return true;
}

void GenerationCall::AttachLocked(std::shared_ptr<SharedGeneration> generation) {
  if (aborted_) return generation->Leave(*sink_);
  shared_ = std::move(generation);
}

v1::Origin GenerationCall::origin() const {
  std::shared_ptr<SharedGeneration> shared;
  {
    std::lock_guard lock(mutex_);
    if (shared_ == nullptr) return origin_;
    shared = shared_;
  }
  return shared->origin();
}

RequestKey GenerationCall::key() const { return {caller_.tenant.name(), request_id()}; }

std::optional<SinkEvent> GenerationCall::NextEvent() {
  std::optional<SinkEvent> event = sink_->Pop();
  std::shared_ptr<SharedGeneration> shared;
  {
    std::lock_guard lock(mutex_);
    shared = shared_;
  }
  if (shared != nullptr) shared->Refill(*sink_);
  const Delta* const delta = event ? std::get_if<Delta>(&*event) : nullptr;
  if (delta != nullptr) place_->CountTokens(static_cast<int64_t>(delta->token_ids.size()));
  return event;
}

void GenerationCall::Cancel() {
  if (std::chrono::steady_clock::now() >= deadline_) {
    Abort(absl::DeadlineExceededError("the call's deadline passed"));
  } else {
    Abort(absl::CancelledError("the client cancelled the call or went away"));
  }
}

void GenerationCall::Abort(absl::Status status) {
  End(std::move(status));      // before the engine can say CANCELLED
  context_.pool.Cancel(job_);  // with the request's bytes, if it has not begun
  std::lock_guard lock(mutex_);
  aborted_ = true;
  if (engine_ != nullptr) engine_->Cancel(id_);
  if (shared_ != nullptr) shared_->Leave(*sink_);
}

void GenerationCall::End(absl::Status status) {
  Completion completion;
  completion.status = FromRefusal(std::move(status));
  completion.finish_reason = FinishReason::kError;
  sink_->OnDone(std::move(completion));
}

std::string GenerationCall::request_id() const {
  std::lock_guard lock(mutex_);
  return request_id_;
}

void GenerationCall::LogDone(const std::string& id, const Completion& completion,
                             const grpc::CallbackServerContext& call) const {
  context_.log.FromClient(LogLevel::kInfo, "request_done",
                          {{"call", name_},
                           {"id", id},
                           {"tenant", caller_.tenant.name()},
                           {"peer", connection_},
                           {"model", context_.config.served_model_name},
                           {"finish_reason", ReasonName(completion.finish_reason)},
                           {"prompt_tokens", completion.usage.prompt_tokens},
                           {"cached_tokens", completion.usage.cached_tokens},
                           {"completion_tokens", completion.usage.completion_tokens},
                           {"queue_seconds", completion.timings.queue},
                           {"first_token_seconds", completion.timings.time_to_first_token},
                           {"seconds", completion.timings.total},
                           LogField::IfAny("trace", TraceOf(call))});
}

grpc::Status GenerationCall::Conclude(const Completion& completion,
                                      grpc::CallbackServerContext& call) {
  if (place_ != nullptr) place_->End();  // a client that hears the end may begin the next at once
  const std::string id = request_id();
  if (completion.status.ok()) LogDone(id, completion, call);
  if (const auto cause = completion.status.GetPayload(kCausePayload)) {
    context_.log.FromClient(
        LogLevel::kWarning, "computing_failed",
        {{"id", id}, {"tenant", caller_.tenant.name()}, {"cause", std::string(*cause)}});
  }
  grpc::Status status =
      context_.Conclude({name_, caller_.tenant, id}, FromCompletion(completion.status), call);
  context_.metrics.balance().Settle(static_cast<absl::StatusCode>(status.error_code()));
  return status;
}

void GenerationCall::Close() {
  sink_->Detach();
  {
    std::lock_guard lock(mutex_);
    if (shared_ != nullptr) shared_->Leave(*sink_);
  }
  context_.lifecycle.Leave(*this);
}

}  // namespace annulus
