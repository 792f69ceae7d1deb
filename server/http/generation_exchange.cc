#include "server/http/generation_exchange.h"

#include <chrono>
#include <optional>
#include <span>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/generation/prefill.h"
#include "server/http/json/json_text.h"
#include "server/work/guarded.h"
#include "server/work/work_cost.h"

namespace annulus::server {
namespace {

constexpr char kEventStream[] = "text/event-stream; charset=utf-8";
constexpr char kJson[] = "application/json";
// Events taken before other calls get a turn.
constexpr int kMostAtOnce = 256;
// Copies of the gathered text that exist at a time: as an array that doubles, escaped, framed.
constexpr size_t kCopies = 8;
constexpr size_t kAnswerBytes = 4096;
// Copies of a prompt that answers begin with: one for each choice.
constexpr size_t kMostEchoes = 17;
// Of one log probability in JSON, beside its text, and for each byte of that.
constexpr size_t kLogprobBytes = 128;
constexpr size_t kTextBytes = 12;

// Upper bound of the bytes that a delta adds to an answer.
size_t JsonBytes(const Delta& delta) {
  constexpr size_t kCallBytes = 128;  // of one part of a call, beside its texts
  size_t bytes = JsonStringSize(delta.text) + JsonStringSize(delta.reasoning);
  for (const ToolCallDelta& call : delta.calls) {
    bytes += kCallBytes + JsonStringSize(call.id) + JsonStringSize(call.name) +
             JsonStringSize(call.arguments);
  }
  for (const auto* const list : {&delta.logprobs, &delta.prompt_logprobs}) {
    for (const TokenLogprob& logprob : *list) {
      bytes += (1 + logprob.alternatives.size()) * kLogprobBytes;
      for (const std::string& text : logprob.texts) bytes += kTextBytes * text.size();
    }
  }
  return bytes;
}

int64_t SecondsSince1970() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

// How a later call answers the same request.
struct GenerationExchange::FormNote final : AttachNote {
  FormNote(std::unique_ptr<const AnswerForm> form, int64_t created)
      : form(std::move(form)), created(created) {}
  const std::unique_ptr<const AnswerForm> form;  // null: only in the way that it was asked for
  const int64_t created;
};

GenerationExchange::GenerationExchange(ServiceContext& context, CallContext call, Asked asked,
                                       std::shared_ptr<HttpReply> reply)
    : context_(context),
      call_(std::move(call)),
      caller_(call_.caller),
      peer_(call_.peer),
      asked_(std::move(asked)),
      reply_(std::move(reply)),
      memory_(context.prompts) {
  facts_.model = context.config.served_model_name;
  facts_.created = SecondsSince1970();
}

void GenerationExchange::Start(BodyBytes body) {
  const size_t held = body.held_bytes();
  generation_ = GenerationCall::Create(context_, std::move(call_), *this, body.TakeMemory());
  if (asked_.repeats || asked_.replay.has_value() || !asked_.idempotency_key.empty()) {
    generation_->MayFollow();
  }
  generation_->Start(held, DecoderOf(body.TakePieces()));
}

GenerationCall::Decoder GenerationExchange::DecoderOf(std::deque<std::string> body) {
  auto pieces = std::make_shared<std::deque<std::string>>(std::move(body));
  return [self = shared_from_this(), pieces](CallMemory& memory, const CancelFlag& cancel) {
    auto asked = self->asked_.replay ? self->ReadReplay() : self->Read(*pieces, memory, cancel);
    pieces->clear();
    pieces->shrink_to_fit();
    memory.Release(CallMemory::kReceived);
    return asked;
  };
}

void GenerationExchange::Refuse(const absl::Status& status) {
  refused_ = true;
  generation_ = GenerationCall::Create(context_, std::move(call_), *this);
  generation_->Abort(status);
}

absl::StatusOr<AskedGeneration> GenerationExchange::Read(const std::deque<std::string>& body,
                                                         CallMemory& memory,
                                                         const CancelFlag& cancel) {
  ANNULUS_ASSIGN_OR_RETURN(FormRequest request, asked_.reader(body, memory, cancel));
  AskedGeneration& asked = request.asked;
  if (request.answer->echoes()) {
    ANNULUS_RETURN_IF_ERROR(AddEcho(asked.spec, *request.answer, memory, cancel));
  }
  const bool named = !asked_.idempotency_key.empty();
  if (named) asked.spec.set_request_id(asked_.idempotency_key);
  asked.joins = asked_.repeats;
  {
    std::lock_guard lock(mutex_);
    form_ = std::move(request.answer);
    headers_ = std::move(request.headers);
    choices_ = asked.choices;
  }
  ANNULUS_ASSIGN_OR_RETURN(
      std::vector<PromptedDocument> prompted,
      AttachDocuments(context_, caller_, std::move(request.documents), asked, memory, cancel));
  {
    std::lock_guard lock(mutex_);
    form_->SetDocuments(std::move(prompted));
    ANNULUS_RETURN_IF_ERROR(memory_.Hold(CallMemory::kDecoded, form_->kept_bytes()));
    asked.lasting = {.lingers = named,
                     .unnamed = !named,
                     .note = std::make_shared<FormNote>(form_->Again(), facts_.created)};
  }
  if (request.keep_for.has_value()) {
    auto pin = PinOf(asked, *request.keep_for);
    std::lock_guard lock(mutex_);
    if (pin) ANNULUS_RETURN_IF_ERROR(memory_.Hold(CallMemory::kKept, 2 * pin->spec.ByteSizeLong()));
    pin_ = std::move(pin);
  }
  return std::move(asked);
}

absl::Status GenerationExchange::AddEcho(const v1::GenerationSpec& spec, AnswerForm& form,
                                         CallMemory& memory, const CancelFlag& cancel) {
  ANNULUS_ASSIGN_OR_RETURN(const Engine* const engine, context_.lifecycle.engine());
  const auto& given = spec.token_ids().ids();
  std::vector<int32_t> ids(given.begin(), given.end());
  if (spec.has_text()) {
    ANNULUS_RETURN_IF_ERROR(memory.Hold(CallMemory::kWork, TokenizeMemory::Of(spec.text())));
    const auto made = engine->Tokenize(spec.text(), /*add_special=*/true, cancel);
    if (!made.ok()) return WithField(made.status(), "prompt");
    ids = *made;
  }
  // What it lacks is said where the prompt is made.
  if (ids.empty()) return absl::OkStatus();
  std::string prompt = spec.text();
  if (!spec.has_text()) {
    ANNULUS_ASSIGN_OR_RETURN(const size_t bytes,
                             DetokenizeWork(*engine, ids, /*skip_special=*/false,
                                            context_.config.max_message_bytes, cancel));
    ANNULUS_RETURN_IF_ERROR(memory.Hold(CallMemory::kWork, bytes));
    const auto text = engine->Detokenize(ids, /*skip_special=*/false, cancel);
    if (!text.ok()) return WithField(text.status(), "prompt");
    prompt = *text;
  }
  ANNULUS_ASSIGN_OR_RETURN(
      const std::string first,
      engine->Detokenize(std::span(ids).first(1), /*skip_special=*/false, cancel));
  std::lock_guard lock(mutex_);
  ANNULUS_RETURN_IF_ERROR(memory_.Hold(CallMemory::kKept, kMostEchoes * prompt.size()));
  form.SetEcho(prompt, first);
  return absl::OkStatus();
}

absl::StatusOr<AskedGeneration> GenerationExchange::ReadReplay() {
  const std::string& id = asked_.replay->request_id;
  AskedGeneration asked;
  asked.spec.set_request_id(id);
  asked.follows_only = true;
  const auto note =
      std::static_pointer_cast<const FormNote>(context_.attach.NoteOf({caller_.tenant.name(), id}));
  if (note == nullptr) return NoSuchRequestError(id);
  std::unique_ptr<AnswerForm> form = note->form == nullptr ? nullptr : note->form->Again();
  if (form == nullptr || !form->streams()) {
    return FieldError("", absl::StrCat("the request ", QuoteName(id),
                                       " was not for one stream; send it again, with its name as "
                                       "Idempotency-Key"));
  }
  std::lock_guard lock(mutex_);
  form_ = std::move(form);
  facts_.created = note->created;
  skip_ = asked_.replay->from;
  return asked;
}

// Every event ends with an empty line, and has none within it.
std::string GenerationExchange::SkipLocked(std::string events) {
  size_t begin = 0;
  for (; skip_ > 0 && begin < events.size(); --skip_) begin = events.find("\n\n", begin) + 2;
  return events.substr(begin);
}

void GenerationExchange::OnWritten() {
  {
    std::lock_guard lock(mutex_);
    writing_ = false;
  }
  Advance();
}

void GenerationExchange::OnGone() {
  if (generation_ == nullptr) return;  // the request never came whole, so nothing has begun
  {
    std::lock_guard lock(mutex_);
    gone_ = true;
    writing_ = false;
  }
  generation_->Cancel();
  Advance();
}

void GenerationExchange::OnOver() {
  if (generation_ == nullptr) return;
  bool delivered = false;
  {
    std::lock_guard lock(mutex_);
    delivered = finished_ && !gone_;
  }
  if (delivered) generation_->Delivered();
  generation_->Close();
}

void GenerationExchange::OnBeat() {
  {
    std::lock_guard lock(mutex_);
    if (writing_ || finished_ || form_ == nullptr || !generation_->queued()) return;
  }
  // The end may wait for the delivery thread: a failure that an earlier call kept must be told by
  // the status line.
  Advance();
  std::lock_guard lock(mutex_);
  if (writing_ || finished_) return;
  if (form_->streams()) {
    return SendLocked(
        BodyLocked(absl::StrFormat(": annulus {\"processed\":%d,\"total\":%d,\"eta\":%.1f}\n\n",
                                   progress_.processed, progress_.total, progress_.eta_seconds) +
                   form_->StreamBeat()),
        HttpReply::End::kMore);
  }
  // HTTP/1.0 has no chunks, and so no way to break off an answer.
  if (asked_.is_1_1) SendLocked(BodyLocked("\n"), HttpReply::End::kMore);
}

void GenerationExchange::Advance() {
  std::lock_guard lock(mutex_);
  for (int taken = 0; !writing_ && !finished_; ++taken) {
    if (taken == kMostAtOnce) return generation_->run().ComeAgain();
    std::optional<GenerationCall::ChoiceEvent> next = generation_->NextEvent();
    if (!next.has_value()) return;
    if (form_ != nullptr) form_->UseChoice(next->choice);
    if (Completion* const completion = std::get_if<Completion>(&next->event)) {
      const bool more = ++ended_ < choices_ && completion->status.ok() && failure_.ok();
      more ? EndChoiceLocked(*next) : EndLocked(std::move(*completion), next->choice);
    } else if (!gone_ && failure_.ok()) {
      failure_ = Guarded([&] { return UseLocked(next->choice, next->event); });
      if (!failure_.ok()) generation_->Abort(failure_);
    }
  }
}

void GenerationExchange::NoteLocked(int choice, const SinkEvent& event) {
  facts_.request_id = generation_->run().request_id();
  if (const PromptProgress* const progress = std::get_if<PromptProgress>(&event)) {
    if (choice > 0) return;  // the others reuse the prompt of the first
    progress_ = *progress;
    facts_.usage.prompt_tokens = progress->total;
    facts_.usage.cached_tokens = progress->cached;
  } else if (const Delta* const delta = std::get_if<Delta>(&event)) {
    facts_.usage.completion_tokens += static_cast<int64_t>(delta->token_ids.size());
  }
}

void GenerationExchange::AddUsageLocked(int choice, const Usage& usage) {
  const int64_t answers = usage_.completion_tokens;
  if (choice == 0) usage_ = usage;
  usage_.completion_tokens = answers + usage.completion_tokens;
}

absl::Status GenerationExchange::UseLocked(int choice, const SinkEvent& event) {
  NoteLocked(choice, event);
  const Delta* const delta = std::get_if<Delta>(&event);
  if (delta != nullptr && form_->gathers()) ANNULUS_RETURN_IF_ERROR(GatherLocked(*delta));
  if (!form_->streams()) return absl::OkStatus();
  // Other events say that the request is queued: from now on the client waits for the stream. Of
  // several choices one may still be refused.
  const std::string events = delta == nullptr ? "" : SkipLocked(form_->StreamDelta(facts_, *delta));
  const bool begins = !begun_ && (choices_ == 1 || generation_->queued());
  if (!events.empty() || begins) SendLocked(BodyLocked(events), HttpReply::End::kMore);
  return absl::OkStatus();
}

absl::Status GenerationExchange::GatherLocked(const Delta& delta) {
  const size_t size =
      form_->gathered_bytes() + JsonBytes(delta) + form_->CitationBytes(delta) + kAnswerBytes;
  const size_t most = context_.config.max_message_bytes;
  if (size > most) return AnswerTooLargeError(size, most, "spec.sampling.max_tokens");
  ANNULUS_RETURN_IF_ERROR(memory_.Hold(CallMemory::kWork, kCopies * size));
  form_->Gather(delta);
  return absl::OkStatus();
}

HttpAnswer GenerationExchange::AnswerLocked(int status, absl::string_view content_type) const {
  HttpAnswer answer{.status = status, .content_type = std::string(content_type)};
  answer.headers = RequestIdHeaders(generation_->run().request_id());
  answer.headers.insert(answer.headers.end(), headers_.begin(), headers_.end());
  return answer;
}

std::string GenerationExchange::BodyLocked(absl::string_view part) {
  const bool streams = form_->streams();
  std::string bytes;
  if (!std::exchange(begun_, true)) {
    HttpAnswer answer = AnswerLocked(200, streams ? kEventStream : kJson);
    asked_.terms.AddHeaders(answer);
    if (streams) answer.headers.emplace_back("Cache-Control: no-cache");
    if (!streams) generation_->KeepFailure();
    bytes = SerializeHead(answer, asked_.is_1_1 ? BodyFrame::kChunked : BodyFrame::kUntilClose,
                          asked_.terms.keep_alive);
  }
  if (!part.empty()) absl::StrAppend(&bytes, asked_.is_1_1 ? Chunk(part) : std::string(part));
  return bytes;
}

void GenerationExchange::SendLocked(std::string bytes, HttpReply::End end) {
  writing_ = true;
  reply_->Send(std::move(bytes), end);
}

absl::Status GenerationExchange::EncodeEndLocked(const Completion& completion, std::string& bytes) {
  facts_.request_id = generation_->run().request_id();
  facts_.usage = usage_;
  const absl::string_view last = asked_.is_1_1 ? kLastChunk : "";
  if (form_->streams()) {
    bytes = absl::StrCat(BodyLocked(SkipLocked(form_->StreamEnd(facts_, completion))), last);
    return absl::OkStatus();
  }
  ANNULUS_RETURN_IF_ERROR(
      memory_.Hold(CallMemory::kWork, kCopies * (form_->gathered_bytes() + kAnswerBytes)));
  std::string body = form_->Whole(facts_, completion);
  if (begun_) {
    bytes = absl::StrCat(BodyLocked(body), last);
    return absl::OkStatus();
  }
  HttpAnswer answer = AnswerLocked(200, kJson);
  answer.body = std::move(body);
  bytes = asked_.terms.Format(std::move(answer));
  return absl::OkStatus();
}

std::string GenerationExchange::EncodeErrorLocked(const CallEnd& end, HttpReply::End& after) {
  const HttpError error = ToHttpError(end);
  if (!begun_) {
    return asked_.terms.FormatError(error, /*body_came=*/!refused_);
  }
  if (form_->streams()) {
    // Not skipped: a replay from beyond what there was would seem to have ended well.
    return BodyLocked(form_->StreamError(error)) + (asked_.is_1_1 ? kLastChunk : "");
  }
  after = HttpReply::End::kBreak;
  return "";
}

void GenerationExchange::EndChoiceLocked(const GenerationCall::ChoiceEvent& end) {
  const Completion& completion = std::get<Completion>(end.event);
  AddUsageLocked(end.choice, completion.usage);
  generation_->ConcludeChoice(end);
  failure_ = Guarded([&]() -> absl::Status {
    const std::string events = form_->ChoiceEnd(facts_, completion);
    if (!events.empty() && !gone_) SendLocked(BodyLocked(events), HttpReply::End::kMore);
    return absl::OkStatus();
  });
  if (!failure_.ok()) generation_->Abort(failure_);
}

void GenerationExchange::EndLocked(Completion completion, int choice) {
  finished_ = true;
  AddUsageLocked(choice, completion.usage);
  std::string bytes;
  HttpReply::End end = HttpReply::End::kLast;
  // The engine may have finished successfully before it learned of the failure.
  if (completion.status.ok()) completion.status = failure_;
  if (completion.status.ok()) {
    completion.status = Guarded([&] { return EncodeEndLocked(completion, bytes); });
  }
  if (!completion.status.ok() && form_ != nullptr) {
    completion.status = form_->PlaceField(std::move(completion.status));
  }
  const CallEnd told = generation_->Conclude(completion, choice);
  if (!completion.status.ok() && choices_ > 1) generation_->Abort(completion.status);
  if (completion.status.ok() && pin_) StartPin(context_, caller_, peer_, *std::move(pin_));
  pin_.reset();
  if (!completion.status.ok()) bytes = EncodeErrorLocked(told, end);
  SendLocked(std::move(bytes), end);
}

}  // namespace annulus::server
