#include "bench/serve/load_report.h"

#include <map>
#include <string>
#include <utility>

#include "bench/report/statistics.h"
#include "client/failure.h"

namespace annulus {
namespace {

Row LatencyRow(const char* name, const std::vector<double>& seconds) {
  Row row;
  row.Text("latency", name).Int("count", static_cast<int64_t>(seconds.size()));
  for (const auto& [label, share] : {std::pair{"p50", 0.5}, std::pair{"p90", 0.9},
                                     std::pair{"p99", 0.99}, std::pair{"max", 1.0}}) {
    row.Number(label, Percentile(seconds, share), Row::Unit::kSeconds);
  }
  return row;
}

}  // namespace

std::vector<Row> LoadRows(const LoadOptions& options, const LoadResult& result) {
  std::vector<double> first_token;
  std::vector<double> gaps;
  std::vector<double> end;
  int64_t tokens = 0;
  int64_t succeeded = 0;
  std::map<grpc::StatusCode, std::pair<int64_t, std::string>> failures;
  for (const RequestOutcome& outcome : result.outcomes) {
    tokens += outcome.tokens;
    if (outcome.code != grpc::StatusCode::OK) {
      auto& [count, message] = failures[outcome.code];
      if (++count == 1) message = outcome.message;
      continue;
    }
    ++succeeded;
    end.push_back(outcome.end);
    if (outcome.tokens > 0) first_token.push_back(outcome.first_token);
    gaps.insert(gaps.end(), outcome.gaps.begin(), outcome.gaps.end());
  }
  const auto requests = static_cast<int64_t>(result.outcomes.size());
  const double per_second = 1 / result.seconds;
  Row total;
  total.Int("requests", requests).Int("succeeded", succeeded).Int("failed", requests - succeeded);
  total.Number("offered_rate", options.rate, Row::Unit::kPerSecond);
  total.Number("seconds", result.seconds, Row::Unit::kSeconds);
  total.Number("requests_per_second", static_cast<double>(succeeded) * per_second,
               Row::Unit::kPerSecond);
  total.Number("prompt_tokens_per_second",
               static_cast<double>(succeeded) * options.prompt_tokens * per_second,
               Row::Unit::kPerSecond);
  total.Number("tokens_per_second", static_cast<double>(tokens) * per_second,
               Row::Unit::kPerSecond);
  total.OnlyJson().Int("prompt_tokens", options.prompt_tokens);
  total.Int("max_tokens", options.max_tokens).Number("duration", options.duration);
  std::vector<Row> rows = {total, LatencyRow("time_to_first_token", first_token),
                           LatencyRow("inter_token", gaps), LatencyRow("e2e", end)};
  for (const auto& [code, failure] : failures) {
    Row row;
    row.Text("code", CodeName(code)).Int("requests", failure.first);
    rows.push_back(row.Text("message", failure.second));
  }
  return rows;
}

}  // namespace annulus
