// Tokens, roles and quotas of a tokens file, through the whole server.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/config/load_config.h"
#include "tests/server/test_server.h"
#include "tests/support/temp_directory.h"

namespace annulus::server {
namespace {

using grpc::StatusCode;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string CallerEntry(const std::string& token, const std::string& roles) {
  return absl::StrCat("      - {token: \"", TokenHash::Of(token).text(), "\", roles: [", roles,
                      "]}\n");
}

std::string TenantEntry(const std::string& name, const std::string& quotas,
                        const std::string& callers) {
  return absl::StrCat("  - name: ", name, "\n    quotas: {", quotas, "}\n    callers:\n", callers);
}

class IdentityTest : public ::testing::Test {
 protected:
  // Also while the server runs: replaced as a careful writer does it.
  void WriteTokens(const std::string& tenants) {
    directory_.Write("new", absl::StrCat("tenants:\n", tenants));
    ASSERT_EQ(chmod((directory_.path() / "new").c_str(), 0600), 0);
    std::filesystem::rename(directory_.path() / "new", path());
  }
  std::string path() const { return directory_.path() / "tokens.yaml"; }

  void Serve(const std::string& tenants, const std::vector<std::string>& more = {}) {
    WriteTokens(tenants);
    std::vector<std::string> flags = {"--tokens-file", path(), "--metrics", "127.0.0.1:0"};
    flags.insert(flags.end(), more.begin(), more.end());
    server_ = std::make_unique<TestServer>(flags);
    server_->Serve();
  }

  static std::unique_ptr<grpc::ClientContext> As(const std::string& token) {
    auto context = std::make_unique<grpc::ClientContext>();
    if (!token.empty()) context->AddMetadata("authorization", "Bearer " + token);
    return context;
  }

  grpc::Status Generate(const std::string& token) {
    const auto context = As(token);
    return ReadStream(*server_->inference(), TextStreamRequest("?"), context.get()).status;
  }

  grpc::Status Upload(const std::string& token, const std::string& name, size_t bytes) {
    const auto context = As(token);
    v1::UploadDocumentResponse response;
    const auto stub = server_->documents();
    const auto writer = stub->UploadDocument(context.get(), &response);
    v1::UploadDocumentRequest request;
    request.mutable_header()->set_name(name);
    writer->Write(request);
    request.mutable_chunk()->set_data(std::string(bytes, 'x'));
    writer->Write(request);
    writer->WritesDone();
    return writer->Finish();
  }

  const testing::TempDirectory directory_;
  std::unique_ptr<TestServer> server_;
};

TEST_F(IdentityTest, EachTenantHasAShareOfTheStore) {
  const std::string both = TenantEntry("greedy", "", CallerEntry("g", "documents")) +
                           TenantEntry("modest", "", CallerEntry("m", "documents"));
  const std::string watcher = TenantEntry("watcher", "", CallerEntry("w", "metrics"));
  Serve(both + watcher, {"--max-documents", "4"});
  EXPECT_TRUE(Upload("g", "1", 10).ok());
  EXPECT_TRUE(Upload("g", "2", 10).ok());
  const grpc::Status full = Upload("g", "3", 10);
  EXPECT_EQ(Details(full).reason, "DOCUMENT_STORE_FULL");
  EXPECT_EQ(Details(full).metadata.at("limit"), "2");
  EXPECT_TRUE(Upload("m", "1", 10).ok());
  // A new tokens file counts at once.
  WriteTokens(TenantEntry("greedy", "", CallerEntry("g", "documents")));
  EXPECT_TRUE(Eventually([&] { return Upload("g", "3", 10).ok(); }, std::chrono::seconds(10)));
}

TEST_F(IdentityTest, EachCallNeedsItsRole) {
  Serve(TenantEntry("acme", "",
                    CallerEntry("g", "generate") + CallerEntry("d", "documents") +
                        CallerEntry("m", "metrics") + CallerEntry("a", "admin")));
  const auto unary = [&](auto stub, auto method, auto request, auto response) {
    return [stub = std::shared_ptr(std::move(stub)), method, request,
            response](grpc::ClientContext* context) mutable {
      return ((*stub).*method)(context, request, &response);
    };
  };
  using Inference = v1::InferenceService::Stub;
  using Documents = v1::DocumentService::Stub;
  using Models = v1::ModelService::Stub;
  using Admin = v1::AdminService::Stub;
  struct Row {
    const char* name;
    std::function<grpc::Status(grpc::ClientContext*)> call;
    std::string allowed;  // the tokens
  };
  const std::vector<Row> rows = {
      {"Generate",
       unary(server_->inference(), &Inference::Generate, TextRequest("?"), v1::GenerateResponse()),
       "g"},
      {"Tokenize",
       unary(server_->inference(), &Inference::Tokenize, v1::TokenizeRequest(),
             v1::TokenizeResponse()),
       "g"},
      {"Detokenize",
       unary(server_->inference(), &Inference::Detokenize, v1::DetokenizeRequest(),
             v1::DetokenizeResponse()),
       "g"},
      {"MapAttention",
       unary(server_->inference(), &Inference::MapAttention, v1::MapAttentionRequest(),
             v1::MapAttentionResponse()),
       "g"},
      {"Plan", unary(server_->inference(), &Inference::Plan, v1::PlanRequest(), v1::PlanResponse()),
       "g"},
      {"RenderPrompt",
       unary(server_->inference(), &Inference::RenderPrompt, v1::RenderPromptRequest(),
             v1::RenderPromptResponse()),
       "g"},
      {"ApplyChatTemplate",
       unary(server_->inference(), &Inference::ApplyChatTemplate, v1::ApplyChatTemplateRequest(),
             v1::ApplyChatTemplateResponse()),
       "g"},
      {"GetDocument",
       unary(server_->documents(), &Documents::GetDocument, v1::GetDocumentRequest(),
             v1::GetDocumentResponse()),
       "d"},
      {"DownloadDocument",
       [this](grpc::ClientContext* context) {
         return server_->documents()->DownloadDocument(context, {})->Finish();
       },
       "d"},
      {"ListDocuments",
       unary(server_->documents(), &Documents::ListDocuments, v1::ListDocumentsRequest(),
             v1::ListDocumentsResponse()),
       "d"},
      {"DeleteDocument",
       unary(server_->documents(), &Documents::DeleteDocument, v1::DeleteDocumentRequest(),
             v1::DeleteDocumentResponse()),
       "d"},
      {"UnpinDocument",
       unary(server_->documents(), &Documents::UnpinDocument, v1::UnpinDocumentRequest(),
             v1::UnpinDocumentResponse()),
       "gd"},
      {"ListModels",
       unary(server_->models(), &Models::ListModels, v1::ListModelsRequest(),
             v1::ListModelsResponse()),
       "gdma"},
      {"GetModel",
       unary(server_->models(), &Models::GetModel, v1::GetModelRequest(), v1::GetModelResponse()),
       "gdma"},
      {"GetServerInfo",
       unary(server_->admin(), &Admin::GetServerInfo, v1::GetServerInfoRequest(),
             v1::GetServerInfoResponse()),
       "gdma"},
      {"GetLoad",
       unary(server_->admin(), &Admin::GetLoad, v1::GetLoadRequest(), v1::GetLoadResponse()), "ma"},
      {"Drain", unary(server_->admin(), &Admin::Drain, v1::DrainRequest(), v1::DrainResponse()),
       "a"},
  };
  for (const Row& row : rows) {
    for (const char token : {'g', 'd', 'm', 'a'}) {
      const auto context = As(std::string(1, token));
      const grpc::Status status = row.call(context.get());
      const bool allowed = row.allowed.find(token) != std::string::npos;
      EXPECT_EQ(status.error_code() != StatusCode::PERMISSION_DENIED, allowed)
          << row.name << " as " << token << ": " << status.error_message();
      if (!allowed && row.allowed != "a") {
        EXPECT_EQ(Details(status).reason, "ROLE_MISSING");
        EXPECT_THAT(status.error_message(),
                    AllOf(HasSubstr(row.name), HasSubstr("acme"), HasSubstr("tokens file")));
      }
    }
    for (const char* unknown : {"", "x"}) {
      EXPECT_EQ(row.call(As(unknown).get()).error_code(), StatusCode::UNAUTHENTICATED) << row.name;
    }
  }
}

TEST_F(IdentityTest, StreamsAndUploadsNeedTheirRoleToo) {
  Serve(TenantEntry("acme", "", CallerEntry("g", "generate") + CallerEntry("d", "documents")));
  EXPECT_TRUE(Generate("g").ok());
  EXPECT_EQ(Generate("d").error_code(), StatusCode::PERMISSION_DENIED);
  EXPECT_TRUE(Upload("d", "x", 1).ok());
  EXPECT_EQ(Upload("g", "x", 1).error_code(), StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(server_->engine().submitted().at(0).tenant.name(), "acme");
}

TEST_F(IdentityTest, QuotasAreRefusedWithWhenToComeBack) {
  Serve(TenantEntry("few", "requests_per_minute: 2", CallerEntry("few", "generate")) +
        TenantEntry("short", "tokens_per_minute: 3", CallerEntry("short", "generate")) +
        TenantEntry("small", "document_bytes: 2058", CallerEntry("small", "documents")) +
        TenantEntry("one", "documents: 1", CallerEntry("one", "documents")) +
        TenantEntry("room", "kv_bytes: 2MiB, host_bytes: 4MiB, disk_bytes: 3MiB",
                    CallerEntry("room", "generate")));
  const auto expect = [](const grpc::Status& status, const std::string& quota, bool retry) {
    EXPECT_EQ(status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_EQ(Details(status).reason, "QUOTA_EXCEEDED");
    EXPECT_EQ(Details(status).metadata["quota"], quota);
    EXPECT_EQ(Details(status).retry_ms > 0, retry) << quota;
  };
  EXPECT_TRUE(Generate("few").ok());
  EXPECT_TRUE(Generate("few").ok());
  expect(Generate("few"), "requests_per_minute", true);
  EXPECT_TRUE(Generate("short").ok()) << "what it will use is not known yet";
  expect(Generate("short"), "tokens_per_minute", true);
  // 1,024 bytes more for each, so that texts without length fill nobody's store.
  EXPECT_TRUE(Upload("small", "a", 6).ok());
  expect(Upload("small", "b", 5), "document_bytes", false);
  EXPECT_TRUE(Upload("small", "c", 4).ok()) << "what was refused is given back";
  expect(Upload("small", "d", 1), "document_bytes", false);
  EXPECT_TRUE(Upload("one", "a", 6).ok());
  expect(Upload("one", "b", 5), "documents", false);
  // The engine counts keys and values, and refuses.
  EXPECT_TRUE(Generate("room").ok());
  EXPECT_EQ(server_->engine().submitted().back().tenant_room.kv_bytes, 2 << 20);
  EXPECT_EQ(server_->engine().submitted().back().tenant_room.host_bytes, 4 << 20);
  EXPECT_EQ(server_->engine().submitted().back().tenant_room.disk_bytes, 3 << 20);
  for (const bool retry : {true, false}) {
    server_->engine().set_scripter([retry](const RequestSpec&) {
      FakeScript script;
      script.completion.status = absl::ResourceExhaustedError("the tenant is full");
      script.completion.status.SetPayload(kLimitPayload, absl::Cord("kv_bytes"));
      if (retry) script.completion.status.SetPayload(kRetryPayload, absl::Cord("1500"));
      return script;
    });
    const grpc::Status refused = Generate("room");
    expect(refused, "kv_bytes", retry);
    EXPECT_EQ(Details(refused).metadata["limit"], "2097152");
  }
  EXPECT_EQ(ScrapeSamples(server_->metrics_address())
                .at("annulus_quota_refusals_total{quota=\"kv_bytes\"}"),
            2);
}

TEST_F(IdentityTest, RunningOnesAreLimitedAndTheirEndsGiveRoom) {
  Serve(TenantEntry("one", "running_requests: 1", CallerEntry("one", "generate")));
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(Generate("one").ok()) << i;  // one after another
  server_->engine().set_scripter(
      [](const RequestSpec&) { return Endless(std::chrono::milliseconds(1)); });
  const auto context = As("one");
  const auto stub = server_->inference();
  const auto stream = stub->StreamGenerate(context.get(), TextStreamRequest("?"));
  v1::StreamGenerateResponse event;
  ASSERT_TRUE(stream->Read(&event));
  EXPECT_EQ(Details(Generate("one")).metadata["quota"], "running_requests");
  context->TryCancel();
  stream->Finish();
  server_->engine().set_scripter([](const RequestSpec&) { return FakeScript(); });
  EXPECT_TRUE(Eventually([&] { return Generate("one").ok(); }));
}

TEST_F(IdentityTest, AChangedFileIsUsedAndNoStreamIsLost) {
  Serve(TenantEntry("acme", "", CallerEntry("old", "generate")));
  server_->engine().set_scripter([](const RequestSpec& spec) {
    return spec.prompt.size() > 3 ? Endless(std::chrono::milliseconds(1)) : FakeScript();
  });
  const auto context = As("old");
  const auto stub = server_->inference();
  const auto stream = stub->StreamGenerate(context.get(), TextStreamRequest("go on and on"));
  v1::StreamGenerateResponse event;
  ASSERT_TRUE(stream->Read(&event));
  WriteTokens(TenantEntry("acme", "", CallerEntry("new", "generate")));
  EXPECT_TRUE(Eventually([&] { return Generate("new").ok(); }));
  EXPECT_EQ(Generate("old").error_code(), StatusCode::UNAUTHENTICATED);
  WriteTokens("nonsense");
  EXPECT_TRUE(Eventually([&] {
    return ScrapeSamples(server_->metrics_address()).at("annulus_reload_failed") == 1;
  })) << "it was read";
  for (int i = 0; i < 300; ++i) ASSERT_TRUE(stream->Read(&event)) << i;
  EXPECT_TRUE(Generate("new").ok()) << "a broken file keeps the old one";
  context->TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), StatusCode::CANCELLED);
}

// The log tells whose call failed, and of nobody's call no tenant's name.
TEST_F(IdentityTest, RefusedCallsAreLoggedUnderTheirTenant) {
  WriteTokens(TenantEntry("acme", "", CallerEntry("d", "documents")));
  const std::string file = directory_.path() / "log";
  const int descriptor = open(file.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  auto log = std::make_unique<Logger>(LogLevel::kInfo, descriptor);
  auto loaded =
      LoadConfig({"--listen", "127.0.0.1:0", "--metrics", "off", "--tokens-file", path()}, {});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  auto server = Server::Start(loaded->config, *log);
  ASSERT_TRUE(server.ok()) << server.status();
  const auto stub = v1::InferenceService::NewStub(grpc::CreateChannel(
      absl::StrCat("127.0.0.1:", (*server)->port()), grpc::InsecureChannelCredentials()));
  for (const char* token : {"", "x", "d"}) {
    v1::GenerateResponse response;
    EXPECT_FALSE(stub->Generate(As(token).get(), TextRequest("?"), &response).ok());
  }
  // Refused before anybody looks at the token.
  const auto large = As("d");
  large->AddMetadata("x-large", std::string(20'000, 'x'));
  v1::GenerateResponse response;
  EXPECT_FALSE(stub->Generate(large.get(), TextRequest("?"), &response).ok());
  server->reset();
  log.reset();
  close(descriptor);
  std::ifstream lines(file);
  std::vector<std::string> failed;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("call_failed") != std::string::npos) failed.push_back(line);
  }
  ASSERT_EQ(failed.size(), 4u);
  EXPECT_THAT(failed[3], ::testing::Not(HasSubstr("tenant=")));
  EXPECT_THAT(failed[0], ::testing::Not(HasSubstr("tenant=")));
  EXPECT_THAT(failed[1], ::testing::Not(HasSubstr("tenant=")));
  EXPECT_THAT(failed[2], HasSubstr("tenant=acme"));
}

// Whoever asks about a call names it as the log does.
TEST(CallIdTest, EveryCallTellsItsId) {
  TestServer server;
  server.Serve();
  v1::GenerateResponse response;
  const auto id_of = [](const grpc::ClientContext& context) {
    const auto& trailers = context.GetServerTrailingMetadata();
    const auto found = trailers.find("annulus-request-id");
    return found == trailers.end() ? "" : std::string(found->second.data(), found->second.size());
  };
  v1::GenerateRequest request = TextRequest("x");
  request.mutable_spec()->set_request_id("mine 1");
  grpc::ClientContext good;
  EXPECT_TRUE(server.inference()->Generate(&good, request, &response).ok());
  EXPECT_EQ(id_of(good), "mine 1");
  request.mutable_spec()->set_model("nobody's");
  request.mutable_spec()->clear_request_id();
  grpc::ClientContext bad;
  const grpc::Status refused = server.inference()->Generate(&bad, request, &response);
  EXPECT_THAT(id_of(bad), ::testing::StartsWith("r-"));
  EXPECT_EQ(id_of(bad).size(), 18u) << "16 random digits: counting calls tells what others do";
  EXPECT_EQ(Details(refused).request_id, id_of(bad));
  grpc::ClientContext unary;
  v1::GetDocumentResponse document;
  const grpc::Status missing =
      server.documents()->GetDocument(&unary, v1::GetDocumentRequest(), &document);
  EXPECT_THAT(id_of(unary), ::testing::StartsWith("r-"));
  EXPECT_EQ(Details(missing).request_id, id_of(unary));
}

}  // namespace
}  // namespace annulus::server
