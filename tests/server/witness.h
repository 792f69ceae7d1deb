#ifndef ANNULUS_TESTS_SERVER_WITNESS_H_
#define ANNULUS_TESTS_SERVER_WITNESS_H_

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/server/test_server.h"

namespace annulus::server {

// A server with a stream of short deltas that runs during the whole test, and must not have stood
// still at its end. A prompt that ends in '~' is answered without end, any other by "x".
class WitnessedTest : public ::testing::Test {
 protected:
  explicit WitnessedTest(const std::vector<std::string>& flags = {"--max-message-size", "1MiB"});
  ~WitnessedTest() override;
  void SetUp() override;

  grpc::Status Generate(const v1::GenerateRequest& request);

  TestServer server_;
  std::unique_ptr<v1::InferenceService::Stub> stub_;

 private:
  void Witness();

  grpc::ClientContext context_;
  std::atomic<int> events_{0};
  std::chrono::milliseconds longest_gap_{0};
  double most_seconds_ = 0;  // of processors in one gap
  std::thread thread_;
};

}  // namespace annulus::server

#endif  // ANNULUS_TESTS_SERVER_WITNESS_H_
