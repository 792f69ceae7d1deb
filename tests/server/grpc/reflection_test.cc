#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <vector>

#include "tests/server/raw_call.h"
#include "tests/server/service_probes.h"
#include "tests/server/test_server.h"

namespace annulus::server {
namespace {

// gRPC's own service takes a thread of its few for each call, for as long as the client likes.
TEST(ReflectionTest, CallsThatAreHeldTakeItFromOthersAndNothingElse) {
  TestServer server({"--grace-time", "100ms"});
  server.Serve();
  std::vector<std::unique_ptr<RawCall>> held;
  for (int i = 0; i < 40; ++i) {
    held.push_back(std::make_unique<RawCall>(
        server.channel(), "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"));
    held.back()->Start();
  }
  EXPECT_TRUE(Eventually([&] { return ReflectedServices(server.channel()).empty(); }));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  v1::GenerateResponse response;
  EXPECT_TRUE(server.inference()->Generate(&context, TextRequest("x"), &response).ok());
  HealthWatch watch(server.channel(), "");
  EXPECT_EQ(watch.Next(), HealthStatus::kServing);
  held.clear();
  EXPECT_TRUE(Eventually([&] { return !ReflectedServices(server.channel()).empty(); }));
}

}  // namespace
}  // namespace annulus::server
