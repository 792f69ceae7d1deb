#include "bench/serve/load_report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "bench/report/statistics.h"
#include "client/failure.h"

namespace annulus::bench {
namespace {

Row LatencyRow(const char* name, const std::vector<double>& seconds) {
  Row row;
  row.Text("latency", name).Int("count", static_cast<int64_t>(seconds.size()));
  double sum = 0;
  for (const double each : seconds) sum += each;
  row.Number("mean", seconds.empty() ? std::nan("") : sum / static_cast<double>(seconds.size()),
             Row::Unit::kSeconds);
  for (const auto& [label, share] : {std::pair{"p50", 0.5}, std::pair{"p90", 0.9},
                                     std::pair{"p99", 0.99}, std::pair{"max", 1.0}}) {
    row.Number(label, Percentile(seconds, share), Row::Unit::kSeconds);
  }
  return row;
}

// Seconds to the first token of the requests whose prompts are shorter, or not, than the median of
// all that were sent.
std::pair<std::vector<double>, std::vector<double>> FirstTokensByHalf(const LoadResult& result) {
  std::vector<int32_t> lengths;
  for (const RequestOutcome& outcome : result.outcomes) lengths.push_back(outcome.prompt_tokens);
  const auto middle = lengths.begin() + std::ssize(lengths) / 2;
  std::nth_element(lengths.begin(), middle, lengths.end());
  std::pair<std::vector<double>, std::vector<double>> halves;
  for (const RequestOutcome& outcome : result.outcomes) {
    if (outcome.code != grpc::StatusCode::OK || outcome.tokens == 0) continue;
    (outcome.prompt_tokens < *middle ? halves.first : halves.second).push_back(outcome.first_token);
  }
  return halves;
}

// What became of requests, with the same meaning as the label `fate` of the daemon's
// annulus_requests_settled_total.
struct Fates {
  int64_t succeeded = 0;
  int64_t rejected = 0;
  int64_t cancelled = 0;  // by the client, or as its deadline passed
  int64_t failed = 0;

  void Count(grpc::StatusCode code) {
    switch (code) {
      case grpc::StatusCode::OK:
        ++succeeded;
        break;
      case grpc::StatusCode::CANCELLED:
      case grpc::StatusCode::DEADLINE_EXCEEDED:
        ++cancelled;
        break;
      case grpc::StatusCode::UNAVAILABLE:
      case grpc::StatusCode::INTERNAL:
      case grpc::StatusCode::UNKNOWN:
      case grpc::StatusCode::DATA_LOSS:
      case grpc::StatusCode::ABORTED:
        ++failed;
        break;
      default:
        ++rejected;
    }
  }
};

}  // namespace

std::vector<Row> LoadRows(const LoadOptions& options, const LoadResult& result) {
  std::vector<double> first_token;
  std::vector<double> gaps;
  std::vector<double> end;
  int64_t tokens = 0;
  int64_t prompt_tokens = 0;  // of those that succeeded, like the rest
  std::map<grpc::StatusCode, std::pair<int64_t, std::string>> failures;
  Fates fates;
  for (const RequestOutcome& outcome : result.outcomes) {
    fates.Count(outcome.code);
    if (outcome.code != grpc::StatusCode::OK) {
      auto& [count, message] = failures[outcome.code];
      if (++count == 1) message = outcome.message;
      continue;
    }
    tokens += outcome.tokens;
    prompt_tokens += outcome.prompt_tokens;
    end.push_back(outcome.end);
    if (outcome.tokens > 0) first_token.push_back(outcome.first_token);
    gaps.insert(gaps.end(), outcome.gaps.begin(), outcome.gaps.end());
  }
  const auto rate = [&](int64_t count) { return static_cast<double>(count) / result.seconds; };
  Row total;
  total.Int("requests", std::ssize(result.outcomes)).Int("succeeded", fates.succeeded);
  total.Int("rejected", fates.rejected).Int("cancelled", fates.cancelled);
  total.Int("failed", fates.failed);
  total.Number("offered_rate", options.rate, Row::Unit::kPerSecond);
  total.Number("seconds", result.seconds, Row::Unit::kSeconds);
  total.Number("requests_per_second", rate(fates.succeeded), Row::Unit::kPerSecond);
  total.Number("prompt_tokens_per_second", rate(prompt_tokens), Row::Unit::kPerSecond);
  total.Number("tokens_per_second", rate(tokens), Row::Unit::kPerSecond);
  total.OnlyJson().Int("prompt_tokens", options.prompt_tokens);
  total.Int("longest_prompt", std::max(options.longest_prompt, options.prompt_tokens));
  total.Int("max_tokens", options.max_tokens).Number("duration", options.duration);
  total.Int("seed", options.seed).Text("speculation", options.speculation ? "ngram" : "off");
  std::vector<Row> rows = {total, LatencyRow("time_to_first_token", first_token)};
  if (options.longest_prompt > options.prompt_tokens) {
    const auto [shorter, longer] = FirstTokensByHalf(result);
    rows.push_back(LatencyRow("time_to_first_token_shorter", shorter));
    rows.push_back(LatencyRow("time_to_first_token_longer", longer));
  }
  rows.push_back(LatencyRow("inter_token", gaps));
  rows.push_back(LatencyRow("e2e", end));
  for (const auto& [code, failure] : failures) {
    Row row;
    row.Text("code", client::CodeName(code)).Int("requests", failure.first);
    rows.push_back(row.Text("message", failure.second));
  }
  return rows;
}

}  // namespace annulus::bench
