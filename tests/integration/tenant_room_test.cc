// What a tokens file lets a tenant have of keys and values, in memory and on disk, and of
// documents; and who may stop the daemon.

#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/identity/token_hash.h"
#include "tests/integration/daemon.h"
#include "tests/server/test_server.h"
#include "tests/support/temp_directory.h"

namespace annulus::server {
namespace {

constexpr int64_t kMebibyte = int64_t{1} << 20;

class TenantsRoomTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_.Write("tokens.yaml",
                     absl::StrCat("tenants:\n",
                                  Tenant("small", "kv_bytes: 8MiB, disk_bytes: 3MiB, documents: 1"),
                                  Tenant("large", "")));
    ASSERT_EQ(chmod((directory_.path() / "tokens.yaml").c_str(), 0600), 0);
    const std::vector<std::string> flags = {"--kv-memory",    "128MiB",
                                            "--tokens-file",  directory_.path() / "tokens.yaml",
                                            "--kv-disk",      directory_.path() / "pages",
                                            "--kv-disk-size", "128MiB",
                                            "--admin-listen", "unix:" + socket()};
    daemon_ = std::make_unique<Daemon>(flags);
    ASSERT_TRUE(daemon_->WaitUntilReady()) << daemon_->output();
    channel_ = grpc::CreateChannel(daemon_->address(), grpc::InsecureChannelCredentials());
    inference_ = v1::InferenceService::NewStub(channel_);
  }

  static std::string Tenant(const std::string& name, const std::string& quotas) {
    return absl::StrCat("  - name: ", name, "\n    quotas: {", quotas,
                        "}\n    callers: [{token: \"", TokenHash::Of(name).text(),
                        "\", roles: [generate, documents]}]\n");
  }
  std::string socket() const { return directory_.path() / "admin.sock"; }

  static std::unique_ptr<grpc::ClientContext> As(const std::string& tenant) {
    auto context = std::make_unique<grpc::ClientContext>();
    context->AddMetadata("authorization", "Bearer " + tenant);
    return context;
  }
  // The recall model has a token for each byte, and some 1.7 KB of keys and values.
  static v1::StreamGenerateRequest Prompt(char first, size_t tokens, int max_tokens) {
    v1::StreamGenerateRequest request =
        TextStreamRequest(std::string(1, first) + std::string(tokens, 'x'));
    request.mutable_spec()->mutable_sampling()->set_max_tokens(max_tokens);
    request.mutable_spec()->mutable_sampling()->set_ignore_eos(true);
    return request;
  }
  grpc::Status Ask(const std::string& tenant, const v1::StreamGenerateRequest& request) {
    const auto context = As(tenant);
    return ReadStream(*inference_, request, context.get()).status;
  }
  // All samples of the family that have the label, `part` of its text.
  double Metric(const std::string& family, const std::string& part = "") const {
    double sum = 0;
    for (const auto& [name, value] : ScrapeSamples(daemon_->metrics_address())) {
      const bool chosen = name == family || name.starts_with(family + "{");
      if (chosen && name.find(part) != std::string::npos) sum += value;
    }
    return sum;
  }

  testing::TempDirectory directory_;
  std::unique_ptr<Daemon> daemon_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::InferenceService::Stub> inference_;
};

TEST_F(TenantsRoomTest, KeysAndValuesInMemory) {
  const auto expect_full = [](const grpc::Status& status, bool retry) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
    EXPECT_EQ(Details(status).reason, "QUOTA_EXCEEDED");
    EXPECT_EQ(Details(status).metadata["quota"], "kv_bytes");
    EXPECT_EQ(Details(status).metadata["limit"], absl::StrCat(8 * kMebibyte));
    EXPECT_EQ(Details(status).retry_ms > 0, retry) << status.error_message();
  };
  expect_full(Ask("small", Prompt('a', 8000, 1)), false);
  EXPECT_TRUE(Ask("large", Prompt('a', 8000, 1)).ok());
  // Its answer is not read, so it keeps its pages.
  const auto context = As("small");
  const auto running = inference_->StreamGenerate(context.get(), Prompt('b', 1000, 2000));
  v1::StreamGenerateResponse event;
  while (running->Read(&event) && !event.has_delta()) {
  }
  expect_full(Ask("small", Prompt('c', 2500, 1)), true);
  EXPECT_TRUE(Ask("large", Prompt('c', 2500, 1)).ok());
  while (running->Read(&event)) {
  }
  EXPECT_TRUE(running->Finish().ok());
  EXPECT_TRUE(Ask("small", Prompt('c', 2500, 1)).ok()) << "what it had makes room";
  EXPECT_EQ(Metric("annulus_quota_refusals_total", "kv_bytes"), 2);
}

TEST_F(TenantsRoomTest, KeysAndValuesOnDisk) {
  for (const char first : {'a', 'b', 'c', 'd'}) {
    EXPECT_TRUE(Ask("small", Prompt(first, 1200, 1)).ok());
  }
  // What finds no room is not written: it settles once four prompts have had theirs.
  EXPECT_TRUE(Eventually(
      [&] { return Metric("annulus_kv_tier_moved_bytes_total", "write") > 4 * kMebibyte; }));
  EXPECT_LE(Metric("annulus_kv_tier_bytes"), 3 * kMebibyte);
  for (const char first : {'a', 'b', 'c', 'd'}) {
    EXPECT_TRUE(Ask("large", Prompt(first, 1200, 1)).ok());
  }
  EXPECT_TRUE(Eventually([&] { return Metric("annulus_kv_tier_bytes") > 6 * kMebibyte; }));
}

TEST_F(TenantsRoomTest, Documents) {
  const auto documents = v1::DocumentService::NewStub(channel_);
  const auto upload = [&](const std::string& tenant, const std::string& name) {
    const auto context = As(tenant);
    v1::UploadDocumentResponse response;
    const auto writer = documents->UploadDocument(context.get(), &response);
    v1::UploadDocumentRequest request;
    request.mutable_header()->set_name(name);
    writer->Write(request);
    request.mutable_chunk()->set_data("text");
    writer->Write(request);
    writer->WritesDone();
    return writer->Finish();
  };
  EXPECT_TRUE(upload("small", "a").ok());
  EXPECT_EQ(Details(upload("small", "b")).metadata["quota"], "documents");
  EXPECT_TRUE(upload("large", "a").ok());
  EXPECT_TRUE(upload("large", "b").ok());
  v1::DeleteDocumentRequest request;
  request.set_name("a");
  v1::DeleteDocumentResponse response;
  EXPECT_TRUE(documents->DeleteDocument(As("small").get(), request, &response).ok());
  EXPECT_TRUE(upload("small", "b").ok());
}

TEST_F(TenantsRoomTest, WhoOpensTheSocketStopsTheDaemon) {
  v1::DrainResponse response;
  EXPECT_EQ(
      v1::AdminService::NewStub(channel_)->Drain(As("large").get(), {}, &response).error_code(),
      grpc::StatusCode::PERMISSION_DENIED);
  grpc::ClientContext context;
  EXPECT_TRUE(v1::AdminService::NewStub(
                  grpc::CreateChannel("unix:" + socket(), grpc::InsecureChannelCredentials()))
                  ->Drain(&context, {}, &response)
                  .ok());
  EXPECT_EQ(daemon_->WaitForExit(std::chrono::seconds(20)), 0) << daemon_->output();
  EXPECT_FALSE(std::filesystem::exists(socket()));
}

}  // namespace
}  // namespace annulus::server
