// DocumentService over gRPC.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/config/load_config.h"
#include "tests/server/service_probes.h"
#include "tests/server/test_server.h"
#include "tests/support/temp_directory.h"

namespace annulus::server {
namespace {

using std::chrono::milliseconds;

class DocumentServiceTest : public ::testing::Test {
 protected:
  DocumentServiceTest() : stub_(server_.documents()) { server_.Serve(); }

  std::vector<std::string> Names(int page_size = 0) {
    std::vector<std::string> names;
    v1::ListDocumentsRequest request;
    request.set_page_size(page_size);
    do {
      grpc::ClientContext context;
      v1::ListDocumentsResponse response;
      EXPECT_TRUE(stub_->ListDocuments(&context, request, &response).ok());
      for (const auto& document : response.documents()) names.push_back(document.name());
      request.set_page_token(response.next_page_token());
    } while (!request.page_token().empty());
    return names;
  }

  grpc::Status Get(const std::string& name) {
    grpc::ClientContext context;
    v1::GetDocumentRequest request;
    request.set_name(name);
    v1::GetDocumentResponse response;
    return stub_->GetDocument(&context, request, &response);
  }

  bool CanTokenize(size_t bytes) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(3));
    v1::TokenizeRequest request;
    request.set_text(std::string(bytes, 't'));
    v1::TokenizeResponse response;
    return server_.inference()->Tokenize(&context, request, &response).ok();
  }

  TestServer server_{{"--max-document-size", "1MiB", "--upload-timeout", "300ms"}};
  std::unique_ptr<v1::DocumentService::Stub> stub_;
};

TEST_F(DocumentServiceTest, UploadGetListDelete) {
  v1::UploadDocumentResponse uploaded;
  ASSERT_TRUE(server_.Upload("b.txt", std::string(2500, 'x'), &uploaded).ok());
  EXPECT_EQ(uploaded.document().size_bytes(), 2500);
  EXPECT_EQ(uploaded.document().token_count(), 2500);
  EXPECT_EQ(uploaded.document().sha256().size(), 64u);
  ASSERT_TRUE(server_.Upload("a.txt", "x").ok());
  EXPECT_THAT(Names(), ::testing::ElementsAre("a.txt", "b.txt"));

  grpc::ClientContext context;
  v1::GetDocumentRequest request;
  request.set_name("b.txt");
  v1::GetDocumentResponse response;
  ASSERT_TRUE(stub_->GetDocument(&context, request, &response).ok());
  EXPECT_EQ(response.document().sha256(), uploaded.document().sha256());
  EXPECT_GE(response.document().age(), 0);

  grpc::ClientContext delete_context;
  v1::DeleteDocumentRequest remove;
  remove.set_name("b.txt");
  v1::DeleteDocumentResponse removed;
  EXPECT_TRUE(stub_->DeleteDocument(&delete_context, remove, &removed).ok());
  EXPECT_EQ(Details(Get("b.txt")).reason, "DOCUMENT_NOT_FOUND");
  grpc::ClientContext again_context;
  EXPECT_EQ(Details(stub_->DeleteDocument(&again_context, remove, &removed)).resource_name,
            "b.txt");
}

TEST_F(DocumentServiceTest, TheSameTextTwiceIsFineAnotherIsNot) {
  ASSERT_TRUE(server_.Upload("a", "one").ok());
  EXPECT_TRUE(server_.Upload("a", "one").ok());
  const grpc::Status other = server_.Upload("a", "two");
  EXPECT_EQ(other.error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(Details(other).resource_name, "a");
}

TEST_F(DocumentServiceTest, TitlesAndLastUseAreTold) {
  const std::string title = "r\u00e9sum\u00e9 \"1\"\n\u202e.txt";
  v1::UploadDocumentResponse stored;
  ASSERT_TRUE(server_.Upload("a", "text", &stored, 1000, title).ok());
  EXPECT_EQ(stored.document().title(), title);
  EXPECT_FALSE(stored.document().has_last_used());
  // The first title stays.
  ASSERT_TRUE(server_.Upload("a", "text", &stored, 1000, "other").ok());
  EXPECT_EQ(stored.document().title(), title);
  EXPECT_EQ(Details(server_.Upload("b", "text", nullptr, 1000, std::string(1025, 't'))).field,
            "header.title");
  EXPECT_TRUE(server_.Upload("b", "text", nullptr, 1000, std::string(1024, 't')).ok());

  auto request = TextStreamRequest("?");
  request.mutable_spec()->add_documents("a");
  ASSERT_TRUE(ReadStream(*server_.inference(), request).status.ok());
  grpc::ClientContext context;
  v1::ListDocumentsResponse listed;
  ASSERT_TRUE(stub_->ListDocuments(&context, {}, &listed).ok());
  ASSERT_EQ(listed.documents_size(), 2);
  EXPECT_EQ(listed.documents(0).title(), title);
  EXPECT_TRUE(listed.documents(0).has_last_used());
  EXPECT_GE(listed.documents(0).last_used(), 0);
  EXPECT_LE(listed.documents(0).last_used(), listed.documents(0).age());
  EXPECT_FALSE(listed.documents(1).has_last_used());
}

TEST_F(DocumentServiceTest, TellsWhatTheEngineKeeps) {
  v1::UploadDocumentResponse stored;
  ASSERT_TRUE(server_.Upload("a", "text", &stored).ok());
  ASSERT_TRUE(server_.Upload("b", "other").ok());
  // Both count what follows the document in a prompt, too.
  KeptDocument kept{
      .pinned = true, .expires_in = 90, .memory_tokens = 100, .host_tokens = 2, .disk_tokens = 3};
  server_.engine().set_kept({{stored.document().sha256(), kept}});
  grpc::ClientContext context;
  v1::ListDocumentsResponse listed;
  ASSERT_TRUE(stub_->ListDocuments(&context, {}, &listed).ok());
  ASSERT_EQ(listed.documents_size(), 2);
  EXPECT_TRUE(listed.documents(0).pinned());
  EXPECT_EQ(listed.documents(0).expires_in(), 90);
  EXPECT_EQ(listed.documents(0).memory_tokens(), 4);
  EXPECT_EQ(listed.documents(0).host_tokens(), 2);
  EXPECT_EQ(listed.documents(0).disk_tokens(), 3);
  EXPECT_FALSE(listed.documents(1).pinned());
  EXPECT_FALSE(listed.documents(1).has_expires_in());
  EXPECT_EQ(listed.documents(1).memory_tokens(), 0);

  grpc::ClientContext get_context;
  v1::GetDocumentRequest get;
  get.set_name("a");
  v1::GetDocumentResponse got;
  ASSERT_TRUE(stub_->GetDocument(&get_context, get, &got).ok());
  EXPECT_TRUE(got.document().pinned());
}

TEST_F(DocumentServiceTest, Unpins) {
  v1::UploadDocumentResponse stored;
  ASSERT_TRUE(server_.Upload("a", "text", &stored).ok());
  const auto unpin = [&](const std::string& name) {
    grpc::ClientContext context;
    v1::UnpinDocumentRequest request;
    request.set_name(name);
    v1::UnpinDocumentResponse response;
    return stub_->UnpinDocument(&context, request, &response);
  };
  EXPECT_TRUE(unpin("a").ok());
  EXPECT_THAT(server_.engine().unpinned(),
              ::testing::ElementsAre("default " + stored.document().sha256()));
  EXPECT_EQ(Details(unpin("b")).reason, "DOCUMENT_NOT_FOUND");
  EXPECT_EQ(Details(unpin("../b")).field, "name");
}

// Clients look whether a document is there before they upload it: that is no failed call.
TEST(DocumentLogTest, LookingForADocumentIsNoFailedCall) {
  const testing::TempDirectory directory;
  const std::string file = directory.path() / "log";
  const int descriptor = open(file.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  auto log = std::make_unique<Logger>(LogLevel::kInfo, descriptor);
  FakeEngine engine;
  auto loaded = LoadConfig({"--listen", "127.0.0.1:0", "--metrics", "off"}, {});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  auto server = Server::Start(loaded->config, *log);
  ASSERT_TRUE(server.ok()) << server.status();
  (*server)->StartServing(engine);
  const auto stub = v1::DocumentService::NewStub(grpc::CreateChannel(
      absl::StrCat("127.0.0.1:", (*server)->port()), grpc::InsecureChannelCredentials()));
  grpc::ClientContext look_context;
  v1::GetDocumentRequest look;
  look.set_name("none");
  v1::GetDocumentResponse nothing;
  EXPECT_EQ(stub->GetDocument(&look_context, look, &nothing).error_code(),
            grpc::StatusCode::NOT_FOUND);
  grpc::ClientContext remove_context;
  v1::DeleteDocumentRequest remove;
  remove.set_name("none");
  v1::DeleteDocumentResponse removed;
  EXPECT_EQ(stub->DeleteDocument(&remove_context, remove, &removed).error_code(),
            grpc::StatusCode::NOT_FOUND);
  server->reset();
  log.reset();
  close(descriptor);
  std::ifstream written(file);
  const std::string lines(std::istreambuf_iterator<char>(written), {});
  EXPECT_THAT(lines, ::testing::Not(::testing::HasSubstr("GetDocument")));
  EXPECT_THAT(lines, ::testing::HasSubstr("call_failed call=DeleteDocument"));
}

TEST_F(DocumentServiceTest, ListsInPages) {
  for (const char* name : {"a", "b", "c", "d", "e"}) ASSERT_TRUE(server_.Upload(name, "x").ok());
  for (const int page_size : {1, 2, 5, 1000}) EXPECT_EQ(Names(page_size).size(), 5u) << page_size;
  v1::ListDocumentsResponse response;
  for (const int page_size : {-1, 1001, INT32_MIN, INT32_MAX}) {
    grpc::ClientContext context;
    v1::ListDocumentsRequest request;
    request.set_page_size(page_size);
    EXPECT_EQ(Details(stub_->ListDocuments(&context, request, &response)).field, "page_size");
  }
  grpc::ClientContext context;
  v1::ListDocumentsRequest request;
  request.set_page_token("../x");
  EXPECT_EQ(Details(stub_->ListDocuments(&context, request, &response)).field, "page_token");
}

TEST_F(DocumentServiceTest, BadNamesAreRefusedEverywhere) {
  for (const std::string& bad : {std::string("../x"), std::string(""), std::string(129, 'x')}) {
    EXPECT_EQ(Details(Get(bad)).field, "name");
    EXPECT_EQ(Details(server_.Upload(bad, "x")).field, "header.name");
  }
}

TEST_F(DocumentServiceTest, TooLongIsRefusedBeforeAnyChunk) {
  grpc::ClientContext context;
  v1::UploadDocumentResponse response;
  const auto writer = stub_->UploadDocument(&context, &response);
  v1::UploadDocumentRequest request;
  request.mutable_header()->set_name("big");
  request.mutable_header()->set_total_bytes(100'000'000);
  ASSERT_TRUE(writer->Write(request));
  const grpc::Status status = writer->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_EQ(Details(status).metadata.at("needed"), "100000000");
  EXPECT_EQ(Details(status).metadata.at("available"), std::to_string(1 << 20));
}

// Opens an upload and sends a header and one chunk.
class HalfUpload {
 public:
  explicit HalfUpload(v1::DocumentService::Stub& stub)
      : writer_(stub.UploadDocument(&context_, &response_)) {
    v1::UploadDocumentRequest request;
    request.mutable_header()->set_name("half");
    EXPECT_TRUE(writer_->Write(request));
    request.mutable_chunk()->set_data("first half");
    EXPECT_TRUE(writer_->Write(request));
  }
  grpc::ClientContext& context() { return context_; }
  grpc::ClientWriter<v1::UploadDocumentRequest>& writer() { return *writer_; }

 private:
  grpc::ClientContext context_;
  v1::UploadDocumentResponse response_;
  std::unique_ptr<grpc::ClientWriter<v1::UploadDocumentRequest>> writer_;
};

double Metric(const std::string& text, const std::string& line_start) {
  const size_t at = text.find("\n" + line_start + " ");
  return at == std::string::npos ? -1 : std::stod(text.substr(at + line_start.size() + 2));
}

TEST(StoppedUploadTest, LeavesNothing) {
  TestServer server({"--metrics", "127.0.0.1:0"});
  server.Serve();
  const auto stub = server.documents();
  const auto memory = [&] {
    return Metric(Scrape(server.metrics_address()), "annulus_document_memory_bytes");
  };
  {
    HalfUpload upload(*stub);
    ASSERT_TRUE(Eventually([&] { return memory() > 0; }));
    upload.context().TryCancel();
    EXPECT_EQ(upload.writer().Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  EXPECT_TRUE(Eventually([&] { return memory() == 0; }));
  grpc::ClientContext context;
  v1::ListDocumentsResponse response;
  ASSERT_TRUE(stub->ListDocuments(&context, {}, &response).ok());
  EXPECT_EQ(response.documents_size(), 0);
}

TEST_F(DocumentServiceTest, AnUploadWithoutItsEndIsIncomplete) {
  grpc::ClientContext context;
  v1::UploadDocumentResponse response;
  const auto writer = stub_->UploadDocument(&context, &response);
  v1::UploadDocumentRequest request;
  request.mutable_header()->set_name("a");
  request.mutable_header()->set_total_bytes(10);
  ASSERT_TRUE(writer->Write(request));
  request.mutable_chunk()->set_data("12345");
  ASSERT_TRUE(writer->Write(request));
  writer->WritesDone();
  const grpc::Status status = writer->Finish();
  EXPECT_EQ(Details(status).reason, "DOCUMENT_INCOMPLETE");
  EXPECT_TRUE(Names().empty());
}

TEST_F(DocumentServiceTest, ASilentUploadIsCutOff) {
  HalfUpload upload(*stub_);
  const auto start = std::chrono::steady_clock::now();
  const grpc::Status status = upload.writer().Finish();  // sends nothing more, and waits
  EXPECT_FALSE(status.ok());
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(5000));
  EXPECT_TRUE(Names().empty());
}

// A byte within each --upload-timeout held the upload's memory for as long as its client liked.
TEST_F(DocumentServiceTest, AnUploadThatTricklesIsCutOff) {
  HalfUpload upload(*stub_);
  v1::UploadDocumentRequest part;
  int64_t offset = 10;  // behind what it has sent already
  bool open = true;
  for (int i = 0; i < 100 && open; ++i) {
    part.mutable_chunk()->set_offset(offset++);
    part.mutable_chunk()->set_data("x");
    open = upload.writer().Write(part);
    std::this_thread::sleep_for(milliseconds(100));
  }
  EXPECT_FALSE(open);
  EXPECT_FALSE(upload.writer().Finish().ok());
  EXPECT_TRUE(Names().empty());
}

TEST_F(DocumentServiceTest, UploadsSideBySideDoNotMix) {
  std::vector<std::thread> clients;
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back([this, i] {
      const std::string name(1, static_cast<char>('a' + i));
      for (int round = 0; round < 5; ++round) {
        EXPECT_TRUE(server_.Upload(name, std::string(2000, name[0]), nullptr, 100).ok());
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(Names().size(), 4u);
}

TEST_F(DocumentServiceTest, TheEngineForgetsADeletedText) {
  const auto remove = [&](const std::string& name) {
    grpc::ClientContext context;
    v1::DeleteDocumentRequest request;
    request.set_name(name);
    v1::DeleteDocumentResponse response;
    return stub_->DeleteDocument(&context, request, &response);
  };
  v1::UploadDocumentResponse uploaded;
  ASSERT_TRUE(server_.Upload("a", "text", &uploaded).ok());
  ASSERT_TRUE(server_.Upload("b", "text").ok());
  const std::string content = uploaded.document().sha256();
  auto request = TextStreamRequest("?");
  request.mutable_spec()->add_documents("a");
  const auto inference = server_.inference();
  grpc::ClientContext context;
  const auto reader = inference->StreamGenerate(&context, request);
  v1::StreamGenerateResponse response;
  while (reader->Read(&response)) {
  }
  ASSERT_TRUE(reader->Finish().ok());
  const std::vector<PromptDocument> documents = server_.engine().submitted().at(0).documents;
  ASSERT_EQ(documents.size(), 1u);
  EXPECT_EQ(documents[0].content, content);
  EXPECT_EQ(server_.engine().submitted()[0].prompt.at(documents[0].begin), 't');

  EXPECT_TRUE(remove("a").ok());
  EXPECT_TRUE(server_.engine().forgotten().empty()) << "the same text is there as b";
  EXPECT_TRUE(remove("b").ok());
  EXPECT_THAT(server_.engine().forgotten(), ::testing::ElementsAre("default " + content));
  ASSERT_TRUE(server_.Upload("a", "text").ok());
  server_.engine().set_forget_status(absl::UnavailableError("/folder: broken"));
  const grpc::Status failed = remove("a");
  EXPECT_EQ(failed.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_THAT(failed.error_message(), ::testing::Not(::testing::HasSubstr("/folder")));
  EXPECT_EQ(Details(Get("a")).reason, "DOCUMENT_NOT_FOUND");
}

// The client takes back what it uploaded for a question that failed; what was computed stays.
TEST_F(DocumentServiceTest, ATransientUploadIsTakenBackAndItsKeysStay) {
  const auto upload = [&](const std::string& name, bool transient) {
    grpc::ClientContext context;
    v1::UploadDocumentResponse response;
    const auto writer = stub_->UploadDocument(&context, &response);
    v1::UploadDocumentRequest request;
    request.mutable_header()->set_name(name);
    request.mutable_header()->set_transient(transient);
    writer->Write(request);
    request.mutable_chunk()->set_data("text");
    writer->Write(request);
    writer->WritesDone();
    EXPECT_TRUE(writer->Finish().ok());
    EXPECT_EQ(response.document().transient(), transient);
  };
  const auto take_back = [&](const std::string& name) {
    grpc::ClientContext context;
    v1::DeleteDocumentRequest request;
    request.set_name(name);
    request.set_if_unused(true);
    v1::DeleteDocumentResponse response;
    return stub_->DeleteDocument(&context, request, &response);
  };
  upload("lent", true);
  upload("kept", false);
  upload("wanted", true);
  EXPECT_TRUE(Get("wanted").ok());
  for (const char* name : {"lent", "kept", "wanted"}) EXPECT_TRUE(take_back(name).ok()) << name;
  EXPECT_THAT(Names(), ::testing::ElementsAre("kept", "wanted"));
  EXPECT_EQ(take_back("lent").error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_TRUE(server_.engine().forgotten().empty());
}

// Many deletions wait for a disk that hangs; nobody else does, and they end when they are
// cancelled.
TEST_F(DocumentServiceTest, ADiskThatHangsDelaysDeletionsAlone) {
  constexpr int kCalls = 60;
  for (int i = 0; i < kCalls; ++i) {
    const std::string name = "a" + std::to_string(i);
    ASSERT_TRUE(server_.Upload(name, "text of " + name).ok());
  }
  server_.engine().set_forgetting_hangs(true);
  std::vector<grpc::ClientContext> contexts(kCalls);
  std::vector<v1::DeleteDocumentResponse> responses(kCalls);
  grpc::CompletionQueue ended;
  std::vector<grpc::Status> statuses(kCalls);
  int begun = 0;
  const auto begin = [&](int calls) {
    for (; begun < calls; ++begun) {
      v1::DeleteDocumentRequest remove;
      remove.set_name("a" + std::to_string(begun));
      grpc::ClientContext& context = contexts[begun];
      context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
      stub_->AsyncDeleteDocument(&context, remove, &ended)
          ->Finish(&responses[begun], &statuses[begun], &context);
    }
  };
  const auto can_generate = [&](size_t bytes) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
    v1::GenerateResponse response;
    const auto inference = server_.inference();
    return inference->Generate(&context, TextRequest(std::string(bytes, 't')), &response).ok();
  };
  server_.engine().set_scripter([](const RequestSpec&) {
    FakeScript script;
    script.deltas = {"x"};
    return script;
  });
  begin(8);
  ASSERT_TRUE(Eventually([&] { return server_.engine().forgotten().size() == 8; }));
  EXPECT_TRUE(CanTokenize(200'000)) << "long work of the same client";
  begin(kCalls);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(can_generate(1000));
    EXPECT_EQ(CheckHealth(server_.channel(), ""), HealthStatus::kServing);
  }
  for (grpc::ClientContext& context : contexts) context.TryCancel();
  const auto due = std::chrono::system_clock::now() + std::chrono::seconds(10);
  for (int i = 0; i < kCalls; ++i) {
    void* tag = nullptr;
    bool ok = false;
    ASSERT_EQ(ended.AsyncNext(&tag, &ok, due), grpc::CompletionQueue::GOT_EVENT) << i;
  }
  for (const grpc::Status& status : statuses) EXPECT_FALSE(status.ok());
  // The threads are free again, though the disk still hangs.
  EXPECT_TRUE(Eventually([&] { return CanTokenize(200'000); }));
}

// Between the look-up of its documents and its submission, a request has work to do.
TEST_F(DocumentServiceTest, ARequestIsFromBeforeItsDocumentsAreDeleted) {
  ASSERT_TRUE(server_.Upload("a", "text").ok());
  auto request = TextStreamRequest("?");
  request.mutable_spec()->add_documents("a");
  server_.engine().set_tokenize_delay(milliseconds(200));
  std::thread asks([&] { ReadStream(*server_.inference(), request); });
  EXPECT_TRUE(Eventually([&] { return server_.engine().tokenizing() > 0; }));
  const auto deleted = std::chrono::steady_clock::now();
  asks.join();
  const std::vector<RequestSpec> submitted = server_.engine().submitted();
  ASSERT_EQ(submitted.size(), 1u);
  ASSERT_TRUE(submitted[0].documents_found.has_value());
  EXPECT_LT(*submitted[0].documents_found, deleted);
}

TEST_F(DocumentServiceTest, ADocumentInUseMayBeDeleted) {
  ASSERT_TRUE(server_.Upload("a", "text").ok());
  server_.engine().set_scripter([](const RequestSpec&) {
    FakeScript script;
    script.deltas.assign(20, "x");
    script.interval = milliseconds(10);
    return script;
  });
  auto request = TextStreamRequest("?");
  request.mutable_spec()->add_documents("a");
  const auto inference = server_.inference();
  grpc::ClientContext context;
  const auto reader = inference->StreamGenerate(&context, request);
  v1::StreamGenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  grpc::ClientContext delete_context;
  v1::DeleteDocumentRequest remove;
  remove.set_name("a");
  v1::DeleteDocumentResponse removed;
  ASSERT_TRUE(stub_->DeleteDocument(&delete_context, remove, &removed).ok());
  while (reader->Read(&response)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
}

}  // namespace
}  // namespace annulus::server
