// Models, administration, health, reflection, drain, authentication: everything around generations.

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/server/service_probes.h"
#include "tests/server/test_server.h"
#include "tests/support/temp_directory.h"

namespace annulus::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

const std::vector<std::string> kServices = {"annulus.v1.InferenceService",
                                            "annulus.v1.DocumentService", "annulus.v1.ModelService",
                                            "annulus.v1.AdminService"};

FakeScript Short(milliseconds interval) {
  FakeScript script;
  script.deltas.assign(20, "x");
  script.interval = interval;
  return script;
}

v1::GetServerInfoResponse Info(TestServer& server) {
  grpc::ClientContext context;
  v1::GetServerInfoResponse response;
  EXPECT_TRUE(server.admin()->GetServerInfo(&context, {}, &response).ok());
  return response;
}

TEST(ModelServiceTest, DescribesTheModel) {
  TestServer server;
  server.Serve();
  grpc::ClientContext list_context;
  v1::ListModelsResponse list;
  ASSERT_TRUE(server.models()->ListModels(&list_context, {}, &list).ok());
  ASSERT_EQ(list.models_size(), 1);
  EXPECT_EQ(list.models(0).name(), "fake");
  EXPECT_EQ(list.models(0).architecture(), "FakeForTests");
  EXPECT_EQ(list.models(0).max_context(), 4096);
  EXPECT_EQ(list.models(0).kv_dtype(), "f32");

  for (const char* name : {"", "fake"}) {
    grpc::ClientContext context;
    v1::GetModelRequest request;
    request.set_name(name);
    v1::GetModelResponse response;
    EXPECT_TRUE(server.models()->GetModel(&context, request, &response).ok());
    EXPECT_EQ(response.model().vocabulary(), FakeEngine::kVocabulary);
  }
  grpc::ClientContext context;
  v1::GetModelRequest request;
  request.set_name("other");
  v1::GetModelResponse response;
  EXPECT_EQ(Details(server.models()->GetModel(&context, request, &response)).resource_name,
            "other");
}

TEST(AdminServiceTest, TellsStateLimitsAndLoad) {
  TestServer server({"--ranks", "3", "--max-message-size", "1MiB"});
  EXPECT_EQ(Info(server).state(), v1::SERVER_STATE_LOADING);
  EXPECT_EQ(Info(server).models_size(), 0);
  server.Serve();
  const v1::GetServerInfoResponse info = Info(server);
  EXPECT_EQ(info.state(), v1::SERVER_STATE_SERVING);
  EXPECT_EQ(info.ranks(), 3);
  EXPECT_EQ(info.models(0), "fake");
  EXPECT_FALSE(info.version().empty());
  EXPECT_EQ(info.limits().max_message_bytes(), 1 << 20);
  EXPECT_EQ(info.limits().max_running(), 64);
  server.engine().set_healthy(false);
  EXPECT_EQ(Info(server).state(), v1::SERVER_STATE_UNHEALTHY);

  grpc::ClientContext context;
  v1::GetLoadResponse load;
  ASSERT_TRUE(server.admin()->GetLoad(&context, {}, &load).ok());
  EXPECT_EQ(load.waiting(), 3);
  EXPECT_FALSE(load.healthy());
  EXPECT_EQ(load.ranks(0).memory_bytes().at("kv"), 1024);
  EXPECT_FALSE(load.ranks(0).has_node());
  EXPECT_EQ(load.memory().foreseen_bytes().at("kv"), 512);
  EXPECT_EQ(load.memory().foreseen_bytes().at("documents"), 0);
  EXPECT_EQ(load.memory().resident_bytes(), 3000);
  EXPECT_EQ(load.memory().resident_most_bytes(), 4000);
}

TEST(LoadingTest, CallsAreUnavailableWithARetry) {
  TestServer server;
  const grpc::Status stream = ReadStream(*server.inference(), TextStreamRequest("x")).status;
  EXPECT_EQ(stream.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Details(stream).reason, "LOADING");
  EXPECT_GT(Details(stream).retry_ms, 0);
  EXPECT_EQ(Details(server.Upload("a", "x")).reason, "LOADING");
  grpc::ClientContext context;
  v1::ListModelsResponse list;
  EXPECT_EQ(Details(server.models()->ListModels(&context, {}, &list)).reason, "LOADING");
  grpc::ClientContext load_context;
  v1::GetLoadResponse load;
  EXPECT_TRUE(server.admin()->GetLoad(&load_context, {}, &load).ok());
}

TEST(LoadingTest, SaysWhatTheRingWaitsFor) {
  TestServer server;
  EXPECT_EQ(Info(server).awaited(), "");
  server.server().Await("1 of 2 ranks is missing");
  EXPECT_EQ(Info(server).awaited(), "1 of 2 ranks is missing");
  const grpc::Status stream = ReadStream(*server.inference(), TextStreamRequest("x")).status;
  EXPECT_EQ(stream.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(stream.error_message(), "the server cannot serve yet: 1 of 2 ranks is missing");
  EXPECT_EQ(Details(stream).reason, "LOADING");
  EXPECT_EQ(CheckHealth(server.channel(), ""), HealthStatus::kNotServing);
  server.server().Await("");
  server.Serve();
  EXPECT_EQ(Info(server).awaited(), "");
  server.server().Await("a host for rank 1");
  EXPECT_EQ(Info(server).awaited(), "a host for rank 1");
}

TEST(HealthTest, FollowsLoadingServingSicknessAndDrain) {
  TestServer server;
  for (const std::string& name : kServices) {
    EXPECT_EQ(CheckHealth(server.channel(), name), HealthStatus::kNotServing) << name;
  }
  EXPECT_EQ(CheckHealth(server.channel(), ""), HealthStatus::kNotServing);
  server.Serve();
  for (const std::string& name : kServices) {
    EXPECT_EQ(CheckHealth(server.channel(), name), HealthStatus::kServing) << name;
  }
  EXPECT_EQ(CheckHealth(server.channel(), ""), HealthStatus::kServing);
  EXPECT_EQ(CheckHealth(server.channel(), "nobody"), HealthStatus::kUnknownService);
  const auto becomes = [&](HealthStatus status) {
    return Eventually([&] { return CheckHealth(server.channel(), "") == status; });
  };
  server.engine().set_healthy(false);
  EXPECT_TRUE(becomes(HealthStatus::kNotServing));
  server.engine().set_healthy(true);
  EXPECT_TRUE(becomes(HealthStatus::kServing));
  server.server().RequestDrain(std::nullopt);
  EXPECT_TRUE(becomes(HealthStatus::kNotServing));
}

// A probe that restarts must not see what a probe that only stops traffic sees.
TEST(HealthTest, LivenessAndReadinessDiffer) {
  TestServer server({"--metrics", "127.0.0.1:0"});
  const auto status = [&](const std::string& name) { return CheckHealth(server.channel(), name); };
  const auto page = [&](const std::string& path) {
    return HttpGet(server.metrics_address(), path);
  };
  EXPECT_EQ(status("liveness"), HealthStatus::kServing);
  EXPECT_EQ(status("readiness"), HealthStatus::kNotServing);
  EXPECT_EQ(page("/healthz"), "alive\n");
  EXPECT_EQ(page("/readyz"), "loading\n");
  server.Serve();
  EXPECT_EQ(status("readiness"), HealthStatus::kServing);
  EXPECT_EQ(page("/readyz"), "serving\n");
  const auto becomes = [&](HealthStatus expected) {
    return Eventually([&] { return status("readiness") == expected; });
  };
  server.engine().set_healthy(false);
  EXPECT_TRUE(becomes(HealthStatus::kNotServing));
  EXPECT_EQ(page("/readyz"), "unhealthy\n");
  EXPECT_EQ(status("liveness"), HealthStatus::kServing);
  server.engine().set_healthy(true);
  EXPECT_TRUE(becomes(HealthStatus::kServing));
  server.server().RequestDrain(std::nullopt);
  EXPECT_TRUE(becomes(HealthStatus::kNotServing));
  EXPECT_EQ(page("/readyz"), "draining\n");
  EXPECT_EQ(status("liveness"), HealthStatus::kServing);
  EXPECT_EQ(page("/healthz"), "alive\n");
}

TEST(HealthTest, WithoutADeviceItIsAliveAndNeverReady) {
  TestServer server({"--metrics", "127.0.0.1:0"});
  server.server().CannotServe(absl::UnavailableError("no device"));
  EXPECT_EQ(HttpGet(server.metrics_address(), "/healthz"), "alive\n");
  EXPECT_EQ(HttpGet(server.metrics_address(), "/readyz"), "unhealthy\n");
  EXPECT_EQ(CheckHealth(server.channel(), "liveness"), HealthStatus::kServing);
  EXPECT_EQ(CheckHealth(server.channel(), "readiness"), HealthStatus::kNotServing);
}

TEST(HealthTest, WatchersAreTold) {
  TestServer server;
  HealthWatch watch(server.channel(), "annulus.v1.InferenceService");
  EXPECT_EQ(watch.Next(), HealthStatus::kNotServing);
  server.Serve();
  EXPECT_EQ(watch.Next(), HealthStatus::kServing);
  server.server().RequestDrain(std::nullopt);
  EXPECT_EQ(watch.Next(), HealthStatus::kNotServing);
}

TEST(ReflectionTest, ListsEveryService) {
  TestServer server;
  std::vector<std::string> expected = kServices;
  expected.push_back("grpc.health.v1.Health");
  expected.push_back("grpc.reflection.v1alpha.ServerReflection");
  EXPECT_THAT(ReflectedServices(server.channel()), IsSupersetOf(expected));
}

TEST(DrainTest, AdmittedWorkFinishesNewWorkIsRefused) {
  TestServer server;
  server.engine().set_scripter([](const RequestSpec&) { return Short(milliseconds(20)); });
  server.Serve();
  const auto stub = server.inference();
  grpc::ClientContext context;
  const auto reader = stub->StreamGenerate(&context, TextStreamRequest("x"));
  v1::StreamGenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));

  grpc::ClientContext drain_context;
  v1::DrainResponse drained;
  ASSERT_TRUE(server.operators()->Drain(&drain_context, {}, &drained).ok());
  EXPECT_EQ(drained.running(), 1);
  std::thread waiter([&] {
    server.server().WaitUntilDrained();
    server.server().Stop(nullptr);
  });
  EXPECT_EQ(Info(server).state(), v1::SERVER_STATE_DRAINING);
  const grpc::Status refused = ReadStream(*stub, TextStreamRequest("x")).status;
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Details(refused).reason, "DRAINING");
  EXPECT_EQ(Details(server.Upload("a", "x")).reason, "DRAINING");

  std::string text = response.delta().text();
  while (reader->Read(&response)) text += response.delta().text();
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(text, std::string(20, 'x'));
  waiter.join();
}

TEST(DrainTest, WorkIsCutOffWhenTheGraceTimeEnds) {
  TestServer server({"--grace-time", "100ms"});
  server.engine().set_scripter([](const RequestSpec&) { return Endless(milliseconds(1)); });
  server.Serve();
  const auto stub = server.inference();
  grpc::ClientContext context;
  const auto reader = stub->StreamGenerate(&context, TextStreamRequest("x"));
  v1::StreamGenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  server.server().RequestDrain(std::nullopt);
  const auto start = steady_clock::now();
  std::thread waiter([&] {
    server.server().WaitUntilDrained();
    server.server().Stop(nullptr);
  });
  while (reader->Read(&response)) {
  }
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Details(status).reason, "DRAINING");
  waiter.join();
  EXPECT_GE(steady_clock::now() - start, milliseconds(100));
  EXPECT_LT(steady_clock::now() - start, milliseconds(3000));
  EXPECT_TRUE(server.engine().WaitUntilIdle(milliseconds(1000)));
}

TEST(DrainTest, OpenWatchesAndUploadsDoNotHoldItUp) {
  TestServer server;
  server.Serve();
  HealthWatch watch(server.channel(), "");
  watch.Next();
  const auto stub = server.documents();
  grpc::ClientContext context;
  v1::UploadDocumentResponse response;
  const auto writer = stub->UploadDocument(&context, &response);
  v1::UploadDocumentRequest request;
  request.mutable_header()->set_name("a");
  ASSERT_TRUE(writer->Write(request));
  const auto start = steady_clock::now();
  server.server().RequestDrain(std::nullopt);
  server.server().WaitUntilDrained();
  server.server().Stop(nullptr);
  EXPECT_LT(steady_clock::now() - start, milliseconds(5000));
  EXPECT_FALSE(writer->Finish().ok());
}

TEST(DrainTest, GraceIsChecked) {
  TestServer server;
  for (const double bad : {-1.0, 86401.0, std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity()}) {
    grpc::ClientContext context;
    v1::DrainRequest request;
    request.set_grace_seconds(bad);
    v1::DrainResponse response;
    EXPECT_EQ(Details(server.operators()->Drain(&context, request, &response)).field,
              "grace_seconds");
  }
  EXPECT_EQ(Info(server).state(), v1::SERVER_STATE_LOADING);
}

class AuthenticationTest : public ::testing::Test {
 protected:
  static std::vector<std::string> Flags() {
    static const testing::TempDirectory directory;
    directory.Write("token", "s3cret\nsecond line\n");
    return {"--auth-token-file", directory.path() / "token"};
  }
  static grpc::Status List(TestServer& server, const std::string& authorization) {
    grpc::ClientContext context;
    if (!authorization.empty()) context.AddMetadata("authorization", authorization);
    v1::ListModelsResponse response;
    return server.models()->ListModels(&context, {}, &response);
  }
};

TEST_F(AuthenticationTest, OnlyTheTokenOpensTheServices) {
  TestServer server(Flags());
  server.Serve();
  EXPECT_TRUE(List(server, "Bearer s3cret").ok());
  EXPECT_TRUE(List(server, "bearer s3cret").ok());
  for (const char* bad : {"", "s3cret", "Bearer ", "Bearer s3cre", "Bearer s3cret ", "bearer x"}) {
    const grpc::Status status = List(server, bad);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << bad;
    EXPECT_EQ(Details(status).reason, "TOKEN_REJECTED");
  }
  // Every kind of call.
  EXPECT_EQ(Details(ReadStream(*server.inference(), TextStreamRequest("x")).status).reason,
            "TOKEN_REJECTED");
  grpc::ClientContext context;
  v1::GenerateResponse response;
  EXPECT_EQ(Details(server.inference()->Generate(&context, TextRequest("x"), &response)).reason,
            "TOKEN_REJECTED");
  EXPECT_EQ(Details(server.Upload("a", "x")).reason, "TOKEN_REJECTED");
  EXPECT_EQ(CheckHealth(server.channel(), ""), HealthStatus::kServing);
}

// Which of two tokens counts must not depend on what stands between client and server.
TEST_F(AuthenticationTest, TwoTokensAreRefused) {
  TestServer server(Flags());
  server.Serve();
  for (const char* second : {"Bearer other", "Bearer s3cret"}) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer s3cret");
    context.AddMetadata("authorization", second);
    v1::ListModelsResponse response;
    const grpc::Status status = server.models()->ListModels(&context, {}, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
    EXPECT_EQ(status.error_message(), "there are two authorization headers; send one");
  }
}

class DrainRightsTest : public ::testing::Test {
 protected:
  static std::string File(const std::string& name, const std::string& content) {
    static const testing::TempDirectory directory;
    directory.Write(name, content);
    return directory.path() / name;
  }
  static grpc::Status Drain(TestServer& server, const std::string& address,
                            const std::string& token = "") {
    grpc::ClientContext context;
    if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
    v1::DrainResponse response;
    return v1::AdminService::NewStub(
               grpc::CreateChannel(address.empty() ? server.address() : address,
                                   grpc::InsecureChannelCredentials()))
        ->Drain(&context, {}, &response);
  }
  static bool Draining(TestServer& server) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer user");
    v1::GetServerInfoResponse response;
    EXPECT_TRUE(server.admin()->GetServerInfo(&context, {}, &response).ok());
    return response.state() == v1::SERVER_STATE_DRAINING;
  }
};

// A proxy on this machine makes all its clients callers from here.
TEST_F(DrainRightsTest, ToComeFromThisMachineIsNotEnough) {
  TestServer server;
  server.Serve();
  const grpc::Status refused = Drain(server, "");
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(Details(refused).reason, "ADMIN_ONLY");
  EXPECT_THAT(refused.error_message(), HasSubstr("--admin-listen"));
  EXPECT_FALSE(Draining(server));
}

// Whatever callers of the address need.
TEST_F(DrainRightsTest, WhoMayOpenTheSocketMay) {
  for (const std::string option : {"", "--auth-token-file", "--admin-token-file"}) {
    std::vector<std::string> flags;
    if (!option.empty()) flags = {option, File("token", "user\n")};
    TestServer server(flags);
    server.Serve();
    struct stat state {};
    ASSERT_EQ(stat(server.admin_socket().c_str(), &state), 0);
    EXPECT_EQ(state.st_mode & 07777, 0600u);
    v1::GetLoadResponse load;
    grpc::ClientContext first;
    EXPECT_TRUE(server.operators()->GetLoad(&first, {}, &load).ok());
    EXPECT_TRUE(Drain(server, "unix:" + server.admin_socket()).ok()) << option;
    EXPECT_TRUE(Draining(server));
  }
}

TEST_F(DrainRightsTest, TheSocketHasNoOtherService) {
  TestServer server;
  server.Serve();
  const auto channel =
      grpc::CreateChannel("unix:" + server.admin_socket(), grpc::InsecureChannelCredentials());
  v1::GenerateResponse response;
  grpc::ClientContext context;
  EXPECT_EQ(v1::InferenceService::NewStub(channel)
                ->Generate(&context, TextRequest("x"), &response)
                .error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(DrainRightsTest, WithATokenFileOnlyThatTokenOpens) {
  for (const bool users : {false, true}) {
    std::vector<std::string> flags = {"--admin-token-file", File("admin", "root\n")};
    if (users) flags.insert(flags.end(), {"--auth-token-file", File("user", "user\n")});
    TestServer server(flags);
    server.Serve();
    EXPECT_EQ(Drain(server, "").error_code(),
              users ? grpc::StatusCode::UNAUTHENTICATED : grpc::StatusCode::PERMISSION_DENIED);
    EXPECT_EQ(Drain(server, "", "user").error_code(), grpc::StatusCode::PERMISSION_DENIED);
    EXPECT_EQ(Drain(server, "", "roo").error_code(),
              users ? grpc::StatusCode::UNAUTHENTICATED : grpc::StatusCode::PERMISSION_DENIED);
    EXPECT_FALSE(Draining(server));
    EXPECT_TRUE(Drain(server, "", "root").ok());
    EXPECT_TRUE(Draining(server));
  }
}

TEST(StartTest, LargeMessagesAreTakenUpToTheLimitThatWasSet) {
  // gRPC's own limit of 4 MiB must not stand, whatever overflows.
  TestServer server({"--max-message-size", "1GiB"});
  server.Serve();
  grpc::ClientContext context;
  v1::TokenizeRequest request;
  request.set_text(std::string(size_t{6} << 20, 'x'));
  v1::TokenizeResponse response;
  const grpc::Status status = server.inference()->Tokenize(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

// Not after the 10 seconds that gRPC then polls for.
TEST(StartTest, AServerThatTookLargeMessagesIsSoonGone) {
  for (int round = 0; round < 3; ++round) {
    auto server = std::make_unique<TestServer>(std::vector<std::string>{});
    server->Serve();
    v1::TokenizeRequest request;
    request.set_text(std::string(size_t{6} << 20, 'x'));
    for (int call = 0; call < 3; ++call) {
      grpc::ClientContext context;
      v1::TokenizeResponse response;
      EXPECT_TRUE(server->inference()->Tokenize(&context, request, &response).ok());
    }
    const auto begin = std::chrono::steady_clock::now();
    server.reset();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  }
}

TEST(StartTest, TokenAndTlsFilesOfTheWrongKindAreClearErrors) {
  const testing::TempDirectory directory;
  const std::string pipe = directory.path() / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const Logger log(LogLevel::kError);
  for (const auto& [path, kind] :
       {std::pair(directory.path().string(), "is a folder"), std::pair(pipe, "is a pipe"),
        std::pair(std::string("/dev/zero"), "is a device")}) {
    for (std::string ServerConfig::*option :
         {&ServerConfig::auth_token_file, &ServerConfig::admin_token_file,
          &ServerConfig::tls_certificate}) {
      ServerConfig config;
      config.listen = "127.0.0.1:0";
      config.*option = path;
      EXPECT_THAT(std::string(Server::Start(config, log).status().message()), HasSubstr(kind));
    }
  }
}

TEST(StartTest, AddressesInUseAndBadFilesAreClearErrors) {
  TestServer first({"--metrics", "127.0.0.1:0"});
  const Logger log(LogLevel::kError);
  ServerConfig config;
  config.listen = first.address();
  EXPECT_THAT(std::string(Server::Start(config, log).status().message()),
              HasSubstr("cannot listen on " + first.address()));
  config.listen = "127.0.0.1:0";
  config.metrics = first.metrics_address();
  EXPECT_THAT(std::string(Server::Start(config, log).status().message()),
              HasSubstr("cannot serve metrics on " + first.metrics_address()));
  config.metrics.clear();
  config.auth_token_file = "/nonexistent/token";
  EXPECT_THAT(std::string(Server::Start(config, log).status().message()),
              HasSubstr("/nonexistent/token"));
  config.auth_token_file.clear();
  config.tls_certificate = "/nonexistent/cert";
  config.tls_key = "/nonexistent/key";
  EXPECT_THAT(std::string(Server::Start(config, log).status().message()),
              HasSubstr("/nonexistent/cert"));
}

}  // namespace
}  // namespace annulus::server
