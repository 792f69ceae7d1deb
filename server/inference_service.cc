#include "server/inference_service.h"

#include <utility>

#include "kernels/base/status_macros.h"
#include "server/attention_messages.h"
#include "server/chat_messages.h"
#include "server/errors.h"
#include "server/generate_reactor.h"
#include "server/stream_generate_reactor.h"
#include "server/unary_call.h"

namespace annulus {
namespace {

// What the engine says about bad text or ids, as an error of that field.
absl::Status AsField(absl::string_view field, const absl::Status& status) {
  return absl::IsInvalidArgument(status) ? FieldError(field, status.message()) : status;
}

absl::Status HandleTokenize(ServiceContext& context, const v1::TokenizeRequest& request,
                            v1::TokenizeResponse& response) {
  ANNULUS_ASSIGN_OR_RETURN(const Engine* engine, context.lifecycle.engine());
  ANNULUS_RETURN_IF_ERROR(context.CheckModel(request.model()));
  const bool add_special = !request.has_add_special() || request.add_special();
  const auto ids = engine->Tokenize(request.text(), add_special);
  if (!ids.ok()) return AsField("text", ids.status());
  response.mutable_token_ids()->Add(ids->begin(), ids->end());
  return absl::OkStatus();
}

absl::Status HandleApplyChatTemplate(ServiceContext& context,
                                     const v1::ApplyChatTemplateRequest& request,
                                     v1::ApplyChatTemplateResponse& response) {
  ANNULUS_ASSIGN_OR_RETURN(const Engine* engine, context.lifecycle.engine());
  ANNULUS_RETURN_IF_ERROR(context.CheckModel(request.model()));
  ANNULUS_ASSIGN_OR_RETURN(RenderedChat chat,
                           ApplyChatTemplate(*engine, request.messages(), "messages",
                                             /*with_documents=*/false));
  response.set_text(std::move(chat.text));
  response.mutable_token_ids()->Add(chat.token_ids.begin(), chat.token_ids.end());
  return absl::OkStatus();
}

absl::Status HandleDetokenize(ServiceContext& context, const v1::DetokenizeRequest& request,
                              v1::DetokenizeResponse& response) {
  ANNULUS_ASSIGN_OR_RETURN(const Engine* engine, context.lifecycle.engine());
  ANNULUS_RETURN_IF_ERROR(context.CheckModel(request.model()));
  const std::span<const int32_t> ids(request.token_ids().data(),
                                     static_cast<size_t>(request.token_ids_size()));
  auto text = engine->Detokenize(ids, request.has_skip_special() && request.skip_special());
  if (!text.ok()) return AsField("token_ids", text.status());
  response.set_text(*std::move(text));
  return absl::OkStatus();
}

absl::Status HandleMapAttention(ServiceContext& context, const v1::MapAttentionRequest& request,
                                v1::MapAttentionResponse& response) {
  ANNULUS_ASSIGN_OR_RETURN(const Engine* engine, context.lifecycle.engine());
  ANNULUS_RETURN_IF_ERROR(context.CheckModel(request.model()));
  ANNULUS_ASSIGN_OR_RETURN(const BlockMapSpec spec,
                           ReadMapRequest(request, context.config.engine.attention));
  const auto map = engine->MapAttention(spec);
  if (absl::IsOutOfRange(map.status())) return FieldError("tokens", map.status().message());
  if (!map.ok()) return AsField("policy", map.status());
  response = ToMessage(*map, spec.policy);
  return absl::OkStatus();
}

}  // namespace

grpc::ServerUnaryReactor* InferenceService::Generate(grpc::CallbackServerContext* call,
                                                     const grpc::ByteBuffer* request,
                                                     grpc::ByteBuffer* response) {
  return new GenerateReactor(context_, *call, *request, *response);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* InferenceService::StreamGenerate(
    grpc::CallbackServerContext* call, const grpc::ByteBuffer* request) {
  return new StreamGenerateReactor(context_, *call, *request);
}

grpc::ServerUnaryReactor* InferenceService::Tokenize(grpc::CallbackServerContext* call,
                                                     const grpc::ByteBuffer* request,
                                                     grpc::ByteBuffer* response) {
  return AnswerInPool(context_, {call, request, response, "Tokenize"}, HandleTokenize);
}

grpc::ServerUnaryReactor* InferenceService::ApplyChatTemplate(grpc::CallbackServerContext* call,
                                                              const grpc::ByteBuffer* request,
                                                              grpc::ByteBuffer* response) {
  return AnswerInPool(context_, {call, request, response, "ApplyChatTemplate"},
                      HandleApplyChatTemplate);
}

grpc::ServerUnaryReactor* InferenceService::MapAttention(grpc::CallbackServerContext* call,
                                                         const grpc::ByteBuffer* request,
                                                         grpc::ByteBuffer* response) {
  return AnswerInPool(context_, {call, request, response, "MapAttention"}, HandleMapAttention);
}

grpc::ServerUnaryReactor* InferenceService::Detokenize(grpc::CallbackServerContext* call,
                                                       const grpc::ByteBuffer* request,
                                                       grpc::ByteBuffer* response) {
  return AnswerInPool(context_, {call, request, response, "Detokenize"}, HandleDetokenize);
}

}  // namespace annulus
