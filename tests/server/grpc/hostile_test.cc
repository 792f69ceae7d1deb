// What hostile clients send: each gets its documented status, the server lives on, and a stream
// that runs beside all of it is not disturbed.

#include <gmock/gmock.h>
#include <grpc/grpc.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/server/raw_call.h"
#include "tests/server/test_server.h"
#include "tests/server/witness.h"

namespace annulus::server {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr char kGenerate[] = "/annulus.v1.InferenceService/Generate";
constexpr char kStreamGenerate[] = "/annulus.v1.InferenceService/StreamGenerate";
constexpr char kUpload[] = "/annulus.v1.DocumentService/UploadDocument";

class HostileTest : public WitnessedTest {};

TEST_F(HostileTest, UndecodableBytesAreInvalid) {
  std::string deep;  // groups within groups
  for (int i = 0; i < 10'000; ++i) deep.push_back('\x0b');
  const std::vector<std::string> cases = {"\xff", "\x0a\xff\xff\xff\xff\x0f", "\x0a\x05xx", deep,
                                          // spec.text that is not UTF-8
                                          std::string("\x0a\x04\x22\x02\xc3\x28", 6)};
  for (const char* method : {kGenerate, kStreamGenerate}) {
    for (const std::string& bytes : cases) {
      const grpc::Status status = CallRaw(server_.channel(), method, bytes);
      EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
      EXPECT_EQ(Details(status).reason, "INVALID_FIELD");
    }
  }
  EXPECT_EQ(CallRaw(server_.channel(), kUpload, "\xff").error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(CallRaw(server_.channel(), "/annulus.v1.ModelService/GetModel", "\xff").error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(HostileTest, UnknownFieldsAndMethodsAreHarmless) {
  // Field 1000 of the request, then a valid spec.
  const std::string valid = TextRequest("x").SerializeAsString();
  std::string bytes("\xc2\x3e\x03");
  bytes.append("abc").append(valid);
  EXPECT_TRUE(CallRaw(server_.channel(), kGenerate, bytes).ok());
  EXPECT_EQ(CallRaw(server_.channel(), "/annulus.v1.InferenceService/Nothing", "").error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(HostileTest, OversizeMessagesAreRefusedWithAdvice) {
  const grpc::Status over = Generate(TextRequest(std::string((1 << 20) + 1, 'x')));
  EXPECT_EQ(over.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Details(over).reason, "MESSAGE_TOO_LARGE");
  EXPECT_THAT(over.error_message(), HasSubstr("upload"));
  const grpc::Status far_over = Generate(TextRequest(std::string(5 << 20, 'x')));
  EXPECT_EQ(far_over.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(HostileTest, CompressedBombsStayFolded) {
  // 64 MiB of one letter compress to some 64 KB.
  grpc::ClientContext context;
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  v1::GenerateResponse response;
  const size_t before = ResidentBytes();
  const v1::GenerateRequest bomb = TextRequest(std::string(64 << 20, 'x'));
  const grpc::Status status = stub_->Generate(&context, bomb, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << status.error_message();
  // The client's own copies are counted too: text, message, and what compressing takes.
  EXPECT_LT(ResidentBytes(), before + (size_t{400} << 20));
}

TEST_F(HostileTest, NumbersAtTheirEnds) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const auto code = [&](const std::function<void(v1::SamplingParams&)>& change) {
    auto request = TextRequest("x");
    change(*request.mutable_spec()->mutable_sampling());
    return Generate(request).error_code();
  };
  constexpr auto kInvalid = grpc::StatusCode::INVALID_ARGUMENT;
  for (const int32_t bad : {0, -1, INT32_MIN}) {
    EXPECT_EQ(code([&](auto& s) { s.set_max_tokens(bad); }), kInvalid);
  }
  EXPECT_EQ(code([&](auto& s) { s.set_max_tokens(INT32_MAX); }), grpc::StatusCode::OUT_OF_RANGE);
  for (const float bad : {nan, inf, -inf, -1.0f, 3.0f}) {
    EXPECT_EQ(code([&](auto& s) { s.set_temperature(bad); }), kInvalid);
    EXPECT_EQ(code([&](auto& s) { s.set_top_p(bad); }), kInvalid);
  }
  EXPECT_EQ(code([&](auto& s) { s.set_top_k(INT32_MIN); }), kInvalid);
  for (const int32_t id : {-1, FakeEngine::kVocabulary, INT32_MIN, INT32_MAX}) {
    EXPECT_EQ(code([&](auto& s) { (*s.mutable_logit_bias())[id] = 1; }), kInvalid);
    v1::GenerateRequest request;
    request.mutable_spec()->mutable_token_ids()->add_ids(id);
    EXPECT_EQ(Generate(request).error_code(), kInvalid);
  }
  EXPECT_EQ(code([&](auto& s) {
              for (int i = 0; i < 100'000; ++i) s.add_stop("ab");
            }),
            kInvalid);
}

TEST_F(HostileTest, HugeMetadataIsRefused) {
  for (const size_t size : {size_t{64} << 10, size_t{1} << 20}) {
    const auto stub = v1::InferenceService::NewStub(server_.NewChannel());
    grpc::ClientContext context;
    context.AddMetadata("x-large", std::string(size, 'x'));
    v1::GenerateResponse response;
    EXPECT_FALSE(stub->Generate(&context, TextRequest("x"), &response).ok());
  }
  EXPECT_TRUE(Generate(TextRequest("x")).ok());
}

TEST_F(HostileTest, ResetsByTheHundred) {
  const auto channel = server_.NewChannel();
  const auto stub = v1::InferenceService::NewStub(channel);
  for (int i = 0; i < 500; ++i) {
    grpc::ClientContext context;
    const auto reader = stub->StreamGenerate(&context, TextStreamRequest("~"));
    context.TryCancel();
  }
  EXPECT_TRUE(Eventually([&] { return server_.engine().active() == 1; }));
}

TEST_F(HostileTest, PingFloodsAreCutOff) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto stub = v1::InferenceService::NewStub(
      grpc::CreateCustomChannel(server_.address(), grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  v1::GenerateResponse response;
  EXPECT_TRUE(stub->Generate(&context, TextRequest("x"), &response).ok());
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_TRUE(Generate(TextRequest("x")).ok());
}

TEST_F(HostileTest, ManySilentUploadsHoldLittle) {
  std::vector<std::unique_ptr<RawCall>> uploads;
  v1::UploadDocumentRequest header;
  header.mutable_header()->set_total_bytes(1 << 20);
  for (int i = 0; i < 100; ++i) {
    header.mutable_header()->set_name(absl::StrCat("u", i));
    auto& call = uploads.emplace_back(std::make_unique<RawCall>(server_.channel(), kUpload));
    EXPECT_TRUE(call->Write(header.SerializeAsString()));
  }
  EXPECT_TRUE(server_.Upload("mine", "text").ok());  // promises of others take no room
}

TEST_F(HostileTest, ConnectionsThatSayNothingOrNonsense) {
  for (const char* bytes :
       {"", "GET / HTTP/1.0\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff"}) {
    EXPECT_TRUE(SendBytes(server_.address(), bytes));
  }
  EXPECT_TRUE(Generate(TextRequest("x")).ok());
}

TEST_F(HostileTest, PreparationThatTakesLongHoldsUpNobodyElse) {
  server_.engine().set_tokenize_delay(milliseconds(1000));
  std::vector<std::thread> clients;
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back([this] { EXPECT_TRUE(Generate(TextRequest("x")).ok()); });
  }
  ASSERT_TRUE(Eventually([&] { return server_.engine().tokenizing() > 0; }));
  grpc::ClientContext context;
  v1::ListModelsResponse models;
  EXPECT_TRUE(server_.models()->ListModels(&context, {}, &models).ok());
  EXPECT_GT(server_.engine().tokenizing(), 0) << "it was answered after them";
  for (std::thread& client : clients) client.join();
  server_.engine().set_tokenize_delay(milliseconds(0));
}

}  // namespace
}  // namespace annulus::server
