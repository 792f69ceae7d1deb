#ifndef ANNULUS_SERVER_GRPC_INFERENCE_SERVICE_H_
#define ANNULUS_SERVER_GRPC_INFERENCE_SERVICE_H_

#include "annulus/v1/inference.grpc.pb.h"
#include "server/generation/service_context.h"

namespace annulus::server {

using RawInferenceService = v1::InferenceService::WithRawCallbackMethod_Generate<
    v1::InferenceService::WithRawCallbackMethod_StreamGenerate<
        v1::InferenceService::WithRawCallbackMethod_AskMany<
            v1::InferenceService::WithRawCallbackMethod_Tokenize<
                v1::InferenceService::WithRawCallbackMethod_ApplyChatTemplate<
                    v1::InferenceService::WithRawCallbackMethod_MapAttention<
                        v1::InferenceService::WithRawCallbackMethod_RenderPrompt<
                            v1::InferenceService::WithRawCallbackMethod_Plan<
                                v1::InferenceService::WithRawCallbackMethod_Detokenize<
                                    v1::InferenceService::Service>>>>>>>>>;

class InferenceService final : public RawInferenceService {
 public:
  explicit InferenceService(ServiceContext& context) : context_(context) {}

  grpc::ServerUnaryReactor* Generate(grpc::CallbackServerContext* call,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* StreamGenerate(
      grpc::CallbackServerContext* call, const grpc::ByteBuffer* request) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* AskMany(grpc::CallbackServerContext* call,
                                                      const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* call,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ApplyChatTemplate(grpc::CallbackServerContext* call,
                                              const grpc::ByteBuffer* request,
                                              grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* MapAttention(grpc::CallbackServerContext* call,
                                         const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* RenderPrompt(grpc::CallbackServerContext* call,
                                         const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Plan(grpc::CallbackServerContext* call, const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* call,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;

 private:
  ServiceContext& context_;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GRPC_INFERENCE_SERVICE_H_
