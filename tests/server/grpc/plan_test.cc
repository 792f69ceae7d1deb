// Plan: what a request would take.

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/cord.h"
#include "tests/server/test_server.h"

namespace annulus::server {
namespace {

class PlanTest : public ::testing::Test {
 protected:
  PlanTest() : stub_(server_.inference()) { server_.Serve(); }

  grpc::Status Plan(const v1::GenerationSpec& spec) {
    v1::PlanRequest request;
    *request.mutable_spec() = spec;
    grpc::ClientContext context;
    plan_.Clear();
    return stub_->Plan(&context, request, &plan_);
  }
  static v1::GenerationSpec TextSpec(const std::string& text) {
    v1::GenerationSpec spec;
    spec.set_text(text);
    return spec;
  }

  TestServer server_;
  std::unique_ptr<v1::InferenceService::Stub> stub_;
  v1::PlanResponse plan_;
};

TEST_F(PlanTest, TellsWhatTheEngineSays) {
  RequestPlan plan;
  plan.ranks = {{.rank = 1, .kv_bytes = 10, .cached_bytes = 4, .kv_bytes_total = 100}};
  plan.cached_tokens = 3;
  plan.host_tokens = 1;
  plan.disk_tokens = 2;
  plan.policy = "window:block=64,sinks=64,window=4096";
  plan.choice = "because";
  plan.density = 0.5;
  plan.requests_ahead = 7;
  plan.seconds = {.first_token = 2, .prefill = 1};
  server_.engine().set_plan(plan);
  ASSERT_TRUE(server_.Upload("story", "Once.").ok());
  v1::GenerationSpec spec = TextSpec("hi");
  spec.add_documents("story");
  spec.mutable_sampling()->set_max_tokens(9);
  ASSERT_TRUE(Plan(spec).ok());
  EXPECT_EQ(plan_.prompt_tokens(), 1 + 5 + 2);
  EXPECT_EQ(plan_.max_answer_tokens(), 9);
  EXPECT_EQ(plan_.max_context(), 4096);
  EXPECT_EQ(plan_.fit(), v1::PlanResponse::FIT_NOW);
  ASSERT_EQ(plan_.ranks_size(), 1);
  EXPECT_EQ(plan_.ranks(0).rank(), 1);
  EXPECT_EQ(plan_.ranks(0).kv_bytes(), 10);
  EXPECT_EQ(plan_.ranks(0).cached_bytes(), 4);
  EXPECT_EQ(plan_.ranks(0).kv_bytes_total(), 100);
  EXPECT_EQ(plan_.cached_tokens(), 3);
  EXPECT_EQ(plan_.host_tokens(), 1);
  EXPECT_EQ(plan_.disk_tokens(), 2);
  EXPECT_EQ(plan_.policy(), plan.policy);
  EXPECT_EQ(plan_.choice(), "because");
  EXPECT_EQ(plan_.density(), 0.5);
  EXPECT_EQ(plan_.requests_ahead(), 7);
  EXPECT_EQ(plan_.time_to_first_token(), 2);
  EXPECT_EQ(plan_.prefill(), 1);
  EXPECT_TRUE(server_.engine().submitted().empty());
}

TEST_F(PlanTest, WhatIsNotKnownIsAbsent) {
  RequestPlan plan;
  plan.room = RoomFor::kNever;
  plan.obstacle = "too large";
  server_.engine().set_plan(plan);
  ASSERT_TRUE(Plan(TextSpec("hi")).ok());
  EXPECT_EQ(plan_.fit(), v1::PlanResponse::FIT_NEVER);
  EXPECT_EQ(plan_.obstacle(), "too large");
  EXPECT_FALSE(plan_.has_density());
  EXPECT_FALSE(plan_.has_time_to_first_token());
  EXPECT_FALSE(plan_.has_prefill());
}

TEST_F(PlanTest, ErrorsAreThoseOfGenerate) {
  v1::GenerationSpec spec = TextSpec("hi");
  spec.mutable_sampling()->set_top_p(3);
  EXPECT_EQ(Details(Plan(spec)).field, "spec.sampling.top_p");
  spec = TextSpec("hi");
  spec.add_documents("none");
  EXPECT_EQ(Details(Plan(spec)).reason, "DOCUMENT_NOT_FOUND");
  spec = TextSpec("hi");
  spec.set_model("other");
  EXPECT_EQ(Details(Plan(spec)).reason, "MODEL_NOT_FOUND");
  EXPECT_EQ(Details(Plan(TextSpec(std::string(5000, 'x')))).reason, "CONTEXT_TOO_LONG");
  absl::Status busy = absl::ResourceExhaustedError("busy");
  busy.SetPayload(kRetryPayload, absl::Cord("500"));
  server_.engine().set_plan(busy);
  const grpc::Status status = Plan(TextSpec("hi"));
  EXPECT_EQ(Details(status).reason, "QUEUE_FULL");
  EXPECT_EQ(Details(status).retry_ms, 500);
}

}  // namespace
}  // namespace annulus::server
