#include "server/generation/ask_many_call.h"

#include <algorithm>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/generation/request_builder.h"
#include "server/work/guarded.h"

namespace annulus::server {
namespace {

// Memory of a question besides its prompt and events: the object, its sink and table entries.
constexpr size_t kQuestionBytes = 4096;

// Small, so that all sinks of a call together take about as much as the single sink of other calls.
constexpr SinkLimits kQuestionSink{.max_bytes = size_t{32} << 10, .max_deltas = 32};

}  // namespace

AskManyCall::Question::Question(ServiceContext& context, const CallContext& call,
                                SinkReader& reader, int index)
    : index(index), memory(context.prompts), run(context, call, kQuestionSink, reader) {}

AskManyCall::AskManyCall(ServiceContext& context, CallContext call, SinkReader& reader)
    : context_(context),
      reader_(reader),
      call_(std::move(call)),
      own_(std::make_shared<BoundedSink>(SinkLimits{}, context.delivery, reader)),
      memory_(context.prompts),
      request_id_(ServiceContext::NewRequestId()) {}

std::shared_ptr<AskManyCall> AskManyCall::Create(ServiceContext& context, CallContext call,
                                                 SinkReader& reader) {
  return std::shared_ptr<AskManyCall>(new AskManyCall(context, std::move(call), reader));
}

void AskManyCall::Start(size_t request_bytes, Decoder decoder) {
  absl::Status status = Guarded([&] { return Begin(request_bytes, std::move(decoder)); });
  if (!status.ok()) Abort(std::move(status));
}

absl::Status AskManyCall::Begin(size_t request_bytes, Decoder decoder) {
  ANNULUS_RETURN_IF_ERROR(context_.Admit(call_));
  request_bytes_ = request_bytes;
  ANNULUS_RETURN_IF_ERROR(memory_.Hold(CallMemory::kReceived, request_bytes_));
  decoder_ = std::move(decoder);
  ANNULUS_ASSIGN_OR_RETURN(engine_, context_.lifecycle.Enter(*this));
  PostFeed();
  return absl::OkStatus();
}

// Posts a job that asks questions. No-op if no question may be asked now, or if a job is already
// there.
void AskManyCall::PostFeed() {
  const JobId id = context_.pool.NewId();
  {
    std::lock_guard lock(mutex_);
    const bool begins = count_ == 0 && !aborted_.has_value();
    if (feeding_.has_value() || (!begins && !MayAskLocked())) return;
    feeding_ = id;
  }
  absl::Status posted = Guarded([&] {
    Job job{call_.method, ClientOf(call_), request_bytes_,
            [self = shared_from_this()](const WorkTurn& turn) { self->Feed(turn); }};
    return context_.pool.TryRun(id, std::move(job)) ? absl::OkStatus() : RefusePost();
  });
  if (!posted.ok()) Abort(std::move(posted));
}

// Handles that the pool takes no job. Returns an error if that ends the call.
absl::Status AskManyCall::RefusePost() {
  std::lock_guard lock(mutex_);
  feeding_.reset();
  if (!active_.empty()) return absl::OkStatus();  // the end of one of them will post again
  if (!MayAskLocked()) return context_.PoolRefusal();
  FailLocked(*TakeNextLocked(), context_.PoolRefusal());
  return absl::OkStatus();
}

// Notes the time here, since the reader may come for the end much later.
void AskManyCall::FailLocked(Question& question, absl::Status status) {
  context_.metrics.balance().NoteIfRefused(status, question.asked);
  question.run.End(std::move(status));
}

bool AskManyCall::MayAskLocked() const {
  const size_t most = answered_ ? kAtOnce : 1;
  return !aborted_.has_value() && !closed_ && !waits_ && next_ < count_ && active_.size() < most;
}

std::shared_ptr<AskManyCall::Question> AskManyCall::TakeNextLocked() {
  auto question = std::make_shared<Question>(context_, call_, reader_, next_);
  question->run.set_request_id(absl::StrCat(request_id_, "-", next_));
  active_.push_back(question);
  ++next_;
  return question;
}

void AskManyCall::Feed(const WorkTurn& turn) {
  if (!decoded_) {
    absl::Status status = Guarded([&] { return Decode(); });
    if (!status.ok()) return Abort(std::move(status));
  }
  while (const std::shared_ptr<Question> question = NextToAsk()) {
    FreeEnded();
    absl::Status status = Guarded([&] { return Ask(*question, turn); });
    question->memory.Release(CallMemory::kWork);
    if (!status.ok()) UseRefusal(question, std::move(status));
  }
}

// The next question to ask; null if none may be asked now, and the job must end.
std::shared_ptr<AskManyCall::Question> AskManyCall::NextToAsk() {
  std::shared_ptr<Question> question;
  bool all = false;
  absl::Status status = Guarded([&] {
    std::lock_guard lock(mutex_);
    if (MayAskLocked()) {
      question = TakeNextLocked();
    } else {
      all = next_ == count_;
      if (!all) feeding_.reset();
    }
    return absl::OkStatus();
  });
  if (!status.ok()) Abort(std::move(status));
  if (all) DropRequest();
  return question;
}

// Releases the memory of questions that have ended. Detaching a sink waits until its reader is not
// being called, so only closing_mutex_ is held then; Close takes it too and so waits for this.
void AskManyCall::FreeEnded() {
  std::lock_guard closing(closing_mutex_);
  std::vector<std::shared_ptr<Question>> ended;
  {
    std::lock_guard lock(mutex_);
    ended.swap(ended_);
  }
  for (const auto& question : ended) {
    question->run.Close();
    question->memory.Release(CallMemory::kReceived);
    question->memory.Release(CallMemory::kKept);
  }
}

// Frees the request once every question was asked. feeding_ stays set, so no further job is posted.
void AskManyCall::DropRequest() {
  asked_ = AskedGeneration();
  google::protobuf::RepeatedPtrField<std::string>().Swap(&questions_);
  memory_.Release(CallMemory::kDecoded);
  memory_.Release(CallMemory::kWork);
}

absl::Status AskManyCall::Decode() {
  v1::AskManyRequest request;
  ANNULUS_RETURN_IF_ERROR(decoder_(memory_, request));
  decoder_ = nullptr;
  asked_.spec = std::move(*request.mutable_spec());
  questions_.Swap(request.mutable_questions());
  ANNULUS_RETURN_IF_ERROR(CheckRequest());
  ANNULUS_ASSIGN_OR_RETURN(asked_.documents,
                           FindDocuments(asked_.spec, context_.documents, call_.caller.tenant));
  // The shared text with the longest question appended, twice because the text may be reallocated.
  size_t longest = 0;
  for (const std::string& question : questions_) longest = std::max(longest, question.size());
  ANNULUS_RETURN_IF_ERROR(
      memory_.Hold(CallMemory::kWork, kQuestionBytes + 2 * (asked_.spec.text().size() + longest)));
  decoded_ = true;
  std::lock_guard lock(mutex_);
  count_ = questions_.size();
  return absl::OkStatus();
}

absl::Status AskManyCall::CheckRequest() {
  const v1::GenerationSpec& spec = asked_.spec;
  names_itself_ = spec.has_request_id();
  if (names_itself_) {
    ANNULUS_RETURN_IF_ERROR(CheckRequestId(spec.request_id()));
    std::lock_guard lock(mutex_);
    request_id_ = spec.request_id();
  }
  ANNULUS_RETURN_IF_ERROR(context_.CheckModel(spec.model()));
  if (questions_.empty()) return FieldError("questions", "there are no questions; send 1 to 1000");
  if (spec.has_token_ids()) {
    return FieldError("spec.token_ids",
                      "questions are texts and cannot follow token ids; send messages or text, or "
                      "upload the shared part as a document");
  }
  return absl::OkStatus();
}

absl::Status AskManyCall::Ask(Question& question, const CancelFlag& cancel) {
  ANNULUS_RETURN_IF_ERROR(question.memory.Hold(CallMemory::kReceived, kQuestionBytes));
  ANNULUS_RETURN_IF_ERROR(question.run.TakePlace());
  const std::string& text = questions_[question.index];
  if (text.empty()) {
    return FieldError(absl::StrCat("questions[", question.index, "]"), "the question is empty");
  }
  v1::GenerationSpec& spec = asked_.spec;
  const size_t text_before = spec.text().size();
  const int messages_before = spec.messages().messages_size();
  absl::Status status = Guarded([&] {
    if (names_itself_) spec.set_request_id(question.run.request_id());
    PlaceQuestion(text);
    return PlaceQuestionField(
        question.index, question.run.Submit(*engine_, asked_, SIZE_MAX, question.memory, cancel));
  });
  if (spec.has_text()) {
    spec.mutable_text()->resize(text_before);
  } else if (spec.messages().messages_size() > messages_before) {
    spec.mutable_messages()->mutable_messages()->RemoveLast();
  }
  return status;
}

void AskManyCall::PlaceQuestion(const std::string& text) {
  v1::GenerationSpec& spec = asked_.spec;
  if (spec.has_text()) {
    spec.mutable_text()->append(text);
    return;
  }
  v1::Message& message = *spec.mutable_messages()->add_messages();
  message.set_role("user");
  message.set_content(text);
}

// Errors in the input concern its last part, the question, so name that field instead.
absl::Status AskManyCall::PlaceQuestionField(int index, absl::Status status) const {
  const auto payload = status.GetPayload(kFieldPayload);
  if (!payload.has_value()) return status;
  const std::string field(*payload);
  const int last = asked_.spec.messages().messages_size() - 1;
  if (field == "spec.text" || field == "spec.messages" ||
      absl::StartsWith(field, absl::StrCat("spec.messages.messages[", last, "]"))) {
    return MoveField(status, absl::StrCat("questions[", index, "]"));
  }
  return status;
}

void AskManyCall::UseRefusal(const std::shared_ptr<Question>& question, absl::Status status) {
  const auto field = status.GetPayload(kFieldPayload);
  // An error that the first question finds in the spec would affect all others too. But where this
  // question has no room (OUT_OF_RANGE), a shorter one may have it.
  const bool in_spec = field.has_value() && field->StartsWith("spec.");
  const bool ends_call = question->index == 0 && in_spec && !absl::IsOutOfRange(status);
  {
    std::lock_guard lock(mutex_);
    // If others have ended meanwhile, their memory is about to be freed: try again at once.
    const bool frees = !ended_.empty();
    const bool again = absl::IsResourceExhausted(status) && (frees || active_.size() > 1);
    if (!again && !ends_call) return FailLocked(*question, std::move(status));
    RetireLocked(question);
    next_ = question->index;
    waits_ = again && !frees;
  }
  if (ends_call) Abort(std::move(status));
}

void AskManyCall::RetireLocked(const std::shared_ptr<Question>& question) {
  const auto found = std::find(active_.begin(), active_.end(), question);
  const auto place = static_cast<size_t>(found - active_.begin());
  if (turn_ > place) --turn_;
  active_.erase(found);
  ended_.push_back(question);
  waits_ = false;
}

std::optional<AskManyCall::Event> AskManyCall::NextEvent() {
  std::optional<Event> event;
  {
    std::lock_guard lock(mutex_);
    event = TakeEventLocked();
  }
  PostFeed();  // an answer may have begun, or ended
  return event;
}

std::optional<AskManyCall::Event> AskManyCall::TakeEventLocked() {
  for (size_t looked = 0; looked < active_.size(); ++looked) {
    turn_ = turn_ < active_.size() ? turn_ : 0;
    const std::shared_ptr<Question> question = active_[turn_++];
    std::optional<SinkEvent> event = question->run.NextEvent();
    if (!event.has_value()) continue;
    const Completion* const completion = std::get_if<Completion>(&*event);
    answered_ = answered_ || std::holds_alternative<Delta>(*event) ||
                (completion != nullptr && completion->status.ok());
    if (completion != nullptr) RetireLocked(question);
    return QuestionEvent{question, *std::move(event)};
  }
  const bool over = aborted_.has_value() || (count_ > 0 && next_ == count_);
  if (!over || !active_.empty() || told_end_) return std::nullopt;
  told_end_ = true;
  return Over{aborted_.value_or(absl::OkStatus())};
}

google::rpc::Status AskManyCall::Conclude(Question& question, const Completion& completion) {
  question.run.Conclude(completion);
  google::rpc::Status failure;
  if (!completion.status.ok()) {
    failure =
        context_.Fail(call_, question.run.request_id(), NameIfTooLarge(completion.status, "spec"));
  }
  // Count it only now, so that a question that was refused and asked again is not counted twice.
  context_.metrics.balance().Offer();
  context_.metrics.balance().Settle(static_cast<absl::StatusCode>(failure.code()));
  return failure;
}

CallEnd AskManyCall::Conclude(const absl::Status& status) {
  std::string id;
  bool begun = false;
  {
    std::lock_guard lock(mutex_);
    id = request_id_;
    begun = count_ > 0;
  }
  // A later failure is not a refusal of the call.
  if (!begun) context_.metrics.balance().NoteIfRefused(status, arrived_);
  return context_.Conclude(call_, NameIfTooLarge(status, "questions"), std::move(id));
}

void AskManyCall::Cancel() {
  if (std::chrono::steady_clock::now() >= call_.deadline) {
    Abort(DeadlinePassedError());
  } else {
    Abort(ClientLeftError());
  }
}

void AskManyCall::Abort(absl::Status status) {
  std::vector<std::shared_ptr<Question>> active;
  std::optional<JobId> feeding;
  {
    std::lock_guard lock(mutex_);
    if (aborted_.has_value()) return;
    aborted_ = status;
    active = active_;
    feeding = feeding_;
  }
  for (const auto& question : active) question->run.Abort(status);
  if (feeding.has_value()) context_.pool.Cancel(*feeding);
  // Has the reader called, for the call's end.
  own_->ComeAgain();
}

void AskManyCall::Close() {
  {
    std::lock_guard closing(closing_mutex_);
    std::vector<std::shared_ptr<Question>> all;
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
      all.swap(ended_);
      all.insert(all.end(), active_.begin(), active_.end());
      active_.clear();
    }
    for (const auto& question : all) question->run.Close();
  }
  own_->Detach();
  context_.lifecycle.Leave(*this);
}

}  // namespace annulus::server
