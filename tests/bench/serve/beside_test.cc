#include "bench/serve/beside.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/fake_server.h"

namespace annulus::bench {
namespace {

TEST(BesideRows, HaveTheRatesAndTheLatencies) {
  BesideOptions options;
  options.long_prompt = 1000;
  BesideResult result;
  result.alone = 6;
  // Too early and too late for the time left to count, and right, a fifth too long, a half too
  // short.
  result.progress = {{0.5, 0.05, 100}, {1, 0.2, 5}, {3, 0.4, 3.6}, {4, 0.6, 1}, {5.9, 0.95, 9}};
  result.beside = 8;
  for (int i = 1; i <= 100; ++i) result.stream_gaps.push_back(0.001 * i);
  result.arrivals.resize(3);
  result.arrivals[0].code = grpc::StatusCode::OK;
  result.arrivals[0].first_token = 2;
  result.arrivals[1].code = grpc::StatusCode::OK;
  result.arrivals[1].first_token = 1;
  const std::vector<Row> rows = BesideRows(options, result);
  ASSERT_EQ(rows.size(), 4u);
  const auto prompt = nlohmann::json::parse(rows[0].Json());
  EXPECT_EQ(prompt["of_its_rate"], 0.75);
  const auto progress = nlohmann::json::parse(rows[1].Json());
  EXPECT_EQ(progress["measured"], "progress_alone");
  EXPECT_EQ(progress["count"], 5);
  EXPECT_DOUBLE_EQ(progress["gap_max"], 2);
  EXPECT_DOUBLE_EQ(progress["gap_p50"], 0.5);
  EXPECT_NEAR(progress["eta_error_p50"], 0.2, 1e-9);
  EXPECT_DOUBLE_EQ(progress["eta_error_max"], 0.5);
  const auto stream = nlohmann::json::parse(rows[2].Json());
  EXPECT_EQ(stream["measured"], "stream_inter_token");
  EXPECT_DOUBLE_EQ(stream["p99"], 0.099);
  const auto arrivals = nlohmann::json::parse(rows[3].Json());
  EXPECT_EQ(arrivals["max"], 2);
  EXPECT_EQ(arrivals["count"], 2);
  EXPECT_EQ(arrivals["failed"], 1);
}

// Of a prompt of which a quarter was cached.
TEST(RunBeside, NotesWhatIsSaidOfThePromptAlone) {
  testing::FakeServer server;
  v1::StreamGenerateResponse progress;
  progress.mutable_prompt_progress()->set_total(400);
  progress.mutable_prompt_progress()->set_cached(100);
  progress.mutable_prompt_progress()->set_processed(250);
  progress.mutable_prompt_progress()->set_eta(7);
  v1::StreamGenerateResponse token;
  token.mutable_delta()->add_token_ids(1);
  v1::StreamGenerateResponse end;
  end.mutable_completion()->set_finish_reason(v1::FINISH_REASON_LENGTH);
  server.SetReplies([&](const v1::GenerationSpec& spec) -> testing::FakeServer::Reply {
    if (spec.token_ids().ids_size() == 400) return {{progress, token, end}};
    return {.events = std::vector<v1::StreamGenerateResponse>(5, token), .wait_for_cancel = true};
  });
  client::ConnectionOptions connection;
  connection.server = server.address();
  BesideOptions options;
  options.long_prompt = 400;
  options.load.rate = 0.001;  // no short ones
  options.load.vocabulary = 40;
  const auto result = RunBeside(connection, options, [](const std::string&) {});
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->progress.size(), 1u);
  EXPECT_EQ(result->progress[0].done, 0.5);
  EXPECT_EQ(result->progress[0].eta, 7);
  EXPECT_GE(result->progress[0].at, 0);
  EXPECT_LE(result->progress[0].at, result->alone);
}

TEST(RunBeside, AStreamThatEndsTooSoonIsSaid) {
  testing::FakeServer server;
  v1::StreamGenerateResponse token;
  token.mutable_delta()->add_token_ids(1);
  v1::StreamGenerateResponse end;
  end.mutable_completion()->set_finish_reason(v1::FINISH_REASON_LENGTH);
  server.SetReply({{token, end}});
  client::ConnectionOptions connection;
  connection.server = server.address();
  BesideOptions options;
  options.long_prompt = 20;
  options.load.vocabulary = 40;
  const auto result = RunBeside(connection, options, [](const std::string&) {});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(result.status().message()), ::testing::HasSubstr("--stream-tokens"));
}

}  // namespace
}  // namespace annulus::bench
