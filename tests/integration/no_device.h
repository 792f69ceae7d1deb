#ifndef ANNULUS_TESTS_INTEGRATION_NO_DEVICE_H_
#define ANNULUS_TESTS_INTEGRATION_NO_DEVICE_H_

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "annulus/v1/admin.grpc.pb.h"
#include "annulus/v1/inference.grpc.pb.h"
#include "annulus/v1/model.grpc.pb.h"
#include "tests/integration/daemon.h"
#include "tests/server/service_probes.h"
#include "tests/server/test_server.h"

namespace annulus::server {

// A daemon of `ranks` ranks that has no device to compute with: it lives until it is told to end,
// and its log, its answers, health and metrics say so; the first two say `why`.
inline void ExpectStaysWithoutDevice(Daemon& daemon, const std::string& why, int ranks) {
  using ::testing::HasSubstr;
  EXPECT_THAT(daemon.output(), HasSubstr(why));
  EXPECT_THAT(daemon.output(), HasSubstr("remedy=\"fix the reason"));

  const auto channel = grpc::CreateChannel(daemon.address(), grpc::InsecureChannelCredentials());
  for (const char* const service : {"", v1::InferenceService::service_full_name()}) {
    EXPECT_EQ(CheckHealth(channel, service), HealthStatus::kNotServing) << service;
  }
  const auto models = v1::ModelService::NewStub(channel);
  grpc::ClientContext call;
  v1::ListModelsResponse listed;
  const grpc::Status status = models->ListModels(&call, {}, &listed);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr(why));
  EXPECT_EQ(Details(status).retry_ms, -1) << "nothing will change by itself";
  grpc::ClientContext asked;
  v1::GetServerInfoResponse info;
  EXPECT_TRUE(v1::AdminService::NewStub(channel)->GetServerInfo(&asked, {}, &info).ok());
  EXPECT_EQ(info.state(), v1::SERVER_STATE_UNHEALTHY);

  std::map<std::string, double> samples = ScrapeSamples(daemon.metrics_address());
  for (const char* const state : {"loading", "serving", "draining", "unhealthy"}) {
    const std::string name = absl::StrCat("annulus_server_state{state=\"", state, "\"}");
    ASSERT_EQ(samples.count(name), 1u) << name;
    EXPECT_EQ(samples[name], state == std::string("unhealthy")) << name;
  }
  for (int rank = 0; rank <= ranks; ++rank) {
    const std::string name = absl::StrCat("annulus_rank_up{rank=\"", rank, "\"}");
    ASSERT_EQ(samples.count(name), rank < ranks ? 1u : 0u) << name;
    EXPECT_EQ(samples[name], 0) << name;
  }
  EXPECT_EQ(samples["annulus_request_errors_total{code=\"UNAVAILABLE\"}"], 1);

  EXPECT_EQ(daemon.WaitForExit(std::chrono::milliseconds(0)), std::nullopt) << daemon.output();
  daemon.Signal(SIGTERM);
  EXPECT_EQ(daemon.WaitForExit(std::chrono::seconds(30)), 0) << daemon.output();
}

}  // namespace annulus::server

#endif  // ANNULUS_TESTS_INTEGRATION_NO_DEVICE_H_
