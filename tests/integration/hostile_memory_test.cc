// A daemon under calls that were made to take memory: whatever they send, and however many at once,
// it holds what it was given, and goes on.

#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "annulus/v1/inference.grpc.pb.h"
#include "kernels/base/sanitizers.h"
#include "tests/integration/daemon.h"
#include "tests/server/raw_call.h"
#include "tests/server/test_server.h"
#include "tests/support/mebibyte.h"

namespace annulus::server {
namespace {

using testing::kMiB;
constexpr size_t kBudgetMiB = 64;
constexpr size_t kMessageMiB = 8;
// Beside the budget: what gRPC has received of calls that are not admitted yet, its buffers, the
// heap's own holes, and code that is used for the first time.
constexpr size_t kConstantMiB = 160;
constexpr int kClients = 8;

// A length-delimited field.
std::string Field(int number, const std::string& bytes) {
  std::string field(1, static_cast<char>(number << 3 | 2));
  size_t size = bytes.size();
  for (; size >= 128; size >>= 7) field.push_back(static_cast<char>(size | 128));
  field.push_back(static_cast<char>(size));
  return field + bytes;
}

std::string Repeat(const std::string& part, size_t bytes) {
  std::string all;
  while (all.size() < bytes) all += part;
  return all;
}

// Messages of every kind that becomes larger when it is read, for a method each.
std::vector<std::pair<std::string, std::string>> HostileCalls() {
  constexpr size_t kBytes = kMessageMiB * kMiB - 1000;
  const std::string service = "/annulus.v1.InferenceService/";
  const std::string empty_messages = Repeat(Field(1, ""), kBytes);
  const std::string groups = Repeat("\xa3\x38\xa4\x38", kBytes);
  const std::string nested = Repeat("\xa3\x38\xa3\x38\xa3\x38\xa4\x38\xa4\x38\xa4\x38", kBytes);
  const std::string stops = Field(6, Repeat(Field(11, "s"), kBytes));
  const std::string documents = Repeat(Field(2, "d"), kBytes);
  const std::string ids = Field(5, Field(1, std::string(kBytes, '\1')));
  return {{service + "Generate", Field(1, Field(3, empty_messages))},
          {service + "StreamGenerate", Field(1, Field(3, empty_messages))},
          {service + "ApplyChatTemplate", Field(2, empty_messages)},
          {service + "Generate", Field(1, documents)},
          {service + "Generate", Field(1, stops)},
          {service + "Generate", Field(1, ids)},
          {service + "Generate", groups},
          {service + "Tokenize", nested},
          {service + "Tokenize", Field(2, std::string(kBytes, 'a'))},
          {service + "Detokenize", Field(2, std::string(kBytes, '\1'))},
          {service + "MapAttention", groups},
          {"/annulus.v1.DocumentService/UploadDocument", nested},
          {"/annulus.v1.ModelService/ListModels", groups}};
}

TEST(HostileMemoryTest, CallsMadeToTakeMemoryStayWithinTheBudget) {
  if (kSanitized) GTEST_SKIP() << "resident memory is the sanitizer's";
  Daemon daemon({"--max-prompts-memory", absl::StrCat(kBudgetMiB, "MiB"), "--max-message-size",
                 absl::StrCat(kMessageMiB, "MiB"), "--kv-memory", "64MiB"});
  ASSERT_TRUE(daemon.WaitUntilReady()) << daemon.output();
  const size_t before = daemon.ResidentMemory();
  const auto calls = HostileCalls();
  std::vector<std::thread> clients;
  for (int client = 0; client < kClients; ++client) {
    clients.emplace_back([&, client] {
      grpc::ChannelArguments own;  // a connection for each client
      own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
      const auto channel =
          grpc::CreateCustomChannel(daemon.address(), grpc::InsecureChannelCredentials(), own);
      for (size_t i = 0; i < calls.size(); ++i) {
        // All clients make the same call at once in one round of two, else each another.
        const size_t shift = static_cast<size_t>(client % 2 == 0 ? 0 : client);
        const auto& [method, message] = calls[(i + shift) % calls.size()];
        const grpc::Status status = CallRaw(channel, method, message);
        EXPECT_NE(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
        EXPECT_NE(status.error_code(), grpc::StatusCode::INTERNAL) << method;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  const size_t most = daemon.PeakMemory() - std::min(before, daemon.PeakMemory());
  RecordProperty("grown_mib", static_cast<int>(most / kMiB));
  EXPECT_LE(most, (kBudgetMiB + kConstantMiB) * kMiB) << most / kMiB << " MiB";

  const auto stub = v1::InferenceService::NewStub(
      grpc::CreateChannel(daemon.address(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  v1::GenerateResponse response;
  v1::GenerateRequest request = TextRequest("x");
  request.mutable_spec()->mutable_sampling()->set_max_tokens(2);
  const grpc::Status status = stub->Generate(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

}  // namespace
}  // namespace annulus::server
