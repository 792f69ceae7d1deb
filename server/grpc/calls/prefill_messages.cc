#include "server/grpc/calls/prefill_messages.h"

#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "annulus/v1/document.pb.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/generation/messages.h"
#include "server/generation/prefill.h"
#include "server/grpc/calls/wire.h"

namespace annulus::server {
namespace {

absl::StatusOr<std::chrono::milliseconds> ReadTtl(double seconds) {
  constexpr double kYear = 365 * 24 * 3600;
  if (seconds >= 1 && seconds <= kYear) {
    return std::chrono::milliseconds(std::llround(seconds * 1000));
  }
  return FieldError("ttl", absl::StrCat("a time to live of ", seconds,
                                        " seconds is not allowed: 1 to 31536000, a year"));
}

absl::StatusOr<AskedGeneration> DecodePrefill(const grpc::ByteBuffer& bytes, size_t max_bytes,
                                              CallMemory& memory) {
  v1::PrefillDocumentRequest request;
  ANNULUS_RETURN_IF_ERROR(DecodeMessage(bytes, max_bytes, memory, request));
  ANNULUS_RETURN_IF_ERROR(CheckDocumentName("name", request.name()));
  for (const std::string& name : request.before()) {
    ANNULUS_RETURN_IF_ERROR(CheckDocumentName("before", name));
  }
  AskedGeneration asked;
  asked.prefill_only = true;
  v1::GenerationSpec& spec = asked.spec;
  spec.set_model(std::move(*request.mutable_model()));
  spec.mutable_documents()->Swap(request.mutable_before());
  spec.add_documents(std::move(*request.mutable_name()));
  SetPrefillMessages(spec, request.has_system() ? std::optional(request.system()) : std::nullopt);
  if (request.has_attention()) spec.mutable_attention()->Swap(request.mutable_attention());
  if (request.has_request_id()) spec.set_request_id(std::move(*request.mutable_request_id()));
  spec.set_priority(request.priority());
  asked.pin = request.pin();
  if (request.has_ttl()) {
    ANNULUS_ASSIGN_OR_RETURN(asked.ttl, ReadTtl(request.ttl()));
  }
  return asked;
}

StreamedCall::Message PrefillEvent(SinkEvent& event, const GenerationRun& generation,
                                   bool /*first*/) {
  auto response = std::make_unique<v1::PrefillDocumentResponse>();
  if (const QueuedEvent* queued = std::get_if<QueuedEvent>(&event)) {
    response->mutable_queued()->set_position(queued->position);
  } else if (const PromptProgress* progress = std::get_if<PromptProgress>(&event)) {
    *response->mutable_prompt_progress() = ToMessage(*progress);
  } else if (const Completion* completion = std::get_if<Completion>(&event)) {
    v1::Prefilled& done = *response->mutable_done();
    done.set_tokens(completion->usage.prompt_tokens);
    done.set_cached_tokens(completion->usage.cached_tokens);
    done.set_queue(completion->timings.queue);
    done.set_prefill(completion->timings.prefill);
    done.set_request_id(generation.request_id());
    if (completion->usage.cache_miss.has_value()) {
      *done.mutable_cache_miss() = ToMessage(*completion->usage.cache_miss);
    }
  }
  return response;
}

}  // namespace

StreamedCall StreamedPrefill(const ServiceContext& context, const grpc::ByteBuffer& request) {
  auto decode = [bytes = request, max_bytes = context.config.max_message_bytes](CallMemory& memory,
                                                                                const CancelFlag&) {
    return DecodePrefill(bytes, max_bytes, memory);
  };
  return {kPrefillDocument, std::move(decode), &PrefillEvent};
}

}  // namespace annulus::server
