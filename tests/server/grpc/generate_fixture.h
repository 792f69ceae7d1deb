#ifndef ANNULUS_TESTS_SERVER_GRPC_GENERATE_FIXTURE_H_
#define ANNULUS_TESTS_SERVER_GRPC_GENERATE_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/server/test_server.h"

namespace annulus::server {

// A server that serves, and the inference service's client.
class GenerateFixture : public ::testing::Test {
 protected:
  GenerateFixture() : stub_(server_.inference()) { server_.Serve(); }

  grpc::Status Generate(const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    response_.Clear();
    return stub_->Generate(&context, request, &response_);
  }

  std::vector<int32_t> LastPrompt() { return server_.engine().submitted().back().prompt; }

  TestServer server_;
  std::unique_ptr<v1::InferenceService::Stub> stub_;
  v1::GenerateResponse response_;
};

}  // namespace annulus::server

#endif  // ANNULUS_TESTS_SERVER_GRPC_GENERATE_FIXTURE_H_
