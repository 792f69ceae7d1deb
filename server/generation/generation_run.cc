#include "server/generation/generation_run.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/base/peer_address.h"
#include "server/base/sha256.h"
#include "server/generation/prefill.h"
#include "server/identity/quota_error.h"
#include "server/work/guarded.h"

namespace annulus::server {
namespace {

// Hashes what is written to it, so that a long message need not be copied to be hashed.
class DigestStream final : public google::protobuf::io::CopyingOutputStream {
 public:
  explicit DigestStream(Sha256& digest) : digest_(digest) {}
  bool Write(const void* buffer, int size) override {
    digest_.Update({static_cast<const char*>(buffer), static_cast<size_t>(size)});
    return true;
  }

 private:
  Sha256& digest_;
};

void AddMessage(const v1::GenerationSpec& spec, Sha256& digest) {
  DigestStream stream(digest);
  google::protobuf::io::CopyingOutputStreamAdaptor buffered(&stream);
  google::protobuf::io::CodedOutputStream coded(&buffered);
  coded.SetSerializationDeterministic(true);
  spec.SerializeToCodedStream(&coded);
}

// A hash that distinguishes requests with the same request_id: of the message, and of the texts and
// titles of its documents.
std::string ContentOf(const AskedGeneration& asked, const DocumentStore& store,
                      const TenantId& tenant) {
  const v1::GenerationSpec& spec = asked.spec;
  Sha256 digest;
  // Hashed first: after the message, the same bytes could be an unknown field of it.
  digest.Update(asked.prefill_only ? "prefill " : "generate ");
  if (asked.pin) digest.Update("pin ");
  if (asked.ttl.has_value()) digest.Update(absl::StrCat("ttl ", asked.ttl->count(), " "));
  AddMessage(spec, digest);
  for (int i = 0; i < spec.documents_size(); ++i) {
    const absl::StatusOr<DocumentPtr> document = asked.documents.has_value()
                                                     ? asked.documents->list[static_cast<size_t>(i)]
                                                     : store.Get(tenant, spec.documents(i));
    if (!document.ok()) {
      digest.Update("none");
      continue;
    }
    const StoredDocument& text = **document;
    digest.Update(absl::StrCat(text.sha256, " ", text.title.size(), " ", text.title));
    if (!asked.documents.has_value()) continue;
    const absl::string_view title = asked.documents->TitleOf(static_cast<size_t>(i));
    if (title != text.title) digest.Update(absl::StrCat(" as ", title.size(), " ", title));
  }
  return digest.FinishHex();
}

// Errors name the fields of a GenerationSpec.
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

// In front of the request's sink, if its events need it.
std::shared_ptr<TokenSink> SinkFor(const BuiltRequest& built, std::shared_ptr<TokenSink> sink) {
  if (built.evidence == nullptr) return sink;
  return std::make_shared<EvidenceSink>(built.evidence, std::move(sink));
}

// Errors name the fields of the request that the client sent.
absl::StatusOr<RequestId> SubmitTo(Engine& engine, const v1::GenerationSpec& spec,
                                   RequestSpec request, std::shared_ptr<TokenSink> sink) {
  const bool prefill_only = request.prefill_only;
  auto id = TrySubmitTo(engine, spec, std::move(request), std::move(sink));
  if (!id.ok() && prefill_only) return PlacePrefillField(id.status());
  return id;
}

v1::Origin OriginOf(const Engine& engine, const BuiltRequest& built) {
  v1::Origin origin;
  origin.set_seed(built.spec.sampling.seed.value_or(0));
  origin.set_system_folded(built.system_folded);
  origin.set_kernels(engine.model().kernels);
  return origin;
}

// For the log; of a request that ended with OK.
absl::string_view ReasonName(FinishReason reason) {
  if (reason == FinishReason::kPrefilled) return "prefilled";
  return reason == FinishReason::kStop ? "stop" : "length";
}

}  // namespace

GenerationRun::GenerationRun(ServiceContext& context, const CallContext& call,
                             const SinkLimits& limits, SinkReader& reader)
    : context_(context),
      call_(call),
      sink_(std::make_shared<BoundedSink>(limits, context.delivery, reader)),
      request_id_(ServiceContext::NewRequestId()) {}

absl::Status GenerationRun::TakePlace() {
  std::optional<QuotaRefusal> refusal;
  std::shared_ptr<QuotaPlace> place = context_.quotas->Begin(call_.caller, refusal);
  std::lock_guard lock(mutex_);
  place_ = std::move(place);
  if (!refusal.has_value()) return absl::OkStatus();
  refused_ = QuotaError(call_.caller.tenant, *refusal);
  return may_follow_ && refusal->quota == Quota::kRunningRequests ? absl::OkStatus() : refused_;
}

std::shared_ptr<QuotaPlace> GenerationRun::place() const {
  std::lock_guard lock(mutex_);
  return place_;
}

absl::Status GenerationRun::Submit(Engine& engine, const AskedGeneration& asked,
                                   size_t most_answer_bytes, CallMemory& memory,
                                   const CancelFlag& cancel, const BuiltRequest* built) {
  if (aborted()) return absl::OkStatus();  // the sink has its end already
  if (asked.follows_only) return Follow(asked, /*content=*/"").status();
  const v1::GenerationSpec& spec = asked.spec;
  ANNULUS_RETURN_IF_ERROR(context_.CheckModel(spec.model()));
  const size_t answer_bytes = LeastAnswerBytes(spec.sampling());
  if (answer_bytes > most_answer_bytes) {
    return AnswerTooLargeError(answer_bytes, most_answer_bytes, "spec.sampling");
  }
  std::string content;
  if (spec.has_request_id() || asked.lasting.unnamed) {
    // Maps are sorted for it.
    ANNULUS_RETURN_IF_ERROR(memory.Hold(CallMemory::kWork, spec.ByteSizeLong()));
    content = ContentOf(asked, context_.documents, call_.caller.tenant);
    ANNULUS_ASSIGN_OR_RETURN(const bool follows, Follow(asked, content));
    if (follows) {
      context_.metrics.CountAttached();
      return absl::OkStatus();
    }
  }
  if (place() == nullptr) return refused_;
  // Before the text is tokenized, which may take long: clients are promised a refusal within 50 ms.
  ANNULUS_RETURN_IF_ERROR(engine.CheckQueue(call_.caller.tenant, AddressOf(call_.peer)));
  ANNULUS_ASSIGN_OR_RETURN(BuiltRequest made, Build(engine, asked, memory, cancel, built));
  RequestSpec& request = made.spec;
  if (asked.prefill_only) CutAfterDocuments(request);
  if (request.reading.format != nullptr) {
    request.reading.memory = std::make_shared<OwnGrant>(context_.prompts);
  }
  request.pin = asked.pin;
  request.ttl = asked.ttl;
  request.tenant_room = call_.caller.quotas.room;
  request.client = AddressOf(call_.peer);
  request.connection = call_.peer;
  context_.log.Debug("request_submitted",
                     {{"id", request_id()}, {"prompt_tokens", request.prompt.size()}});
  if (content.empty()) return SubmitOwn(engine, spec, std::move(made), memory);
  return SubmitShared(engine, asked, std::move(made), content, memory);
}

absl::StatusOr<BuiltRequest> GenerationRun::Build(Engine& engine, const AskedGeneration& asked,
                                                  CallMemory& memory, const CancelFlag& cancel,
                                                  const BuiltRequest* built) const {
  if (built != nullptr) {
    ANNULUS_RETURN_IF_ERROR(memory.Hold(CallMemory::kWork, KeptBytes(built->spec)));
    return *built;
  }
  const FoundDocuments* const found = asked.documents.has_value() ? &*asked.documents : nullptr;
  return BuildRequest(asked.spec, engine, context_.documents, call_.caller.tenant, memory, cancel,
                      found);
}

// Also for a request that was cancelled: the engine keeps it until the step that runs has ended.
absl::Status GenerationRun::HoldFor(RequestSpec& request) const {
  auto held = std::make_shared<CallMemory>(context_.prompts);
  ANNULUS_RETURN_IF_ERROR(held->Hold(CallMemory::kKept, KeptBytes(request)));
  request.account = std::move(held);
  return absl::OkStatus();
}

absl::Status GenerationRun::SubmitOwn(Engine& engine, const v1::GenerationSpec& spec,
                                      BuiltRequest built, CallMemory& memory) {
  RequestSpec& request = built.spec;
  request.deadline = call_.deadline;
  memory.Release(CallMemory::kWork);
  ANNULUS_RETURN_IF_ERROR(HoldFor(request));
  const int64_t prompt_tokens = static_cast<int64_t>(request.prompt.size());
  {
    std::lock_guard lock(mutex_);
    origin_ = OriginOf(engine, built);
  }
  ANNULUS_ASSIGN_OR_RETURN(const RequestId id,
                           SubmitTo(engine, spec, std::move(request), SinkFor(built, sink_)));
  place()->CountTokens(prompt_tokens);
  std::lock_guard lock(mutex_);
  engine_ = &engine;
  id_ = id;
  if (aborted_) engine_->Cancel(id_);
  return absl::OkStatus();
}

// The request belongs to all calls that follow it, so the engine gets no deadline: each call leaves
// when its own deadline has passed.
absl::Status GenerationRun::SubmitShared(Engine& engine, const AskedGeneration& asked,
                                         BuiltRequest built, const std::string& content,
                                         CallMemory& memory) {
  RequestSpec& request = built.spec;
  request.wanted_by = call_.deadline;
  memory.Release(CallMemory::kWork);
  AttachTable::Claimed claimed;
  std::shared_ptr<QuotaPlace> place;
  {
    const RequestKey name = key();
    std::lock_guard lock(mutex_);
    place = place_;  // once it is attached, a client that leaves hands the place over
    ANNULUS_ASSIGN_OR_RETURN(
        claimed, context_.attach.Claim(name, content, sink_, std::chrono::steady_clock::now(),
                                       asked.lasting));
    AttachLocked(claimed.generation);
  }
  SharedGeneration& generation = *claimed.generation;
  if (!claimed.is_new) {
    context_.metrics.CountAttached();
    return absl::OkStatus();
  }
  // Other calls may follow the request by now. So submit it even if this call has ended, and report
  // a failure to all of them.
  const absl::Status status = Guarded([&]() -> absl::Status {
    if (!generation.Wanted()) {
      return ClientLeftError();
    }
    const int64_t prompt_tokens = static_cast<int64_t>(request.prompt.size());
    generation.SetOrigin(OriginOf(engine, built));
    ANNULUS_RETURN_IF_ERROR(HoldFor(request));
    ANNULUS_ASSIGN_OR_RETURN(const RequestId id, SubmitTo(engine, asked.spec, std::move(request),
                                                          SinkFor(built, claimed.generation)));
    generation.Submitted(engine, id);
    place->CountTokens(prompt_tokens);
    return absl::OkStatus();
  });
  if (!status.ok()) generation.Refused(status);
  return absl::OkStatus();
}

absl::StatusOr<bool> GenerationRun::Follow(const AskedGeneration& asked,
                                           const std::string& content) {
  std::lock_guard lock(mutex_);
  ANNULUS_ASSIGN_OR_RETURN(std::shared_ptr<SharedGeneration> there, FindLocked(asked, content));
  if (there == nullptr) return false;
  request_id_ = there->request_id();
  AttachLocked(std::move(there));
  return true;
}

absl::StatusOr<std::shared_ptr<SharedGeneration>> GenerationRun::FindLocked(
    const AskedGeneration& asked, const std::string& content) {
  const SteadyTime now = std::chrono::steady_clock::now();
  const RequestKey name{call_.caller.tenant.name(), request_id_};
  const absl::Status unplaced = place_ == nullptr ? refused_ : absl::OkStatus();
  if (asked.follows_only) return context_.attach.FollowNamed(name, sink_, now, unplaced);
  if (asked.spec.has_request_id()) {
    return context_.attach.Follow(name, content, sink_, now, unplaced);
  }
  if (asked.joins) return context_.attach.Join(name.tenant, content, sink_, now);
  return nullptr;
}

void GenerationRun::AttachLocked(std::shared_ptr<SharedGeneration> generation) {
  // This call has a place of its own, or takes the one that the request lingered by, which lingers
  // on by it if the client has left already.
  std::shared_ptr<QuotaPlace> lingered = generation->TakePlace();
  if (aborted_) return generation->Leave(*sink_, lingered != nullptr ? &lingered : nullptr);
  shared_ = std::move(generation);
  if (place_ == nullptr) place_ = std::move(lingered);
}

v1::Origin GenerationRun::origin() const {
  std::shared_ptr<SharedGeneration> shared;
  {
    std::lock_guard lock(mutex_);
    if (shared_ == nullptr) return origin_;
    shared = shared_;
  }
  return shared->origin();
}

RequestKey GenerationRun::key() const { return {call_.caller.tenant.name(), request_id()}; }

std::optional<SinkEvent> GenerationRun::NextEvent() {
  std::optional<SinkEvent> event = sink_->Pop();
  std::shared_ptr<SharedGeneration> shared;
  std::shared_ptr<QuotaPlace> place;
  {
    std::lock_guard lock(mutex_);
    shared = shared_;
    place = place_;
  }
  if (shared != nullptr) shared->Refill(*sink_);
  const Delta* const delta = event ? std::get_if<Delta>(&*event) : nullptr;
  if (delta != nullptr && place != nullptr) {
    place->CountTokens(static_cast<int64_t>(delta->token_ids.size()));
  }
  // End the place before the client learns of the end, because it may start its next request at
  // once.
  Completion* const end = event ? std::get_if<Completion>(&*event) : nullptr;
  if (end == nullptr) return event;
  if (place != nullptr) place->End();
  end->status = NoteKvRefusal(std::move(end->status), call_.caller, *context_.quotas);
  std::optional<CacheMiss>& miss = end->usage.cache_miss;
  if (miss.has_value() && miss->reason != CacheMiss::Reason::kIgnored &&
      !context_.config.knows_callers()) {
    miss->reason = CacheMiss::Reason::kNotTold;
  }
  return event;
}

// Hands over the place before the end of the events, which would end it.
void GenerationRun::Leave(absl::Status status, bool lingers) {
  std::lock_guard lock(mutex_);
  aborted_ = true;
  if (shared_ != nullptr) shared_->Leave(*sink_, lingers ? &place_ : nullptr);
  End(std::move(status));  // before the engine can say CANCELLED
  if (engine_ != nullptr) engine_->Cancel(id_);
}

void GenerationRun::Delivered() {
  std::lock_guard lock(mutex_);
  if (shared_ != nullptr) shared_->Delivered();
}

void GenerationRun::KeepFailure() {
  std::lock_guard lock(mutex_);
  if (shared_ != nullptr) shared_->KeepFailure();
}

void GenerationRun::End(absl::Status status) {
  Completion completion;
  completion.status = std::move(status);
  completion.finish_reason = FinishReason::kError;
  sink_->OnDone(std::move(completion));
}

std::string GenerationRun::request_id() const {
  std::lock_guard lock(mutex_);
  return request_id_;
}

void GenerationRun::set_request_id(std::string id) {
  std::lock_guard lock(mutex_);
  request_id_ = std::move(id);
}

bool GenerationRun::aborted() const {
  std::lock_guard lock(mutex_);
  return aborted_;
}

bool GenerationRun::queued() const {
  std::lock_guard lock(mutex_);
  return engine_ != nullptr || shared_ != nullptr;
}

void GenerationRun::LogDone(const Completion& completion) const {
  context_.log.FromClient(LogLevel::kInfo, "request_done",
                          {{"call", call_.method},
                           {"id", request_id()},
                           {"tenant", call_.caller.tenant.name()},
                           {"peer", call_.peer},
                           {"model", context_.config.served_model_name},
                           {"finish_reason", ReasonName(completion.finish_reason)},
                           {"prompt_tokens", completion.usage.prompt_tokens},
                           {"cached_tokens", completion.usage.cached_tokens},
                           {"completion_tokens", completion.usage.completion_tokens},
                           {"queue_seconds", completion.timings.queue},
                           {"first_token_seconds", completion.timings.time_to_first_token},
                           {"seconds", completion.timings.total},
                           LogField::IfAny("trace", call_.trace.trace)});
}

void GenerationRun::Conclude(const Completion& completion) {
  if (completion.status.ok()) LogDone(completion);
  if (!completion.failed_step.empty()) {
    context_.log.FromClient(LogLevel::kWarning, "step_recovered",
                            {{"id", request_id()},
                             {"tenant", call_.caller.tenant.name()},
                             {"times", completion.timings.recovered},
                             {"cause", completion.failed_step}});
  }
  if (const auto cause = completion.status.GetPayload(kCausePayload)) {
    context_.log.FromClient(LogLevel::kWarning, "computing_failed",
                            {{"id", request_id()},
                             {"tenant", call_.caller.tenant.name()},
                             {"cause", std::string(*cause)}});
  }
  AddSpans(completion);
}

void GenerationRun::AddSpans(const Completion& completion) const {
  if (context_.spans == nullptr) return;
  const absl::StatusCode told =
      HidesMessage(completion.status) ? absl::StatusCode::kInternal : completion.status.code();
  const std::string id = request_id(), error = absl::StatusCodeToString(told);
  context_.spans->Add(SpansOf({.call = call_,
                               .model = context_.config.served_model_name,
                               .request_id = id,
                               .completion = completion,
                               .error = completion.status.ok() ? "" : error},
                              std::chrono::steady_clock::now() - began_,
                              std::chrono::system_clock::now()));
}

void GenerationRun::Close() {
  sink_->Detach();
  std::lock_guard lock(mutex_);
  if (shared_ != nullptr) shared_->Leave(*sink_);
}

}  // namespace annulus::server
