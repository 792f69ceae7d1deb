#include "server/grpc/calls/stream_generate_reactor.h"

#include <optional>
#include <utility>
#include <variant>

#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/generation/messages.h"
#include "server/grpc/calls/decode_spec.h"
#include "server/grpc/calls/wire.h"
#include "server/work/guarded.h"

namespace annulus::server {

v1::StreamGenerateResponse GenerationEvent(SinkEvent& event, const GenerationRun& generation,
                                           bool first) {
  v1::StreamGenerateResponse response;
  if (first) *response.mutable_origin() = generation.origin();
  if (const QueuedEvent* queued = std::get_if<QueuedEvent>(&event)) {
    response.mutable_queued()->set_position(queued->position);
  } else if (const PromptProgress* progress = std::get_if<PromptProgress>(&event)) {
    *response.mutable_prompt_progress() = ToMessage(*progress);
    if (first) response.mutable_origin()->set_ring_degree(progress->ring_degree);
  } else if (Delta* delta = std::get_if<Delta>(&event)) {
    *response.mutable_delta() = ToMessage(std::move(*delta));
  } else if (const Completion* completion = std::get_if<Completion>(&event)) {
    *response.mutable_completion() =
        ToMessage(*completion, generation.request_id(), generation.origin());
  }
  return response;
}

namespace {

StreamedCall::Message EncodeGeneration(SinkEvent& event, const GenerationRun& generation,
                                       bool first) {
  return std::make_unique<v1::StreamGenerateResponse>(GenerationEvent(event, generation, first));
}

}  // namespace

StreamedCall StreamedGeneration(const ServiceContext& context, const grpc::ByteBuffer& request) {
  auto decode = [bytes = request, max_bytes = context.config.max_message_bytes](CallMemory& memory,
                                                                                const CancelFlag&) {
    return DecodeSpec<v1::StreamGenerateRequest>(bytes, max_bytes, memory);
  };
  return {"StreamGenerate", std::move(decode), &EncodeGeneration};
}

StreamGenerateReactor::StreamGenerateReactor(ServiceContext& context,
                                             grpc::CallbackServerContext& call,
                                             const grpc::ByteBuffer& request, StreamedCall streamed)
    : call_(call),
      unread_(context.unread),
      max_bytes_(context.config.max_message_bytes),
      request_(request),
      encode_(streamed.encode),
      generation_(
          GenerationCall::Create(context, ReadCall(streamed.name, context.peers, call), *this)) {
  // Do not keep the decoder, so that a refused call frees the request's bytes at once.
  generation_->Start(request.Length(), std::move(streamed.decoder));
}

void StreamGenerateReactor::OnWriteDone(bool ok) {
  unread_.End(answering_);
  {
    std::lock_guard lock(mutex_);
    writing_ = false;
    if (!ok) cancelled_ = true;
  }
  if (!ok) generation_->Cancel();
  Advance();
}

void StreamGenerateReactor::OnCancel() {
  {
    std::lock_guard lock(mutex_);
    cancelled_ = true;
  }
  generation_->Cancel();
  Advance();
}

void StreamGenerateReactor::OnDone() {
  unread_.End(answering_);
  generation_->Close();
  delete this;
}

void StreamGenerateReactor::Advance() {
  std::lock_guard lock(mutex_);
  while (!writing_ && !finished_) {
    std::optional<SinkEvent> event = generation_->run().NextEvent();
    if (!event) return;
    if (Completion* completion = std::get_if<Completion>(&*event)) {
      EndLocked(std::move(*completion));
    } else if (!cancelled_) {  // nobody reads the events of a cancelled call
      WriteLocked(*std::move(event));
    }
  }
}

absl::Status StreamGenerateReactor::EncodeLocked(SinkEvent& event) {
  const StreamedCall::Message response = encode_(event, generation_->run(), !begun_);
  begun_ = true;
  const size_t size = response->ByteSizeLong();
  if (size > max_bytes_) return AnswerTooLargeError(size, max_bytes_, FieldOfSize(event));
  message_.Clear();
  EncodeMessage(*response, message_);
  return absl::OkStatus();
}

void StreamGenerateReactor::WriteLocked(SinkEvent event) {
  if (!failure_.ok()) return;  // drop events after the one that could not be sent
  failure_ = Guarded([&] { return EncodeLocked(event); });
  if (!failure_.ok()) return generation_->Abort(failure_);
  writing_ = true;
  unread_.Begin(answering_);
  StartWrite(&message_);
}

void StreamGenerateReactor::EndLocked(Completion completion) {
  finished_ = true;
  unread_.Begin(answering_);
  // The engine may have finished successfully before it learned of the failure.
  if (completion.status.ok()) completion.status = failure_;
  if (completion.status.ok()) {
    SinkEvent event(std::move(completion));
    absl::Status status = Guarded([&] { return EncodeLocked(event); });
    completion = std::get<Completion>(std::move(event));
    completion.status = std::move(status);
  }
  DropMessage(request_);
  const grpc::Status status = ToGrpcStatus(generation_->Conclude(completion), call_);
  if (completion.status.ok()) {
    StartWriteAndFinish(&message_, grpc::WriteOptions(), status);
  } else {
    Finish(status);
  }
}

}  // namespace annulus::server
