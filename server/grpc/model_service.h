#ifndef ANNULUS_SERVER_GRPC_MODEL_SERVICE_H_
#define ANNULUS_SERVER_GRPC_MODEL_SERVICE_H_

#include "annulus/v1/model.grpc.pb.h"
#include "server/generation/service_context.h"

namespace annulus::server {

using RawModelService = v1::ModelService::WithRawCallbackMethod_ListModels<
    v1::ModelService::WithRawCallbackMethod_GetModel<v1::ModelService::Service>>;

class ModelService final : public RawModelService {
 public:
  explicit ModelService(ServiceContext& context) : context_(context) {}

  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* call,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* call,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;

 private:
  ServiceContext& context_;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GRPC_MODEL_SERVICE_H_
