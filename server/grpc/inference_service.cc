#include "server/grpc/inference_service.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/generation/attention_messages.h"
#include "server/generation/chat_messages.h"
#include "server/generation/request_builder.h"
#include "server/grpc/calls/ask_many_reactor.h"
#include "server/grpc/calls/generate_reactor.h"
#include "server/grpc/calls/stream_generate_reactor.h"
#include "server/grpc/calls/unary_call.h"
#include "server/grpc/plan_request.h"
#include "server/work/work_cost.h"

namespace annulus::server {
namespace {

// Turns the engine's INVALID_ARGUMENT about a text or ids into an error of that field.
absl::Status AsField(absl::string_view field, const absl::Status& status) {
  return absl::IsInvalidArgument(status) ? FieldError(field, status.message()) : status;
}

// Upper bound of the answer with the ids of a text: at most one id for each byte.
size_t IdsAnswer(size_t text_bytes) { return text_bytes * sizeof(int32_t); }

absl::StatusOr<size_t> CostOfTokenize(ServiceContext&, const v1::TokenizeRequest& request,
                                      const CancelFlag&) {
  return TokenizeMemory::Of(request.text()) + IdsAnswer(request.text().size());
}

absl::StatusOr<size_t> CostOfDetokenize(ServiceContext& context,
                                        const v1::DetokenizeRequest& request,
                                        const CancelFlag& cancel) {
  ANNULUS_ASSIGN_OR_RETURN(const Engine* engine, context.lifecycle.engine());
  const std::span<const int32_t> ids(request.token_ids().data(),
                                     static_cast<size_t>(request.token_ids_size()));
  return DetokenizeWork(*engine, ids, request.skip_special(), context.config.max_message_bytes,
                        cancel);
}

// Drawing uses two doubles for each cell of each head that differs from the others. The maps have
// one byte for each cell and are copied into the answer.
absl::StatusOr<size_t> CostOfMapAttention(ServiceContext& context,
                                          const v1::MapAttentionRequest& request,
                                          const CancelFlag&) {
  ANNULUS_ASSIGN_OR_RETURN(const BlockMapSpec spec,
                           ReadMapRequest(request, context.config.engine.attention));
  constexpr size_t kMostModelHeads = 128;  // of keys and values
  const size_t heads = spec.heads == 0 ? kMostModelHeads : static_cast<size_t>(spec.heads);
  const size_t cells = heads * static_cast<size_t>(spec.cells) * static_cast<size_t>(spec.cells);
  return (2 * sizeof(double) + 2) * std::min(cells, context.config.max_message_bytes);
}

absl::Status HandleTokenize(ServiceContext& context, const v1::TokenizeRequest& request,
                            v1::TokenizeResponse& response, const CancelFlag& cancel) {
  ANNULUS_ASSIGN_OR_RETURN(const Engine* engine, context.lifecycle.engine());
  ANNULUS_RETURN_IF_ERROR(context.CheckModel(request.model()));
  const bool add_special = !request.has_add_special() || request.add_special();
  const auto ids = engine->Tokenize(request.text(), add_special, cancel);
  if (!ids.ok()) return AsField("text", ids.status());
  response.mutable_token_ids()->Add(ids->begin(), ids->end());
  return absl::OkStatus();
}

absl::Status HandleApplyChatTemplate(const OwnWork& work,
                                     const v1::ApplyChatTemplateRequest& request,
                                     v1::ApplyChatTemplateResponse& response,
                                     const CancelFlag& cancel) {
  ServiceContext& context = work.context;
  ANNULUS_ASSIGN_OR_RETURN(const Engine* engine, context.lifecycle.engine());
  ANNULUS_RETURN_IF_ERROR(context.CheckModel(request.model()));
  const size_t foreseen = MessagesWork(request.messages());
  ANNULUS_RETURN_IF_ERROR(work.memory.Hold(CallMemory::kWork, foreseen));
  WorkGrant grant(work.memory, foreseen);
  ANNULUS_ASSIGN_OR_RETURN(RenderedChat chat,
                           ApplyChatTemplate(*engine, request.messages(), "messages",
                                             /*documents=*/{}, cancel, grant));
  const size_t ids = chat.token_ids.capacity() * sizeof(int32_t);
  ANNULUS_RETURN_IF_ERROR(
      work.memory.Hold(CallMemory::kWork, chat.text.capacity() + ids + IdsAnswer(ids)));
  response.set_text(std::move(chat.text));
  response.mutable_token_ids()->Add(chat.token_ids.begin(), chat.token_ids.end());
  response.set_system_folded(chat.system_folded);
  return absl::OkStatus();
}

absl::Status HandleRenderPrompt(const OwnWork& work, const v1::RenderPromptRequest& request,
                                v1::RenderPromptResponse& response, const CancelFlag& cancel) {
  ServiceContext& context = work.context;
  ANNULUS_ASSIGN_OR_RETURN(const Engine* engine, context.lifecycle.engine());
  ANNULUS_RETURN_IF_ERROR(context.CheckModel(request.spec().model()));
  ANNULUS_ASSIGN_OR_RETURN(
      const BuiltRequest built,
      BuildRequest(request.spec(), *engine, context.documents, work.tenant, work.memory, cancel));
  const RequestSpec& spec = built.spec;
  const std::vector<int32_t>& ids = spec.prompt;
  const absl::Status valid = engine->Validate(spec);
  if (absl::IsOutOfRange(valid)) {
    const int64_t needed = static_cast<int64_t>(ids.size()) + spec.sampling.max_tokens;
    return TooLargeError(request.spec(), valid, needed, engine->model().max_context);
  }
  if (!valid.ok()) return PlaceField(request.spec(), valid);
  const size_t most_bytes = context.config.max_message_bytes;
  ANNULUS_ASSIGN_OR_RETURN(
      const size_t bytes, DetokenizeWork(*engine, ids, /*skip_special=*/false, most_bytes, cancel));
  ANNULUS_RETURN_IF_ERROR(
      work.memory.Hold(CallMemory::kWork, KeptBytes(spec) + ids.size() * sizeof(int32_t) + bytes));
  auto text = engine->Detokenize(ids, /*skip_special=*/false, cancel);
  ANNULUS_RETURN_IF_ERROR(text.status());
  response.set_text(*std::move(text));
  response.mutable_token_ids()->Add(ids.begin(), ids.end());
  response.set_system_folded(built.system_folded);
  return absl::OkStatus();
}

absl::Status HandleDetokenize(ServiceContext& context, const v1::DetokenizeRequest& request,
                              v1::DetokenizeResponse& response, const CancelFlag& cancel) {
  ANNULUS_ASSIGN_OR_RETURN(const Engine* engine, context.lifecycle.engine());
  ANNULUS_RETURN_IF_ERROR(context.CheckModel(request.model()));
  const std::span<const int32_t> ids(request.token_ids().data(),
                                     static_cast<size_t>(request.token_ids_size()));
  auto text = engine->Detokenize(ids, request.has_skip_special() && request.skip_special(), cancel);
  if (!text.ok()) return AsField("token_ids", text.status());
  response.set_text(*std::move(text));
  return absl::OkStatus();
}

absl::Status HandleMapAttention(ServiceContext& context, const v1::MapAttentionRequest& request,
                                v1::MapAttentionResponse& response, const CancelFlag& cancel) {
  ANNULUS_ASSIGN_OR_RETURN(const Engine* engine, context.lifecycle.engine());
  ANNULUS_RETURN_IF_ERROR(context.CheckModel(request.model()));
  ANNULUS_ASSIGN_OR_RETURN(BlockMapSpec spec,
                           ReadMapRequest(request, context.config.engine.attention));
  spec.most_map_bytes = context.config.max_message_bytes;
  const auto map = engine->MapAttention(spec, cancel);
  if (absl::IsResourceExhausted(map.status())) {
    return ReasonError(absl::StatusCode::kOutOfRange, v1::ERROR_REASON_ANSWER_TOO_LARGE,
                       map.status().message(), {{"available", absl::StrCat(spec.most_map_bytes)}});
  }
  if (absl::IsOutOfRange(map.status())) return FieldError("tokens", map.status().message());
  if (!map.ok()) return AsField("policy", map.status());
  response = ToMessage(*map, spec.policy);
  return absl::OkStatus();
}

RawUnaryCall SizedBy(grpc::CallbackServerContext* call, const grpc::ByteBuffer* request,
                     grpc::ByteBuffer* response, absl::string_view name, absl::string_view field) {
  RawUnaryCall raw{call, request, response, name};
  raw.size_field = field;
  return raw;
}

}  // namespace

grpc::ServerUnaryReactor* InferenceService::Generate(grpc::CallbackServerContext* call,
                                                     const grpc::ByteBuffer* request,
                                                     grpc::ByteBuffer* response) {
  return new GenerateReactor(context_, *call, *request, *response);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* InferenceService::StreamGenerate(
    grpc::CallbackServerContext* call, const grpc::ByteBuffer* request) {
  return new StreamGenerateReactor(context_, *call, *request,
                                   StreamedGeneration(context_, *request));
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* InferenceService::AskMany(
    grpc::CallbackServerContext* call, const grpc::ByteBuffer* request) {
  return new AskManyReactor(context_, *call, *request);
}

grpc::ServerUnaryReactor* InferenceService::Tokenize(grpc::CallbackServerContext* call,
                                                     const grpc::ByteBuffer* request,
                                                     grpc::ByteBuffer* response) {
  return AnswerInPool(context_, SizedBy(call, request, response, "Tokenize", "text"),
                      HandleTokenize, CostOfTokenize);
}

grpc::ServerUnaryReactor* InferenceService::ApplyChatTemplate(grpc::CallbackServerContext* call,
                                                              const grpc::ByteBuffer* request,
                                                              grpc::ByteBuffer* response) {
  return AnswerInPool(context_, SizedBy(call, request, response, "ApplyChatTemplate", "messages"),
                      HandleApplyChatTemplate);
}

grpc::ServerUnaryReactor* InferenceService::MapAttention(grpc::CallbackServerContext* call,
                                                         const grpc::ByteBuffer* request,
                                                         grpc::ByteBuffer* response) {
  RawUnaryCall raw = SizedBy(call, request, response, "MapAttention", "cells");
  raw.long_work = true;
  return AnswerInPool(context_, raw, HandleMapAttention, CostOfMapAttention);
}

grpc::ServerUnaryReactor* InferenceService::RenderPrompt(grpc::CallbackServerContext* call,
                                                         const grpc::ByteBuffer* request,
                                                         grpc::ByteBuffer* response) {
  return AnswerInPool(context_, SizedBy(call, request, response, "RenderPrompt", "spec"),
                      HandleRenderPrompt);
}

grpc::ServerUnaryReactor* InferenceService::Plan(grpc::CallbackServerContext* call,
                                                 const grpc::ByteBuffer* request,
                                                 grpc::ByteBuffer* response) {
  return AnswerInPool(context_, SizedBy(call, request, response, "Plan", "spec"), HandlePlan);
}

grpc::ServerUnaryReactor* InferenceService::Detokenize(grpc::CallbackServerContext* call,
                                                       const grpc::ByteBuffer* request,
                                                       grpc::ByteBuffer* response) {
  return AnswerInPool(context_, SizedBy(call, request, response, "Detokenize", "token_ids"),
                      HandleDetokenize, CostOfDetokenize);
}

}  // namespace annulus::server
