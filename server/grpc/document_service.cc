#include "server/grpc/document_service.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/generation/messages.h"
#include "server/generation/stored_documents.h"
#include "server/grpc/calls/download_reactor.h"
#include "server/grpc/calls/prefill_messages.h"
#include "server/grpc/calls/unary_call.h"

namespace annulus::server {
namespace {

constexpr int kLargestPage = 1000;

// Returns messages that describe the documents and, if there is an engine, how much of each is in
// memory and on disk.
absl::StatusOr<std::vector<v1::Document>> Describe(const OwnWork& work,
                                                   const std::vector<DocumentPtr>& documents,
                                                   const CancelFlag& cancel) {
  ANNULUS_ASSIGN_OR_RETURN(const std::vector<KeptDocument> kept,
                           FindKept(work.context, work.tenant, documents, cancel));
  std::vector<v1::Document> messages;
  for (size_t i = 0; i < documents.size(); ++i) {
    messages.push_back(ToMessage(*documents[i], kept[i]));
  }
  return messages;
}

absl::Status HandleGetDocument(const OwnWork& work, const v1::GetDocumentRequest& request,
                               v1::GetDocumentResponse& response, const CancelFlag& cancel) {
  ANNULUS_RETURN_IF_ERROR(work.context.CheckDocumentsLoaded());
  ANNULUS_RETURN_IF_ERROR(CheckDocumentName("name", request.name()));
  ANNULUS_ASSIGN_OR_RETURN(const DocumentPtr document,
                           work.context.documents.Promise(work.tenant, request.name()));
  ANNULUS_ASSIGN_OR_RETURN(std::vector<v1::Document> described, Describe(work, {document}, cancel));
  *response.mutable_document() = std::move(described.front());
  return absl::OkStatus();
}

absl::Status HandleListDocuments(const OwnWork& work, const v1::ListDocumentsRequest& request,
                                 v1::ListDocumentsResponse& response, const CancelFlag& cancel) {
  ANNULUS_RETURN_IF_ERROR(work.context.CheckDocumentsLoaded());
  if (request.page_size() < 0 || request.page_size() > kLargestPage) {
    return FieldError("page_size",
                      absl::StrCat(request.page_size(), " is not allowed: 0 to ", kLargestPage));
  }
  // A page token is the last name of the previous page.
  if (!request.page_token().empty()) {
    ANNULUS_RETURN_IF_ERROR(CheckDocumentName("page_token", request.page_token()));
  }
  const size_t size =
      static_cast<size_t>(request.page_size() == 0 ? kLargestPage : request.page_size());
  auto documents = work.context.documents.List(work.tenant, request.page_token(), size + 1);
  if (documents.size() > size) {
    documents.resize(size);
    response.set_next_page_token(documents.back()->name);
  }
  ANNULUS_ASSIGN_OR_RETURN(std::vector<v1::Document> described, Describe(work, documents, cancel));
  for (v1::Document& document : described) *response.add_documents() = std::move(document);
  return absl::OkStatus();
}

absl::Status HandleUnpinDocument(ServiceContext& context, const TenantId& tenant,
                                 const v1::UnpinDocumentRequest& request,
                                 v1::UnpinDocumentResponse&) {
  ANNULUS_RETURN_IF_ERROR(context.CheckDocumentsLoaded());
  ANNULUS_RETURN_IF_ERROR(CheckDocumentName("name", request.name()));
  ANNULUS_ASSIGN_OR_RETURN(const DocumentPtr document,
                           context.documents.Get(tenant, request.name()));
  const absl::StatusOr<Engine*> engine = context.lifecycle.engine();
  if (engine.ok()) (*engine)->UnpinDocument(tenant, document->sha256);  // else nothing is pinned
  return absl::OkStatus();
}

absl::Status HandleDeleteDocument(const OwnWork& work, const v1::DeleteDocumentRequest& request,
                                  v1::DeleteDocumentResponse&, const CancelFlag& cancel) {
  ANNULUS_RETURN_IF_ERROR(work.context.CheckDocumentsLoaded());
  ANNULUS_RETURN_IF_ERROR(CheckDocumentName("name", request.name()));
  if (request.if_unused()) {
    return work.context.documents.DeleteIfUnused(work.tenant, request.name());
  }
  return DeleteStoredDocument(work.context, work.tenant, request.name(), cancel);
}

RawUnaryCall SmallCall(grpc::CallbackServerContext* call, const grpc::ByteBuffer* request,
                       grpc::ByteBuffer* response, absl::string_view name) {
  RawUnaryCall raw{call, request, response, name};
  raw.most_request_bytes = kMostSmallRequestBytes;
  return raw;
}

}  // namespace

grpc::ServerReadReactor<grpc::ByteBuffer>* DocumentService::UploadDocument(
    grpc::CallbackServerContext* call, grpc::ByteBuffer* response) {
  return new UploadReactor(context_, uploads_, *call, *response);
}

grpc::ServerUnaryReactor* DocumentService::GetDocument(grpc::CallbackServerContext* call,
                                                       const grpc::ByteBuffer* request,
                                                       grpc::ByteBuffer* response) {
  return AnswerInPool(context_, SmallCall(call, request, response, "GetDocument"),
                      HandleGetDocument);
}

grpc::ServerUnaryReactor* DocumentService::ListDocuments(grpc::CallbackServerContext* call,
                                                         const grpc::ByteBuffer* request,
                                                         grpc::ByteBuffer* response) {
  return AnswerInPool(context_, SmallCall(call, request, response, "ListDocuments"),
                      HandleListDocuments);
}

grpc::ServerUnaryReactor* DocumentService::DeleteDocument(grpc::CallbackServerContext* call,
                                                          const grpc::ByteBuffer* request,
                                                          grpc::ByteBuffer* response) {
  RawUnaryCall raw = SmallCall(call, request, response, "DeleteDocument");
  raw.long_work = true;
  return AnswerInPool(context_, raw, HandleDeleteDocument);
}

grpc::ServerUnaryReactor* DocumentService::UnpinDocument(grpc::CallbackServerContext* call,
                                                         const grpc::ByteBuffer* request,
                                                         grpc::ByteBuffer* response) {
  return AnswerNow(context_, {call, request, response, "UnpinDocument"}, HandleUnpinDocument);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* DocumentService::PrefillDocument(
    grpc::CallbackServerContext* call, const grpc::ByteBuffer* request) {
  return new StreamGenerateReactor(context_, *call, *request, StreamedPrefill(context_, *request));
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* DocumentService::DownloadDocument(
    grpc::CallbackServerContext* call, const grpc::ByteBuffer* request) {
  return new DownloadReactor(context_, *call, *request);
}

}  // namespace annulus::server
