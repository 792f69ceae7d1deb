#include "server/document_service.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/errors.h"
#include "server/messages.h"
#include "server/prefill_messages.h"
#include "server/unary_call.h"

namespace annulus {
namespace {

constexpr int kLargestPage = 1000;

absl::Status HandleGetDocument(ServiceContext& context, const TenantId& tenant,
                               const v1::GetDocumentRequest& request,
                               v1::GetDocumentResponse& response) {
  ANNULUS_RETURN_IF_ERROR(CheckDocumentName("name", request.name()));
  ANNULUS_ASSIGN_OR_RETURN(const DocumentPtr document,
                           context.documents.Get(tenant, request.name()));
  *response.mutable_document() = ToMessage(*document);
  return absl::OkStatus();
}

absl::Status HandleListDocuments(ServiceContext& context, const TenantId& tenant,
                                 const v1::ListDocumentsRequest& request,
                                 v1::ListDocumentsResponse& response) {
  if (request.page_size() < 0 || request.page_size() > kLargestPage) {
    return FieldError("page_size",
                      absl::StrCat(request.page_size(), " is not allowed: 0 to ", kLargestPage));
  }
  // The token of a page is the last name of the page before.
  if (!request.page_token().empty()) {
    ANNULUS_RETURN_IF_ERROR(CheckDocumentName("page_token", request.page_token()));
  }
  const size_t size =
      static_cast<size_t>(request.page_size() == 0 ? kLargestPage : request.page_size());
  const auto documents = context.documents.List(tenant, request.page_token(), size + 1);
  for (size_t i = 0; i < documents.size() && i < size; ++i) {
    *response.add_documents() = ToMessage(*documents[i]);
  }
  if (documents.size() > size) response.set_next_page_token(documents[size - 1]->name);
  return absl::OkStatus();
}

// Looks at every page on the disk, and waits for the disk.
absl::Status HandleDeleteDocument(const OwnWork& work, const v1::DeleteDocumentRequest& request,
                                  v1::DeleteDocumentResponse&, const CancelFlag& cancel) {
  ServiceContext& context = work.context;
  const TenantId& tenant = work.tenant;
  ANNULUS_RETURN_IF_ERROR(CheckDocumentName("name", request.name()));
  ANNULUS_ASSIGN_OR_RETURN(const DocumentStore::Deleted deleted,
                           context.documents.Delete(tenant, request.name()));
  const absl::StatusOr<Engine*> engine = context.lifecycle.engine();
  if (!deleted.last || !engine.ok()) return absl::OkStatus();
  const absl::Status forgotten =
      (*engine)->ForgetDocument(tenant, deleted.document->sha256, cancel);
  if (forgotten.ok() || absl::IsCancelled(forgotten)) return forgotten;
  // The client hears of a fault of the server, the log has the reason. Not UNAVAILABLE: who tries
  // again finds no document.
  return absl::InternalError(
      absl::StrCat("the document is deleted, but not all that kv-disk keeps of prompts with it: ",
                   forgotten.message()));
}

}  // namespace

grpc::ServerReadReactor<grpc::ByteBuffer>* DocumentService::UploadDocument(
    grpc::CallbackServerContext* call, grpc::ByteBuffer* response) {
  return new UploadReactor(context_, uploads_, *call, *response);
}

grpc::ServerUnaryReactor* DocumentService::GetDocument(grpc::CallbackServerContext* call,
                                                       const grpc::ByteBuffer* request,
                                                       grpc::ByteBuffer* response) {
  return AnswerNow(context_, {call, request, response, "GetDocument"}, HandleGetDocument);
}

grpc::ServerUnaryReactor* DocumentService::ListDocuments(grpc::CallbackServerContext* call,
                                                         const grpc::ByteBuffer* request,
                                                         grpc::ByteBuffer* response) {
  return AnswerNow(context_, {call, request, response, "ListDocuments"}, HandleListDocuments);
}

grpc::ServerUnaryReactor* DocumentService::DeleteDocument(grpc::CallbackServerContext* call,
                                                          const grpc::ByteBuffer* request,
                                                          grpc::ByteBuffer* response) {
  const RawUnaryCall raw = {call,
                            request,
                            response,
                            "DeleteDocument",
                            /*for_admins=*/false,
                            /*long_work=*/true,
                            /*most_request_bytes=*/kMostSmallRequestBytes};
  return AnswerInPool(context_, raw, HandleDeleteDocument);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* DocumentService::PrefillDocument(
    grpc::CallbackServerContext* call, const grpc::ByteBuffer* request) {
  return new StreamGenerateReactor(context_, *call, *request, StreamedPrefill(context_, *request));
}

}  // namespace annulus
