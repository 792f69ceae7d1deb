#include "bench/serve/load.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "bench/serve/load_report.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/fake_server.h"

namespace annulus::bench {
namespace {

v1::StreamGenerateResponse DeltaOf(std::vector<int32_t> ids) {
  v1::StreamGenerateResponse event;
  for (const int32_t id : ids) event.mutable_delta()->add_token_ids(id);
  return event;
}

v1::StreamGenerateResponse End() {
  v1::StreamGenerateResponse event;
  event.mutable_completion()->set_finish_reason(v1::FINISH_REASON_LENGTH);
  return event;
}

LoadOptions Quick() {
  LoadOptions options;
  options.rate = 200;
  options.duration = 0.1;
  options.prompt_tokens = 5;
  options.max_tokens = 3;
  options.vocabulary = 40;
  return options;
}

LoadResult Load(const testing::FakeServer& server, const LoadOptions& options) {
  client::Cancellation cancellation;
  client::ConnectionOptions connection;
  connection.server = server.address();
  const auto open = client::Connection::Open(connection, cancellation);
  EXPECT_TRUE(open.ok()) << open.status();
  auto result = RunLoad(**open, options, [](int64_t, int64_t) {});
  EXPECT_TRUE(result.ok()) << result.status();
  return *std::move(result);
}

TEST(ArrivalTimes, AreAPoissonProcess) {
  const std::vector<double> times = ArrivalTimes(50, 400, 3);
  EXPECT_EQ(times, ArrivalTimes(50, 400, 3));
  EXPECT_NE(times, ArrivalTimes(50, 400, 4));
  EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
  EXPECT_LT(times.back(), 400);
  // 20,000 expected, with a deviation of their root.
  EXPECT_NEAR(static_cast<double>(times.size()), 20'000, 5 * std::sqrt(20'000));
  // Gaps are exponential: a share of 1/e is longer than their mean.
  int longer = 0;
  for (size_t i = 1; i < times.size(); ++i) longer += times[i] - times[i - 1] > 1.0 / 50;
  EXPECT_NEAR(longer / static_cast<double>(times.size()), std::exp(-1), 0.02);
}

TEST(RunLoad, SendsEveryRequestWithItsOwnPrompt) {
  testing::FakeServer server;
  server.SetReply({{DeltaOf({1}), DeltaOf({}), DeltaOf({2, 3}), End()}});
  const LoadOptions options = Quick();
  const LoadResult result = Load(server, options);
  const size_t count = ArrivalTimes(options.rate, options.duration, options.seed).size();
  ASSERT_GT(count, 5u);
  ASSERT_EQ(result.outcomes.size(), count);
  for (const RequestOutcome& outcome : result.outcomes) {
    EXPECT_EQ(outcome.code, grpc::StatusCode::OK) << outcome.message;
    EXPECT_EQ(outcome.tokens, 3);
    EXPECT_EQ(outcome.gaps.size(), 1u);
    EXPECT_GT(outcome.first_token, 0);
    EXPECT_GE(outcome.end, outcome.first_token);
    EXPECT_LE(outcome.end, result.seconds);
  }
  std::set<std::vector<int32_t>> prompts;
  for (const v1::GenerationSpec& spec : server.specs()) {
    const auto& ids = spec.token_ids().ids();
    prompts.emplace(ids.begin(), ids.end());
    EXPECT_EQ(ids.size(), 5);
    EXPECT_THAT(ids, ::testing::Each(::testing::AllOf(::testing::Ge(0), ::testing::Lt(40))));
    EXPECT_EQ(spec.sampling().max_tokens(), 3);
    EXPECT_EQ(spec.speculation(), v1::SPECULATION_OFF) << "guesses are not decoding";
  }
  EXPECT_EQ(prompts.size(), count);
}

TEST(RunLoad, SpreadsLengthsEvenlyOnALogarithmicScale) {
  testing::FakeServer server;
  server.SetReply({{DeltaOf({1}), End()}});
  LoadOptions options = Quick();
  options.rate = 2000;
  options.prompt_tokens = 10;
  options.longest_prompt = 1000;
  const LoadResult result = Load(server, options);
  std::multiset<int> sent;
  for (const v1::GenerationSpec& spec : server.specs()) sent.insert(spec.token_ids().ids_size());
  std::multiset<int> noted;
  int below = 0;
  for (const RequestOutcome& outcome : result.outcomes) {
    noted.insert(outcome.prompt_tokens);
    below += outcome.prompt_tokens < 100;
  }
  EXPECT_EQ(noted, sent);
  EXPECT_GE(*sent.begin(), 10);
  EXPECT_LE(*sent.rbegin(), 1000);
  EXPECT_NEAR(below, std::ssize(result.outcomes) / 2.0, 1) << "half lie below the geometric mean";
}

TEST(PromptLengths, AreTheSameForEverySeedInAnotherOrder) {
  LoadOptions options;
  options.prompt_tokens = 200;
  EXPECT_EQ(PromptLengths(options, 3), std::vector<int32_t>(3, 200));
  options.longest_prompt = 131'072;
  std::vector<int32_t> first = PromptLengths(options, 40);
  EXPECT_EQ(first, PromptLengths(options, 40));
  options.seed = 2;
  std::vector<int32_t> second = PromptLengths(options, 40);
  EXPECT_NE(first, second);
  std::sort(first.begin(), first.end());
  std::sort(second.begin(), second.end());
  EXPECT_EQ(first, second);
  EXPECT_GE(first.front(), 200);
  EXPECT_LT(first.back(), 131'072);
  EXPECT_GT(first.back(), 100'000);
  EXPECT_TRUE(PromptLengths(options, 0).empty());
}

TEST(LoadRows, TellShortPromptsFromLongOnes) {
  LoadOptions options = Quick();
  options.longest_prompt = 500;
  LoadResult result;
  result.seconds = 10;
  for (int i = 0; i < 10; ++i) {
    RequestOutcome outcome;
    outcome.code = i == 9 ? grpc::StatusCode::DEADLINE_EXCEEDED : grpc::StatusCode::OK;
    outcome.prompt_tokens = 5 + 10 * i;
    outcome.first_token = i;
    outcome.tokens = 1;
    result.outcomes.push_back(outcome);
  }
  const std::vector<Row> rows = LoadRows(options, result);
  ASSERT_EQ(rows.size(), 7u);
  const auto shorter = nlohmann::json::parse(rows[2].Json());
  EXPECT_EQ(shorter.at("latency"), "time_to_first_token_shorter");
  EXPECT_EQ(shorter.at("count"), 5);
  EXPECT_EQ(shorter.at("mean"), 2);
  const auto longer = nlohmann::json::parse(rows[3].Json());
  EXPECT_EQ(longer.at("latency"), "time_to_first_token_longer");
  EXPECT_EQ(longer.at("count"), 4);
  EXPECT_EQ(longer.at("mean"), 6.5);
}

TEST(RunLoad, CountsFailuresByTheirCode) {
  testing::FakeServer server;
  server.SetFailure({grpc::StatusCode::RESOURCE_EXHAUSTED, "the queue is full"});
  const LoadResult result = Load(server, Quick());
  const std::vector<Row> rows = LoadRows(Quick(), result);
  ASSERT_EQ(rows.size(), 5u);
  const auto total = nlohmann::json::parse(rows[0].Json());
  EXPECT_EQ(total.at("succeeded"), 0);
  EXPECT_EQ(total.at("rejected"), total.at("requests"));
  EXPECT_TRUE(nlohmann::json::parse(rows[1].Json()).at("p50").is_null());
  const auto failure = nlohmann::json::parse(rows[4].Json());
  EXPECT_EQ(failure.at("code"), "RESOURCE_EXHAUSTED");
  EXPECT_EQ(failure.at("requests"), total.at("requests"));
  EXPECT_EQ(failure.at("message"), "the queue is full");
}

// As the daemon counts them in annulus_requests_settled_total.
TEST(LoadRows, RequestsAreWhatBecameOfThem) {
  using grpc::StatusCode;
  LoadResult result;
  result.seconds = 1;
  for (const StatusCode code :
       {StatusCode::OK, StatusCode::RESOURCE_EXHAUSTED, StatusCode::OUT_OF_RANGE,
        StatusCode::CANCELLED, StatusCode::DEADLINE_EXCEEDED, StatusCode::DEADLINE_EXCEEDED,
        StatusCode::UNAVAILABLE, StatusCode::INTERNAL, StatusCode::UNKNOWN, StatusCode::ABORTED}) {
    result.outcomes.emplace_back().code = code;
  }
  const auto total = nlohmann::json::parse(LoadRows(Quick(), result)[0].Json());
  EXPECT_EQ(total.at("requests"), 10);
  EXPECT_EQ(total.at("succeeded"), 1);
  EXPECT_EQ(total.at("rejected"), 2);
  EXPECT_EQ(total.at("cancelled"), 3);
  EXPECT_EQ(total.at("failed"), 4);
}

TEST(LoadRows, GivePercentilesOfWhatSucceeded) {
  LoadResult result;
  result.seconds = 10;
  for (int i = 1; i <= 100; ++i) {
    RequestOutcome outcome;
    outcome.code = grpc::StatusCode::OK;
    outcome.first_token = i;
    outcome.end = 2 * i;
    outcome.gaps = {0.5, 1.5};
    outcome.tokens = 3;
    outcome.prompt_tokens = 5;
    result.outcomes.push_back(outcome);
  }
  const std::vector<Row> rows = LoadRows(Quick(), result);
  ASSERT_EQ(rows.size(), 4u);
  const auto total = nlohmann::json::parse(rows[0].Json());
  EXPECT_EQ(total.at("requests_per_second"), 10);
  EXPECT_EQ(total.at("tokens_per_second"), 30);
  EXPECT_EQ(total.at("prompt_tokens_per_second"), 50);
  const auto first = nlohmann::json::parse(rows[1].Json());
  EXPECT_EQ(first.at("latency"), "time_to_first_token");
  EXPECT_EQ(first.at("mean"), 50.5);
  EXPECT_EQ(first.at("p50"), 50);
  EXPECT_EQ(first.at("p90"), 90);
  EXPECT_EQ(first.at("p99"), 99);
  EXPECT_EQ(first.at("max"), 100);
  const auto gaps = nlohmann::json::parse(rows[2].Json());
  EXPECT_EQ(gaps.at("count"), 200);
  EXPECT_EQ(gaps.at("p50"), 0.5);
  EXPECT_EQ(gaps.at("p90"), 1.5);
}

}  // namespace
}  // namespace annulus::bench
