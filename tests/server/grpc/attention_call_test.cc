// Attention policies of requests and their maps: what arrives, what is reported, what is refused.

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "tests/server/grpc/generate_fixture.h"
#include "tests/server/test_server.h"

namespace annulus::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class AttentionCallTest : public GenerateFixture {};

TEST_F(AttentionCallTest, ThePolicyArrivesAndThatInEffectIsReported) {
  server_.engine().set_scripter([](const RequestSpec& spec) {
    FakeScript script;
    if (spec.attention.has_value())
      script.completion.attention.policy = PolicyText(spec.attention->policy);
    script.completion.attention.density = 0.25;
    return script;
  });
  auto request = TextRequest("x");
  ASSERT_TRUE(Generate(request).ok());
  EXPECT_FALSE(server_.engine().submitted().back().attention.has_value());
  request.mutable_spec()->mutable_attention();
  ASSERT_TRUE(Generate(request).ok());
  EXPECT_FALSE(server_.engine().submitted().back().attention.has_value());
  request.mutable_spec()->mutable_attention()->set_policy("window:window=128");
  ASSERT_TRUE(Generate(request).ok());
  EXPECT_EQ(server_.engine().submitted().back().attention->policy.window, 128);
  EXPECT_EQ(response_.completion().attention().policy(), "window:block=64,sinks=64,window=128");
  EXPECT_EQ(response_.completion().attention().density(), 0.25);
}

TEST_F(AttentionCallTest, TheContractArrivesAndWhatCameOfItIsReported) {
  server_.engine().set_scripter([](const RequestSpec& spec) {
    FakeScript script;
    AttentionReport& report = script.completion.attention;
    report.estimated_coverage = 0.9;
    report.sampled = {0.8, 0.7, 0.6, 50};
    report.layer_steps = 9;
    report.layers_raised = 2;
    report.layers_dense = 1;
    report.contract_met = false;
    report.inherited_coverage = 0.5;
    report.estimate_seconds = 0.25;
    report.attend_seconds = 4;
    report.estimate_wall_seconds = 0.125;
    report.attend_wall_seconds = 1;
    script.completion.rope_factors = "short";
    if (spec.attention_details) report.details = {{3, 1, 0.5, {}, 0.75, {0, 128, 255}, {255, 0}}};
    return script;
  });
  auto request = TextRequest("x");
  v1::AttentionSpec& attention = *request.mutable_spec()->mutable_attention();
  attention.set_coverage(0.9);
  ASSERT_TRUE(Generate(request).ok());
  AttentionPolicy policy = server_.engine().submitted().back().attention->policy;
  EXPECT_EQ(PolicyName(policy.kind), "adaptive");
  EXPECT_EQ(policy.coverage, 0.9);
  EXPECT_EQ(response_.completion().attention().details_size(), 0);
  attention.set_policy("strided:coverage=0.5");
  attention.set_coverage(1);
  attention.set_details(true);
  ASSERT_TRUE(Generate(request).ok());
  policy = server_.engine().submitted().back().attention->policy;
  EXPECT_EQ(PolicyText(policy), "strided:block=64,stride=8,local=4,coverage=1");
  v1::AttentionReport expected;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"(policy: "dense" density: 1 ring_degree: 1 estimated_coverage: 0.9
         sampled_coverage { mean: 0.8 minimum: 0.7 first_percentile: 0.6 rows: 50 }
         layer_steps: 9 layers_raised: 2 layers_dense: 1 inherited_coverage: 0.5
         estimate_seconds: 0.25 attend_seconds: 4
         estimate_wall_seconds: 0.125 attend_wall_seconds: 1
         details { layer: 3 kv_head: 1 density: 0.5 sampled_coverage: 0.75
                   map: "\000\200\377" computed: "\377\000" })",
      &expected));
  EXPECT_EQ(response_.completion().attention().DebugString(), expected.DebugString());
  EXPECT_EQ(response_.completion().rope_factors(), "short");
}

TEST_F(AttentionCallTest, ContractsOutOfRangeAreRefusedAndNothingStarts) {
  const auto refused = [&](double coverage, const std::string& policy) {
    auto request = TextRequest("x");
    request.mutable_spec()->mutable_attention()->set_coverage(coverage);
    if (!policy.empty()) request.mutable_spec()->mutable_attention()->set_policy(policy);
    const grpc::Status status = Generate(request);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << coverage;
    EXPECT_EQ(Details(status).field, "spec.attention.coverage");
    return status.error_message();
  };
  for (const double coverage : {0.0, -0.5, 1.001, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THAT(refused(coverage, ""), HasSubstr("is not allowed: above 0, at most 1"));
  }
  EXPECT_THAT(refused(0.9, "dense"), HasSubstr("dense cannot guarantee a coverage"));
  EXPECT_THAT(refused(0.9, "dilated"), HasSubstr("dilated cannot guarantee a coverage"));
  EXPECT_THAT(refused(0.9, "top_pages"), HasSubstr("top_pages cannot guarantee a coverage"));
  EXPECT_THAT(server_.engine().submitted(), ::testing::IsEmpty());
}

TEST_F(AttentionCallTest, AttentionIsMapped) {
  const auto map = [&](const v1::MapAttentionRequest& request, v1::MapAttentionResponse& response) {
    grpc::ClientContext context;
    return stub_->MapAttention(&context, request, &response);
  };
  v1::MapAttentionRequest request;
  v1::MapAttentionResponse response;
  request.set_policy("dilated_blocks:rates=1/2");
  request.set_tokens(4 * 64);
  ASSERT_TRUE(map(request, response).ok());
  EXPECT_EQ(response.policy(), "dilated_blocks:block=64,rates=1/2");
  EXPECT_EQ(response.block_tokens(), 64);
  EXPECT_EQ(response.blocks(), 4);
  EXPECT_EQ(response.side(), 4);
  ASSERT_EQ(response.heads_size(), 2);
  EXPECT_EQ(response.heads(0).density(), 1);
  EXPECT_EQ(response.heads(1).first_head(), 1);
  EXPECT_EQ(response.heads(1).head_count(), 1);
  EXPECT_EQ(response.heads(1).map(), std::string("\xff\0\0\0"
                                                 "\0\xff\0\0"
                                                 "\xff\0\xff\0"
                                                 "\0\xff\0\xff",
                                                 16));
  request.clear_policy();
  request.set_heads(3);
  request.set_cells(2);
  ASSERT_TRUE(map(request, response).ok());
  EXPECT_EQ(response.policy(), "dense");
  EXPECT_EQ(response.side(), 2);
  EXPECT_EQ(response.heads(0).head_count(), 3);

  const auto refused = [&](v1::MapAttentionRequest bad, const std::string& field) {
    const grpc::Status status = map(bad, response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(Details(status).field, field);
    return status.error_message();
  };
  request.set_policy("strieded");
  EXPECT_THAT(refused(request, "policy"), HasSubstr("did you mean strided?"));
  request.set_policy("adaptive");
  EXPECT_THAT(refused(request, "policy"), HasSubstr("depends on the content"));
  request.set_policy("window; layers=0: dense");
  EXPECT_THAT(refused(request, "policy"), HasSubstr("rules for layers or heads"));
  request.set_policy("window");
  request.set_heads(0);
  EXPECT_THAT(refused(request, "heads"), HasSubstr("1 to 1024"));
  request.set_heads(1025);
  EXPECT_THAT(refused(request, "heads"), HasSubstr("1 to 1024"));
  request.set_heads(1);
  request.set_cells(0);
  EXPECT_THAT(refused(request, "cells"), HasSubstr("1 to 1024"));
  request.set_cells(64);
  request.set_tokens(0);
  EXPECT_THAT(refused(request, "tokens"), HasSubstr("1 to 1073741824"));
  request.set_tokens(1 << 30);
  EXPECT_THAT(refused(request, "tokens"),
              AllOf(HasSubstr("tokens: a sequence of 1073741824 tokens is not allowed"),
                    HasSubstr("at most 2965760; draw fewer heads")));
}

TEST_F(AttentionCallTest, BadPoliciesAreToldWhatIsAllowedAndNothingStarts) {
  const auto refused = [&](const std::string& policy) {
    auto request = TextRequest("x");
    request.mutable_spec()->mutable_attention()->set_policy(policy);
    const grpc::Status status = Generate(request);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << policy;
    EXPECT_EQ(Details(status).field, "spec.attention.policy");
    EXPECT_EQ(Details(status).reason, "INVALID_FIELD");
    return status.error_message();
  };
  EXPECT_THAT(refused("widow"), HasSubstr("did you mean window?"));
  EXPECT_THAT(refused(""), HasSubstr("Known: dense, window, "));
  EXPECT_THAT(refused("dense:block=64"), HasSubstr("has no parameters"));
  EXPECT_THAT(refused("window:windows=64"), HasSubstr("did you mean window?"));
  EXPECT_THAT(refused("window:window=0"), HasSubstr("'0' is not allowed: 1 to "));
  EXPECT_THAT(refused("window:window=-64"), HasSubstr("'-64' is not allowed: 1 to "));
  EXPECT_THAT(refused("window:sinks=-1"), HasSubstr("'-1' is not allowed: 0 to "));
  EXPECT_THAT(refused("window:window=99999999999999"), HasSubstr("is not allowed: 1 to "));
  EXPECT_THAT(refused("window:window=1e3"), HasSubstr("is not allowed: 1 to "));
  EXPECT_THAT(refused("strided:stride=0"), HasSubstr("'0' is not allowed: 1 to "));
  EXPECT_THAT(refused("dilated_blocks:rates=1/0"), HasSubstr("'0' is not allowed: 1 to "));
  EXPECT_THAT(refused("hierarchical:fan=1"), HasSubstr("'1' is not allowed: 2 to "));
  EXPECT_THAT(refused("window:block=8"), HasSubstr("'8' is not allowed: 16 to "));
  EXPECT_THAT(refused(std::string(1025, 'x')), HasSubstr("at most 1024"));
  EXPECT_THAT(server_.engine().submitted(), ::testing::IsEmpty());
}

}  // namespace
}  // namespace annulus::server
