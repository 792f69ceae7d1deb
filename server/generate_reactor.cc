#include "server/generate_reactor.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/errors.h"
#include "server/guarded.h"
#include "server/messages.h"
#include "server/wire.h"

namespace annulus {
namespace {

// Room for everything in a response but text, ids and logprobs.
constexpr size_t kCompletionBytes = 4096;
// Texts and arrays grow by doubling: while one moves, the old one is there too.
constexpr size_t kGrowth = 3;

}  // namespace

GenerateReactor::GenerateReactor(ServiceContext& context, grpc::CallbackServerContext& call,
                                 const grpc::ByteBuffer& request, grpc::ByteBuffer& response)
    : call_(call),
      unread_(context.unread),
      max_bytes_(context.config.max_message_bytes),
      response_bytes_(response),
      answer_(context.prompts),
      generation_(GenerationCall::Create(context, "Generate", *this)) {
  generation_->Start(
      call, request.Length(),
      [bytes = request, max_bytes = max_bytes_](CallMemory& memory) {
        return DecodeSpec<v1::GenerateRequest>(bytes, max_bytes, memory);
      },
      max_bytes_);
}

void GenerateReactor::OnReady() {
  while (std::optional<SinkEvent> event = generation_->NextEvent()) {
    if (Delta* delta = std::get_if<Delta>(&*event)) {
      const absl::Status status = Guarded([&] { return Gather(std::move(*delta)); });
      if (!status.ok()) generation_->Abort(status);
    }
    if (Completion* completion = std::get_if<Completion>(&*event)) End(std::move(*completion));
  }
}

absl::Status GenerateReactor::Gather(Delta delta) {
  const v1::Delta message = ToMessage(std::move(delta));
  response_size_ += message.ByteSizeLong();
  if (response_size_ + kCompletionBytes > max_bytes_) {
    return ReasonError(
        absl::StatusCode::kResourceExhausted, v1::ERROR_REASON_ANSWER_TOO_LARGE,
        absl::StrCat("the answer does not fit into one message of ", max_bytes_,
                     " bytes; use StreamGenerate, or ask for fewer tokens or logprobs"),
        {{"available", absl::StrCat(max_bytes_)}});
  }
  ANNULUS_RETURN_IF_ERROR(
      answer_.Hold(CallMemory::kWork, answer_.held() + kGrowth * message.SpaceUsedLong()));
  response_.mutable_text()->append(message.text());
  response_.mutable_token_ids()->MergeFrom(message.token_ids());
  response_.mutable_logprobs()->MergeFrom(message.logprobs());
  return absl::OkStatus();
}

absl::Status GenerateReactor::EncodeAnswer(const Completion& completion) {
  *response_.mutable_completion() = ToMessage(completion, generation_->request_id());
  ANNULUS_RETURN_IF_ERROR(answer_.Hold(CallMemory::kKept, response_.ByteSizeLong()));
  EncodeMessage(response_, response_bytes_);
  return absl::OkStatus();
}

void GenerateReactor::End(Completion completion) {
  if (completion.status.ok()) {
    completion.status = Guarded([&] { return EncodeAnswer(completion); });
  }
  response_.Clear();
  unread_.Begin(call_);
  Finish(generation_->Conclude(completion));
}

void GenerateReactor::OnDone() {
  unread_.End(call_);
  generation_->Close();
  delete this;
}

}  // namespace annulus
