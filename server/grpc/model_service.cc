#include "server/grpc/model_service.h"

#include "kernels/base/status_macros.h"
#include "server/generation/messages.h"
#include "server/grpc/calls/unary_call.h"

namespace annulus::server {
namespace {

absl::Status HandleListModels(ServiceContext& context, const v1::ListModelsRequest&,
                              v1::ListModelsResponse& response) {
  ANNULUS_ASSIGN_OR_RETURN(const Engine* engine, context.lifecycle.engine());
  *response.add_models() = ToMessage(engine->model(), context.config.served_model_name);
  return absl::OkStatus();
}

absl::Status HandleGetModel(ServiceContext& context, const v1::GetModelRequest& request,
                            v1::GetModelResponse& response) {
  ANNULUS_ASSIGN_OR_RETURN(const Engine* engine, context.lifecycle.engine());
  ANNULUS_RETURN_IF_ERROR(context.CheckModel(request.name()));
  *response.mutable_model() = ToMessage(engine->model(), context.config.served_model_name);
  return absl::OkStatus();
}

}  // namespace

grpc::ServerUnaryReactor* ModelService::ListModels(grpc::CallbackServerContext* call,
                                                   const grpc::ByteBuffer* request,
                                                   grpc::ByteBuffer* response) {
  return AnswerNow(context_, {call, request, response, "ListModels"}, HandleListModels);
}

grpc::ServerUnaryReactor* ModelService::GetModel(grpc::CallbackServerContext* call,
                                                 const grpc::ByteBuffer* request,
                                                 grpc::ByteBuffer* response) {
  return AnswerNow(context_, {call, request, response, "GetModel"}, HandleGetModel);
}

}  // namespace annulus::server
