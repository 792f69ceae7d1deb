#ifndef ANNULUS_SERVER_GRPC_DOCUMENT_SERVICE_H_
#define ANNULUS_SERVER_GRPC_DOCUMENT_SERVICE_H_

#include "annulus/v1/document.grpc.pb.h"
#include "server/generation/service_context.h"
#include "server/grpc/calls/upload_reactor.h"

namespace annulus::server {

using RawDocumentService = v1::DocumentService::WithRawCallbackMethod_UploadDocument<
    v1::DocumentService::WithRawCallbackMethod_GetDocument<
        v1::DocumentService::WithRawCallbackMethod_ListDocuments<
            v1::DocumentService::WithRawCallbackMethod_DeleteDocument<
                v1::DocumentService::WithRawCallbackMethod_UnpinDocument<
                    v1::DocumentService::WithRawCallbackMethod_PrefillDocument<
                        v1::DocumentService::WithRawCallbackMethod_DownloadDocument<
                            v1::DocumentService::Service>>>>>>>;

class DocumentService final : public RawDocumentService {
 public:
  explicit DocumentService(ServiceContext& context) : context_(context) {}

  // Cuts off uploads that are silent or too slow; see UploadRegistry::CutOffSlow.
  void CutOffSlow(SteadyTime now, std::chrono::milliseconds timeout) {
    uploads_.CutOffSlow(now, timeout);
  }

  grpc::ServerReadReactor<grpc::ByteBuffer>* UploadDocument(grpc::CallbackServerContext* call,
                                                            grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GetDocument(grpc::CallbackServerContext* call,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ListDocuments(grpc::CallbackServerContext* call,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* DeleteDocument(grpc::CallbackServerContext* call,
                                           const grpc::ByteBuffer* request,
                                           grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* UnpinDocument(grpc::CallbackServerContext* call,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* PrefillDocument(
      grpc::CallbackServerContext* call, const grpc::ByteBuffer* request) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* DownloadDocument(
      grpc::CallbackServerContext* call, const grpc::ByteBuffer* request) override;

 private:
  ServiceContext& context_;
  UploadRegistry uploads_;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GRPC_DOCUMENT_SERVICE_H_
