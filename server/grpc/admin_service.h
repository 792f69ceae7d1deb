#ifndef ANNULUS_SERVER_GRPC_ADMIN_SERVICE_H_
#define ANNULUS_SERVER_GRPC_ADMIN_SERVICE_H_

#include "annulus/v1/admin.grpc.pb.h"
#include "server/generation/service_context.h"

namespace annulus::server {

using RawAdminService = v1::AdminService::WithRawCallbackMethod_GetServerInfo<
    v1::AdminService::WithRawCallbackMethod_GetLoad<
        v1::AdminService::WithRawCallbackMethod_Drain<v1::AdminService::Service>>>;
// The API's AdminService: what this server is, its load, and Drain, which AdminGate guards.
class AdminService final : public RawAdminService {
 public:
  explicit AdminService(ServiceContext& context) : context_(context) {}

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* call,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GetLoad(grpc::CallbackServerContext* call,
                                    const grpc::ByteBuffer* request,
                                    grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* call,
                                  const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override;

 private:
  ServiceContext& context_;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GRPC_ADMIN_SERVICE_H_
