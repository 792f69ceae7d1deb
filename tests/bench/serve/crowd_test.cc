#include "bench/serve/crowd.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/fake_server.h"

namespace annulus::bench {
namespace {

using testing::FakeServer;
using ::testing::HasSubstr;

constexpr int kShortTokens = 5;
constexpr int kCrowdTokens = 40;

CrowdOptions QuickCrowd() {
  CrowdOptions options;
  options.prompts = 6;
  options.prompt_tokens = kCrowdTokens;
  options.token = "crowd";
  options.load.rate = 100;
  options.load.duration = 0.2;
  options.load.prompt_tokens = kShortTokens;
  options.load.max_tokens = 1;
  options.load.vocabulary = 1000;
  return options;
}

class RunCrowdTest : public ::testing::Test {
 protected:
  RunCrowdTest() {
    connection_.server = server_.address();
    connection_.token = "short";
    queued_.mutable_queued()->set_position(3);
    token_.mutable_delta()->add_token_ids(1);
    end_.mutable_completion()->set_finish_reason(v1::FINISH_REASON_LENGTH);
  }
  // What becomes of the crowd; short requests succeed.
  void SetCrowd(FakeServer::Reply crowd) {
    server_.SetReplies([this, crowd](const v1::GenerationSpec& spec) -> FakeServer::Reply {
      if (spec.token_ids().ids_size() == kCrowdTokens) return crowd;
      return {{token_, end_}};
    });
  }
  absl::StatusOr<CrowdResult> Run() {
    return RunCrowd(connection_, QuickCrowd(), [&](const std::string& what) {
      if (what == "the crowd: all prompts have arrived") tokens_.insert(server_.authorization());
    });
  }

  FakeServer server_;
  client::ConnectionOptions connection_;
  std::set<std::string> tokens_;  // that the last prompt of the crowd came with
  v1::StreamGenerateResponse queued_;
  v1::StreamGenerateResponse token_;
  v1::StreamGenerateResponse end_;
};

TEST_F(RunCrowdTest, SendsShortRequestsWithoutAndBesideTheCrowd) {
  SetCrowd({.events = {queued_}, .wait_for_cancel = true});
  const auto result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->read, 0);
  EXPECT_EQ(result->refused, 0);
  std::set<std::vector<int32_t>> prompts;
  size_t crowd = 0;
  size_t before = 0;
  for (const v1::GenerationSpec& spec : server_.specs()) {
    const auto& ids = spec.token_ids().ids();
    prompts.insert({ids.begin(), ids.end()});
    crowd += ids.size() == kCrowdTokens ? 1 : 0;
    before += crowd == 0 ? 1 : 0;
  }
  EXPECT_EQ(crowd, 6u);
  EXPECT_EQ(before, result->alone.outcomes.size()) << "all before the crowd";
  EXPECT_EQ(prompts.size(), server_.specs().size()) << "none may be cached";
  EXPECT_GT(result->beside.outcomes.size(), 0u);
  for (const RequestOutcome& outcome : result->beside.outcomes) {
    EXPECT_EQ(outcome.code, grpc::StatusCode::OK);
  }
  EXPECT_THAT(tokens_, ::testing::ElementsAre("Bearer crowd"));
  EXPECT_EQ(server_.authorization(), "Bearer short");
}

TEST_F(RunCrowdTest, ACrowdThatEndsTooSoonIsSaid) {
  SetCrowd({{token_, end_}});
  const absl::Status status = Run().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("6 prompts 6 were read and 0 were refused"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("raise --crowd"));
}

TEST_F(RunCrowdTest, ACrowdThatIsRefusedIsSaid) {
  SetCrowd({.status = {grpc::StatusCode::RESOURCE_EXHAUSTED, "the queue is full"}});
  const absl::Status status = Run().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("0 were read and 6 were refused"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("the queue is full"));
}

TEST(CrowdRows, HaveTheFirstTokensOfBoth) {
  CrowdResult result;
  for (int i = 1; i <= 100; ++i) {
    for (LoadResult* const each : {&result.alone, &result.beside}) {
      RequestOutcome& outcome = each->outcomes.emplace_back();
      outcome.code = grpc::StatusCode::OK;
      outcome.tokens = 1;
      outcome.first_token = each == &result.alone ? i : 2 * i;
    }
  }
  result.beside.outcomes.emplace_back().code = grpc::StatusCode::UNAVAILABLE;
  result.read = 17;
  result.refused = 2;
  const std::vector<Row> rows = CrowdRows(QuickCrowd(), result);
  ASSERT_EQ(rows.size(), 3u);
  const auto alone = nlohmann::json::parse(rows[0].Json());
  EXPECT_EQ(alone["measured"], "time_to_first_token_alone");
  EXPECT_EQ(alone["p50"], 50);
  EXPECT_EQ(alone["p99"], 99);
  EXPECT_EQ(alone["failed"], 0);
  const auto beside = nlohmann::json::parse(rows[1].Json());
  EXPECT_EQ(beside["measured"], "time_to_first_token_beside_crowd");
  EXPECT_EQ(beside["count"], 100);
  EXPECT_EQ(beside["failed"], 1);
  EXPECT_EQ(beside["p50"], 100);
  EXPECT_EQ(beside["p99"], 198);
  const auto crowd = nlohmann::json::parse(rows[2].Json());
  EXPECT_EQ(crowd["prompts"], 6);
  EXPECT_EQ(crowd["read"], 17);
  EXPECT_EQ(crowd["refused"], 2);
}

}  // namespace
}  // namespace annulus::bench
