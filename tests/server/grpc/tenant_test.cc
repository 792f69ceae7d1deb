// Who calls decides what is seen: two tenants on one server, told apart by an authenticator of the
// test's own.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/server/grpc/named_tenants.h"
#include "tests/server/test_server.h"

namespace annulus::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class TenantTest : public ::testing::Test {
 protected:
  TenantTest() : server_({}, std::make_unique<NamedTenants>()), stub_(server_.documents()) {
    server_.Serve();
  }

  static std::unique_ptr<grpc::ClientContext> As(const std::string& tenant) {
    auto context = std::make_unique<grpc::ClientContext>();
    context->AddMetadata("x-tenant", tenant);
    return context;
  }

  grpc::Status Upload(const std::string& tenant, const std::string& name, const std::string& text) {
    const auto context = As(tenant);
    v1::UploadDocumentResponse response;
    const auto writer = stub_->UploadDocument(context.get(), &response);
    v1::UploadDocumentRequest request;
    request.mutable_header()->set_name(name);
    writer->Write(request);
    request.mutable_chunk()->set_data(text);
    writer->Write(request);
    writer->WritesDone();
    return writer->Finish();
  }

  std::vector<std::string> Names(const std::string& tenant, const std::string& after = "") {
    const auto context = As(tenant);
    v1::ListDocumentsRequest request;
    request.set_page_token(after);
    v1::ListDocumentsResponse response;
    EXPECT_TRUE(stub_->ListDocuments(context.get(), request, &response).ok());
    std::vector<std::string> names;
    for (const auto& document : response.documents()) names.push_back(document.name());
    return names;
  }

  // The document's SHA-256, or what the refusal says.
  std::string Get(const std::string& tenant, const std::string& name) {
    const auto context = As(tenant);
    v1::GetDocumentRequest request;
    request.set_name(name);
    v1::GetDocumentResponse response;
    const grpc::Status status = stub_->GetDocument(context.get(), request, &response);
    return status.ok() ? response.document().sha256() : Details(status).reason;
  }

  // What the refusal says.
  std::string DownloadAs(const std::string& tenant, const std::string& name) {
    const auto context = As(tenant);
    v1::DownloadDocumentRequest request;
    request.set_name(name);
    return Details(stub_->DownloadDocument(context.get(), request)->Finish()).reason;
  }

  std::string Delete(const std::string& tenant, const std::string& name) {
    const auto context = As(tenant);
    v1::DeleteDocumentRequest request;
    request.set_name(name);
    v1::DeleteDocumentResponse response;
    return Details(stub_->DeleteDocument(context.get(), request, &response)).reason;
  }

  grpc::Status Ask(const std::string& tenant, const std::string& document) {
    const auto context = As(tenant);
    v1::GenerateRequest request = TextRequest("?");
    request.mutable_spec()->add_documents(document);
    v1::GenerateResponse response;
    return server_.inference()->Generate(context.get(), request, &response);
  }

  TestServer server_;
  std::unique_ptr<v1::DocumentService::Stub> stub_;
};

TEST_F(TenantTest, DocumentsAreSeenByTheirTenantAlone) {
  ASSERT_TRUE(Upload("a", "x", "one").ok());
  ASSERT_TRUE(Upload("a", "y", "one").ok());
  EXPECT_THAT(Names("b"), IsEmpty());
  EXPECT_EQ(Get("b", "x"), "DOCUMENT_NOT_FOUND");
  EXPECT_EQ(DownloadAs("b", "x"), "DOCUMENT_NOT_FOUND");
  EXPECT_EQ(DownloadAs("a", "x"), "DOCUMENT_NOT_KEPT");
  EXPECT_EQ(Delete("b", "x"), "DOCUMENT_NOT_FOUND");
  EXPECT_EQ(Details(Ask("b", "x")).reason, "DOCUMENT_NOT_FOUND");
  // A name that another tenant has is free, for any text.
  EXPECT_TRUE(Upload("b", "x", "two").ok());
  EXPECT_NE(Get("a", "x"), Get("b", "x"));
  EXPECT_THAT(Names("a"), ElementsAre("x", "y"));
  EXPECT_THAT(Names("b"), ElementsAre("x"));
  // Neighbours in the store's order: a list ends with its tenant.
  EXPECT_THAT(Names("a", "x"), ElementsAre("y"));
  EXPECT_THAT(Names("a", "y"), IsEmpty());
  EXPECT_EQ(Delete("b", "x"), "");
  EXPECT_THAT(Names("a"), ElementsAre("x", "y"));
}

TEST_F(TenantTest, RequestsCarryTheCallersTenant) {
  ASSERT_TRUE(Upload("a", "x", "one").ok());
  ASSERT_TRUE(Upload("b", "x", "two").ok());
  EXPECT_TRUE(Ask("a", "x").ok());
  EXPECT_TRUE(Ask("b", "x").ok());
  const auto context = As("c");
  EXPECT_TRUE(ReadStream(*server_.inference(), TextStreamRequest("?"), context.get()).status.ok());
  const std::vector<RequestSpec> submitted = server_.engine().submitted();
  ASSERT_EQ(submitted.size(), 3u);
  EXPECT_EQ(submitted[0].tenant.name(), "a");
  EXPECT_EQ(submitted[1].tenant.name(), "b");
  EXPECT_EQ(submitted[2].tenant.name(), "c");
  EXPECT_EQ(submitted[0].prompt[1], 'o');
  EXPECT_EQ(submitted[1].prompt[1], 't');
}

TEST_F(TenantTest, WithoutAnIdentityNothingIsAnswered) {
  grpc::ClientContext list;
  v1::ListDocumentsResponse documents;
  EXPECT_EQ(stub_->ListDocuments(&list, {}, &documents).error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(server_.Upload("x", "one").error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(ReadStream(*server_.inference(), TextStreamRequest("?")).status.error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
}

// The one token that there is today, and none, give the same tenant.
TEST(TenantOfEverybodyTest, IsTheDefault) {
  TestServer server;
  server.Serve();
  EXPECT_TRUE(ReadStream(*server.inference(), TextStreamRequest("?")).status.ok());
  EXPECT_EQ(server.engine().submitted().at(0).tenant, TenantId());
}

}  // namespace
}  // namespace annulus::server
