// Documents that outlive the server, and DownloadDocument, over gRPC.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "server/documents/document_file.h"
#include "tests/server/test_server.h"
#include "tests/support/temp_directory.h"

namespace annulus::server {
namespace {

using grpc::StatusCode;
using ::testing::HasSubstr;

struct Download {
  grpc::Status status;
  v1::Document document;
  std::string text;
  std::vector<int64_t> offsets;
};

class KeptDocumentsTest : public ::testing::Test {
 protected:
  KeptDocumentsTest() { Restart(); }

  void Restart(std::vector<std::string> flags = {}) {
    server_.reset();
    flags.insert(flags.end(), {"--documents", folder()});
    server_.emplace(flags);
    server_->engine().set_max_context(int64_t{1} << 26);  // a byte of the documents is a token
    server_->Serve();
    stub_ = server_->documents();
  }
  std::string folder() const { return directory_.path() / "documents"; }

  Download Get(const std::string& name) {
    grpc::ClientContext context;
    v1::DownloadDocumentRequest request;
    request.set_name(name);
    const auto reader = stub_->DownloadDocument(&context, request);
    Download download;
    v1::DownloadDocumentResponse part;
    for (int parts = 0; reader->Read(&part); ++parts) {
      EXPECT_EQ(part.has_document(), parts == 0);
      if (parts == 0) {
        download.document = part.document();
        continue;
      }
      download.offsets.push_back(part.chunk().offset());
      download.text += part.chunk().data();
    }
    download.status = reader->Finish();
    return download;
  }

  testing::TempDirectory directory_;
  std::optional<TestServer> server_;
  std::unique_ptr<v1::DocumentService::Stub> stub_;
};

TEST_F(KeptDocumentsTest, ADownloadBringsEveryByteBackAfterARestart) {
  std::string text(700'000, ' ');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('a' + i * 31 % 26);
  v1::UploadDocumentResponse uploaded;
  const grpc::Status status = server_->Upload("book", text, &uploaded, 100'000, "A book");
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(uploaded.document().has_bytes());
  for (int round = 0; round < 2; ++round, Restart()) {
    const Download download = Get("book");
    ASSERT_TRUE(download.status.ok()) << download.status.error_message();
    EXPECT_EQ(download.text, text);
    EXPECT_EQ(download.document.title(), "A book");
    EXPECT_EQ(download.document.sha256(), uploaded.document().sha256());
    EXPECT_EQ(download.offsets, (std::vector<int64_t>{0, 262'144, 524'288}));
  }
}

TEST_F(KeptDocumentsTest, ErrorsSayWhatIsWrong) {
  EXPECT_EQ(Details(Get("none").status).reason, "DOCUMENT_NOT_FOUND");
  EXPECT_EQ(Details(Get("../etc").status).field, "name");
  ASSERT_TRUE(server_->Upload("a", "text").ok());
  std::filesystem::remove(std::filesystem::directory_iterator(folder())->path());
  for (const auto& file : std::filesystem::directory_iterator(folder())) {
    std::ofstream(file.path()) << "damaged";
  }
  const grpc::Status damaged = Get("a").status;
  EXPECT_EQ(damaged.error_code(), StatusCode::DATA_LOSS);
  EXPECT_EQ(Details(damaged).reason, "DOCUMENT_DAMAGED");

  TestServer without;
  without.Serve();
  ASSERT_TRUE(without.Upload("a", "text").ok());
  stub_ = without.documents();
  const grpc::Status not_kept = Get("a").status;
  EXPECT_EQ(not_kept.error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(Details(not_kept).reason, "DOCUMENT_NOT_KEPT");
}

TEST_F(KeptDocumentsTest, UntilDocumentsAreLoadedCallsSaySo) {
  ASSERT_TRUE(server_->Upload("a", "text").ok());
  server_.reset();
  server_.emplace(std::vector<std::string>{"--documents", folder()});
  stub_ = server_->documents();
  EXPECT_EQ(Details(Get("a").status).reason, "LOADING");
  grpc::ClientContext context;
  v1::ListDocumentsResponse listed;
  EXPECT_EQ(stub_->ListDocuments(&context, {}, &listed).error_code(), StatusCode::UNAVAILABLE);
  server_->Serve();
  EXPECT_EQ(Get("a").text, "text");
}

TEST_F(KeptDocumentsTest, ADownloadCanBeCancelledAndItsDocumentDeleted) {
  constexpr size_t kBytes = size_t{32} << 20;  // more than gRPC's buffers hold
  const grpc::Status status =
      server_->Upload("big", std::string(kBytes, 'x'), nullptr, size_t{1} << 20);
  ASSERT_TRUE(status.ok()) << status.error_message();
  grpc::ClientContext context;
  v1::DownloadDocumentRequest request;
  request.set_name("big");
  const auto reader = stub_->DownloadDocument(&context, request);
  v1::DownloadDocumentResponse part;
  ASSERT_TRUE(reader->Read(&part));
  // Another one goes on although its document is deleted meanwhile.
  grpc::ClientContext other_context;
  const auto other = stub_->DownloadDocument(&other_context, request);
  ASSERT_TRUE(other->Read(&part));
  grpc::ClientContext delete_context;
  v1::DeleteDocumentRequest remove;
  remove.set_name("big");
  v1::DeleteDocumentResponse removed;
  ASSERT_TRUE(stub_->DeleteDocument(&delete_context, remove, &removed).ok());
  size_t received = 0;
  while (other->Read(&part)) received += part.chunk().data().size();
  EXPECT_TRUE(other->Finish().ok());
  EXPECT_EQ(received, kBytes);
  context.TryCancel();
  while (reader->Read(&part)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), StatusCode::CANCELLED);
  EXPECT_EQ(Details(Get("big").status).reason, "DOCUMENT_NOT_FOUND");
}

TEST_F(KeptDocumentsTest, ASecondServerOnTheFolderIsRefusedByName) {
  Logger log(LogLevel::kError);
  ServerConfig config;
  config.listen = "127.0.0.1:0";
  config.documents.folder = folder();
  const auto second = Server::Start(config, log);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(std::string(second.status().message()),
              AllOf(HasSubstr("--documents"), HasSubstr(folder()), HasSubstr("another daemon")));
}

// They last as long as the client likes, so they take a quarter of the memory for requests.
TEST_F(KeptDocumentsTest, DownloadsThatNobodyReadsLeaveMemoryForOthers) {
  Restart({"--max-message-size", "1MiB", "--max-prompts-memory", "6MiB"});
  const grpc::Status status =
      server_->Upload("big", std::string(size_t{32} << 20, 'x'), nullptr, size_t{128} << 10);
  ASSERT_TRUE(status.ok()) << status.error_message();
  v1::DownloadDocumentRequest request;
  request.set_name("big");
  v1::DownloadDocumentResponse part;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::DownloadDocumentResponse>>> readers;
  for (int i = 0; i < 2; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    readers.push_back(stub_->DownloadDocument(contexts.back().get(), request));
    ASSERT_TRUE(readers.back()->Read(&part)) << i;
  }
  const grpc::Status full = Get("big").status;
  EXPECT_EQ(full.error_code(), StatusCode::RESOURCE_EXHAUSTED) << full.error_message();
  EXPECT_EQ(Details(full).reason, "QUEUE_FULL");
  EXPECT_GT(Details(full).retry_ms, 0);
  contexts[0]->TryCancel();
  EXPECT_FALSE(readers[0]->Finish().ok());
  ASSERT_TRUE(server_->Upload("small", "text").ok());
  EXPECT_TRUE(Eventually([&] { return Get("small").text == "text"; })) << "its share is free";
  contexts[1]->TryCancel();
  EXPECT_FALSE(readers[1]->Finish().ok());
}

}  // namespace
}  // namespace annulus::server
