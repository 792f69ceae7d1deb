#include "server/grpc/calls/generate_reactor.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/generation/messages.h"
#include "server/grpc/calls/decode_spec.h"
#include "server/grpc/calls/wire.h"
#include "server/work/guarded.h"

namespace annulus::server {
namespace {

// Room for everything in a response but text, ids and logprobs.
constexpr size_t kCompletionBytes = 4096;
// Copies of one event that exist at a time: the message, its bytes, and the bytes while they grow.
constexpr size_t kCopies = 4;
// The tag and length of a completion.
constexpr size_t kMostHeader = 16;
// Events taken before other calls get a turn. One thread delivers the events of all calls, and an
// answer that was kept arrives all at once.
constexpr int kMostAtOnce = 256;

}  // namespace

GenerateReactor::GenerateReactor(ServiceContext& context, grpc::CallbackServerContext& call,
                                 const grpc::ByteBuffer& request, grpc::ByteBuffer& response)
    : call_(call),
      unread_(context.unread),
      max_bytes_(context.config.max_message_bytes),
      request_(request),
      response_bytes_(response),
      memory_(context.prompts),
      generation_(
          GenerationCall::Create(context, ReadCall("Generate", context.peers, call), *this)) {
  generation_->Start(
      request.Length(),
      [bytes = request, max_bytes = max_bytes_](CallMemory& memory, const CancelFlag&) {
        return DecodeSpec<v1::GenerateRequest>(bytes, max_bytes, memory);
      },
      max_bytes_);
}

void GenerateReactor::OnReady() {
  for (int taken = 0;; ++taken) {
    if (taken == kMostAtOnce) return generation_->run().ComeAgain();
    std::optional<SinkEvent> event = generation_->run().NextEvent();
    if (!event.has_value()) return;
    if (Delta* delta = std::get_if<Delta>(&*event)) {
      if (!failure_.ok()) continue;
      failure_ = Guarded([&] { return Gather(std::move(*delta)); });
      if (!failure_.ok()) generation_->Abort(failure_);
    }
    if (Completion* completion = std::get_if<Completion>(&*event)) End(std::move(*completion));
  }
}

absl::Status GenerateReactor::Gather(Delta delta) {
  const v1::Delta message = ToMessage(std::move(delta));
  if (answer_.size() + message.ByteSizeLong() + kCompletionBytes > max_bytes_) {
    return WithField(
        ReasonError(absl::StatusCode::kOutOfRange, v1::ERROR_REASON_ANSWER_TOO_LARGE,
                    absl::StrCat("the answer does not fit into one message, which holds at most ",
                                 max_bytes_,
                                 " bytes; use StreamGenerate, or ask for fewer tokens or logprobs"),
                    {{"available", absl::StrCat(max_bytes_)}}),
        "spec.sampling");
  }
  const size_t event = kCopies * message.SpaceUsedLong();
  ANNULUS_RETURN_IF_ERROR(memory_.Hold(CallMemory::kWork, HeldByAnswer() + event));
  answer_.Add(message);
  return absl::OkStatus();
}

// Upper bound of answer_'s memory: two arrays of blocks, and their lists.
size_t GenerateReactor::HeldByAnswer() const {
  const size_t size = answer_.size();
  return size + size / 64 + 4 * std::min(size, AnswerBytes::kBlockBytes);
}

absl::Status GenerateReactor::EncodeAnswer(const Completion& completion) {
  const v1::Completion message =
      ToMessage(completion, generation_->run().request_id(), generation_->run().origin());
  // Check again: attention details are not bounded by kCompletionBytes.
  const size_t size = answer_.size() + message.ByteSizeLong() + kMostHeader;
  if (size > max_bytes_) return AnswerTooLargeError(size, max_bytes_, "spec.attention.details");
  ANNULUS_RETURN_IF_ERROR(memory_.Keep(HeldByAnswer() + kCopies * message.SpaceUsedLong()));
  answer_.Finish(message, response_bytes_);
  return absl::OkStatus();
}

void GenerateReactor::End(Completion completion) {
  // The engine may have finished successfully before it learned of the failure.
  if (completion.status.ok()) completion.status = failure_;
  if (completion.status.ok()) {
    completion.status = Guarded([&] { return EncodeAnswer(completion); });
  }
  DropMessage(request_);
  if (!completion.status.ok()) answer_ = AnswerBytes();
  unread_.Begin(answering_);
  Finish(ToGrpcStatus(generation_->Conclude(completion), call_));
}

void GenerateReactor::OnDone() {
  unread_.End(answering_);
  generation_->Close();
  delete this;
}

}  // namespace annulus::server
