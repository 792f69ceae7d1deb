// Attention policies from the outside: annulusd as a process, with the real engine and the builtin
// recall model.

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "annulus/v1/admin.grpc.pb.h"
#include "annulus/v1/inference.grpc.pb.h"
#include "bench/demo/document.h"
#include "tests/integration/daemon.h"
#include "tests/server/test_server.h"

namespace annulus::server {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

// Value of a metric without labels, as /metrics prints it; -1 where it is not there.
double Metric(const std::string& page, const std::string& name) {
  const size_t at = page.find(absl::StrCat("\n", name, " "));
  return at == std::string::npos ? -1 : std::strtod(page.c_str() + at + name.size() + 2, nullptr);
}

class DaemonAttentionTest : public ::testing::Test {
 protected:
  void Start(std::vector<std::string> flags = {}) {
    flags.insert(flags.begin(), {"--ranks", "2", "--kv-memory", "64MiB"});
    daemon_ = std::make_unique<Daemon>(flags);
    ASSERT_TRUE(daemon_->WaitUntilReady()) << daemon_->output();
    const auto channel =
        grpc::CreateChannel(daemon_->address(), grpc::InsecureChannelCredentials());
    inference_ = v1::InferenceService::NewStub(channel);
    admin_ = v1::AdminService::NewStub(channel);
  }

  grpc::Status Generate(const std::string& prompt, const std::string& policy,
                        bool to_the_end = false) {
    v1::GenerateRequest request;
    request.mutable_spec()->set_text(prompt);
    request.mutable_spec()->mutable_sampling()->set_temperature(0);
    request.mutable_spec()->mutable_sampling()->set_max_tokens(40);
    if (!to_the_end) request.mutable_spec()->mutable_sampling()->add_stop("\n");
    request.mutable_spec()->mutable_sampling()->set_ignore_eos(to_the_end);
    if (!policy.empty()) request.mutable_spec()->mutable_attention()->set_policy(policy);
    grpc::ClientContext context;
    response_.Clear();
    return inference_->Generate(&context, request, &response_);
  }
  const v1::AttentionReport& report() const { return response_.completion().attention(); }

  std::unique_ptr<Daemon> daemon_;
  std::unique_ptr<v1::InferenceService::Stub> inference_;
  std::unique_ptr<v1::AdminService::Stub> admin_;
  v1::GenerateResponse response_;
};

TEST_F(DaemonAttentionTest, ThePolicyOfTheDaemonHoldsUntilARequestNamesAnother) {
  constexpr char kWindow[] = "window:block=64,sinks=0,window=512";
  Start({"--attention", "window:window=512,sinks=0"});
  EXPECT_THAT(daemon_->output(), HasSubstr(absl::StrCat("attention=\"", kWindow, "\"")));
  grpc::ClientContext context;
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(admin_->GetServerInfo(&context, {}, &info).ok());
  EXPECT_EQ(info.attention(), kWindow);

  const bench::DemoDocument document = bench::MakeDemoDocument({.bytes = 12'000}).value();
  const bench::DemoFact& fact = document.facts.front();  // far behind the window
  ASSERT_TRUE(Generate(document.text + fact.cue, "").ok());
  EXPECT_EQ(report().policy(), kWindow);
  EXPECT_GT(report().density(), 0.01);
  EXPECT_LT(report().density(), 0.11);
  EXPECT_NE(response_.text(), fact.answer);
  const double density =
      Metric(Scrape(daemon_->metrics_address()), "annulus_attention_density_ratio");
  EXPECT_GT(density, 0);
  EXPECT_LT(density, 0.11);

  ASSERT_TRUE(Generate(document.text + fact.cue, "dense").ok());
  EXPECT_EQ(report().policy(), "dense");
  EXPECT_EQ(report().density(), 1);
  EXPECT_EQ(response_.text(), fact.answer);
}

// Layers, ranks and steps share block lists: 97% of them are there already in steady serving.
TEST_F(DaemonAttentionTest, BlockListsAreReused) {
  // Lists are of chunks, whose lengths must not depend on how busy the machine is.
  Start({"--attention", "strided", "--stall-budget", "off"});
  const bench::DemoDocument document = bench::MakeDemoDocument({.bytes = 6'000}).value();
  for (int question = 0; question < 8; ++question) {
    const std::string prompt = document.text + document.facts[question % 2].cue;
    ASSERT_TRUE(Generate(prompt, "", /*to_the_end=*/true).ok());
  }
  const std::string page = Scrape(daemon_->metrics_address());
  const double hits = Metric(page, "annulus_pattern_cache_hits_total");
  const double misses = Metric(page, "annulus_pattern_cache_misses_total");
  EXPECT_GT(misses, 0);
  EXPECT_GE(hits / (hits + misses), 0.97) << hits << " hits, " << misses << " misses";
  EXPECT_GT(Metric(page, "annulus_pattern_cache_bytes"), 0);
}

TEST_F(DaemonAttentionTest, MapsAreDrawnForTheModelsHeads) {
  Start();
  v1::MapAttentionRequest request;
  request.set_policy("strided:stride=2,local=0");
  request.set_tokens(200);
  grpc::ClientContext context;
  v1::MapAttentionResponse response;
  ASSERT_TRUE(inference_->MapAttention(&context, request, &response).ok());
  EXPECT_EQ(response.policy(), "strided:block=64,stride=2,local=0");
  EXPECT_EQ(response.side(), 4);
  EXPECT_GE(response.heads(0).head_count(), 1);
  request.set_policy("strided:block=96");
  grpc::ClientContext refused;
  const grpc::Status status = inference_->MapAttention(&refused, request, &response);
  EXPECT_EQ(Details(status).field, "policy");
  EXPECT_THAT(status.error_message(), HasSubstr("a multiple of the page"));
}

TEST_F(DaemonAttentionTest, ABlockThatIsNoMultipleOfThePageIsRefused) {
  Start();
  const grpc::Status status = Generate("abc", "window:block=96");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Details(status).field, "spec.attention.policy");
  EXPECT_THAT(status.error_message(), HasSubstr("a multiple of the page, which has 64 tokens"));
  EXPECT_TRUE(Generate("abc", "window:block=128").ok());
  const grpc::Status gates = Generate("abc", "learned");
  EXPECT_EQ(gates.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Details(gates).field, "spec.attention.policy");
  EXPECT_THAT(gates.error_message(), HasSubstr("--attention-gates FILE"));
}

// What a contract did stands in the reply and in the metrics.
TEST_F(DaemonAttentionTest, ContractsAreReportedAndMeasured) {
  Start({"--model", "builtin:recall3"});
  const bench::DemoDocument document = bench::MakeDemoDocument({.bytes = 2'500}).value();
  const bench::DemoFact& fact = document.facts.front();
  ASSERT_TRUE(Generate(document.text + fact.cue, "adaptive:coverage=0.9").ok());
  EXPECT_EQ(response_.text(), fact.answer);
  EXPECT_TRUE(report().contract_met());
  EXPECT_GE(report().estimated_coverage(), 0.9);
  EXPECT_GE(report().sampled_coverage().minimum(), 0.9);
  EXPECT_GE(report().sampled_coverage().mean(), report().sampled_coverage().minimum());
  EXPECT_GT(report().sampled_coverage().first_percentile(), 0);
  EXPECT_GE(report().sampled_coverage().rows(), 16);
  EXPECT_GT(report().layer_steps(), 0);
  const std::string page = Scrape(daemon_->metrics_address());
  EXPECT_NEAR(Metric(page, "annulus_attention_density_ratio"), report().density(), 1e-6);
  EXPECT_NEAR(Metric(page, "annulus_attention_coverage_ratio"), report().sampled_coverage().mean(),
              1e-6);
  EXPECT_NEAR(Metric(page, "annulus_attention_estimated_coverage_ratio"),
              report().estimated_coverage(), 1e-6);
  EXPECT_THAT(page, HasSubstr("annulus_attention_layers_total{outcome=\"raised\"}"));
}

TEST(DaemonAttentionExitTest, ADaemonWithABadPolicyDoesNotStart) {
  const auto expect = [](const std::string& policy, int code, const std::string& text) {
    Daemon daemon({"--attention", policy});
    EXPECT_EQ(daemon.WaitForExit(seconds(30)), code) << daemon.output();
    EXPECT_THAT(daemon.output(), HasSubstr(text));
  };
  expect("widow", 2, "did you mean window?");
  expect("window:window=0", 2, "'0' is not allowed: 1 to ");
  expect("window:block=96", 1, "a multiple of the page, which has 64 tokens");
}

}  // namespace
}  // namespace annulus::server
