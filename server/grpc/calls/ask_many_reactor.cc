#include "server/grpc/calls/ask_many_reactor.h"

#include <optional>
#include <utility>
#include <variant>

#include "server/base/errors.h"
#include "server/grpc/calls/stream_generate_reactor.h"
#include "server/grpc/calls/wire.h"
#include "server/work/guarded.h"

namespace annulus::server {

AskManyReactor::AskManyReactor(ServiceContext& context, grpc::CallbackServerContext& call,
                               const grpc::ByteBuffer& request)
    : call_(call),
      unread_(context.unread),
      max_bytes_(context.config.max_message_bytes),
      request_(request),
      questions_(AskManyCall::Create(context, ReadCall("AskMany", context.peers, call), *this)) {
  questions_->Start(request.Length(), [bytes = request, max_bytes = max_bytes_](
                                          CallMemory& memory, v1::AskManyRequest& decoded) {
    return DecodeMessage(bytes, max_bytes, memory, decoded);
  });
}

void AskManyReactor::OnWriteDone(bool ok) {
  unread_.End(answering_);
  {
    std::lock_guard lock(mutex_);
    writing_ = false;
    if (!ok) cancelled_ = true;
  }
  if (!ok) questions_->Cancel();
  Advance();
}

void AskManyReactor::OnCancel() {
  {
    std::lock_guard lock(mutex_);
    cancelled_ = true;
  }
  questions_->Cancel();
  Advance();
}

void AskManyReactor::OnDone() {
  unread_.End(answering_);
  questions_->Close();
  delete this;
}

void AskManyReactor::Advance() {
  std::lock_guard lock(mutex_);
  while (!writing_ && !finished_) {
    std::optional<AskManyCall::Event> event = questions_->NextEvent();
    if (!event.has_value()) return;
    if (const auto* const over = std::get_if<AskManyCall::Over>(&*event)) {
      finished_ = true;
      unread_.Begin(answering_);
      DropMessage(request_);
      return Finish(ToGrpcStatus(questions_->Conclude(over->status), call_));
    }
    auto& told = std::get<AskManyCall::QuestionEvent>(*event);
    if (std::holds_alternative<Completion>(told.event)) {
      TellEndLocked(std::move(told));
    } else if (!cancelled_) {  // nobody reads the events of a cancelled call
      TellLocked(std::move(told));
    }
  }
}

absl::Status AskManyReactor::EncodeLocked(AskManyCall::QuestionEvent& told,
                                          v1::AskManyResponse& response) const {
  AskManyCall::Question& question = *told.question;
  response.set_index(question.index);
  *response.mutable_event() = GenerationEvent(told.event, question.run, !question.told);
  const size_t size = response.ByteSizeLong();
  if (size > max_bytes_) return AnswerTooLargeError(size, max_bytes_, FieldOfSize(told.event));
  return absl::OkStatus();
}

void AskManyReactor::TellLocked(AskManyCall::QuestionEvent told) {
  AskManyCall::Question& question = *told.question;
  if (!question.failure.ok()) return;  // drop events after the one that could not be sent
  v1::AskManyResponse response;
  question.failure = Guarded([&] { return EncodeLocked(told, response); });
  if (!question.failure.ok()) return question.run.Abort(question.failure);
  question.told = true;
  WriteLocked(response);
}

void AskManyReactor::TellEndLocked(AskManyCall::QuestionEvent told) {
  AskManyCall::Question& question = *told.question;
  auto& completion = std::get<Completion>(told.event);
  v1::AskManyResponse response;
  // The engine may have finished successfully before it learned of the failure.
  if (completion.status.ok()) completion.status = question.failure;
  if (completion.status.ok()) {
    completion.status = Guarded([&] { return EncodeLocked(told, response); });
  }
  google::rpc::Status failure = questions_->Conclude(question, completion);
  if (!completion.status.ok()) {
    response.set_index(question.index);
    *response.mutable_failure() = std::move(failure);
  }
  if (!cancelled_) WriteLocked(response);
}

void AskManyReactor::WriteLocked(const v1::AskManyResponse& response) {
  message_.Clear();
  EncodeMessage(response, message_);
  writing_ = true;
  unread_.Begin(answering_);
  StartWrite(&message_);
}

}  // namespace annulus::server
