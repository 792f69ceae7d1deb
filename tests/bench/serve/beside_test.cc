#include "bench/serve/beside.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/fake_server.h"

namespace annulus {
namespace {

TEST(BesideRows, HaveTheRatesAndTheLatencies) {
  BesideOptions options;
  options.long_prompt = 1000;
  BesideResult result;
  result.alone = 6;
  result.beside = 8;
  for (int i = 1; i <= 100; ++i) result.stream_gaps.push_back(0.001 * i);
  result.arrivals.resize(3);
  result.arrivals[0].code = grpc::StatusCode::OK;
  result.arrivals[0].first_token = 2;
  result.arrivals[1].code = grpc::StatusCode::OK;
  result.arrivals[1].first_token = 1;
  const std::vector<Row> rows = BesideRows(options, result);
  ASSERT_EQ(rows.size(), 3u);
  const auto prompt = nlohmann::json::parse(rows[0].Json());
  EXPECT_EQ(prompt["of_its_rate"], 0.75);
  const auto stream = nlohmann::json::parse(rows[1].Json());
  EXPECT_EQ(stream["measured"], "stream_inter_token");
  EXPECT_DOUBLE_EQ(stream["p99"], 0.099);
  const auto arrivals = nlohmann::json::parse(rows[2].Json());
  EXPECT_EQ(arrivals["max"], 2);
  EXPECT_EQ(arrivals["count"], 2);
  EXPECT_EQ(arrivals["failed"], 1);
}

TEST(RunBeside, AStreamThatEndsTooSoonIsSaid) {
  testing::FakeServer server;
  v1::StreamGenerateResponse token;
  token.mutable_delta()->add_token_ids(1);
  v1::StreamGenerateResponse end;
  end.mutable_completion()->set_finish_reason(v1::FINISH_REASON_LENGTH);
  server.SetReply({{token, end}});
  ConnectionOptions connection;
  connection.server = server.address();
  BesideOptions options;
  options.long_prompt = 20;
  options.load.vocabulary = 40;
  const auto result = RunBeside(connection, options, [](const std::string&) {});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(result.status().message()), ::testing::HasSubstr("--stream-tokens"));
}

}  // namespace
}  // namespace annulus
