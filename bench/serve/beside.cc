#include "bench/serve/beside.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/report/statistics.h"
#include "client/failure.h"
#include "client/generation.h"
#include "kernels/base/status_macros.h"

namespace annulus::bench {
namespace {

using BesideClock = std::chrono::steady_clock;

double Since(BesideClock::time_point start, BesideClock::time_point end) {
  return std::chrono::duration<double>(end - start).count();
}

// Notes when tokens come, and what is said before them of the prompt. Thread-safe.
class TokenTimes final : public client::GenerationObserver {
 public:
  void OnQueued(const v1::Queued&) override {}
  void OnProgress(const v1::PromptProgress& progress) override {
    const auto to_read = static_cast<double>(progress.total() - progress.cached());
    const auto read = static_cast<double>(progress.processed() - progress.cached());
    std::lock_guard lock(mutex_);
    progress_.push_back(
        {Since(start_, BesideClock::now()), to_read > 0 ? read / to_read : 1, progress.eta()});
  }
  void OnDelta(const v1::Delta& delta) override {
    if (delta.token_ids_size() == 0) return;
    std::lock_guard lock(mutex_);
    times_.push_back(BesideClock::now());
  }
  std::vector<BesideClock::time_point> times() const {
    std::lock_guard lock(mutex_);
    return times_;
  }
  std::vector<HeardProgress> progress() const {
    std::lock_guard lock(mutex_);
    return progress_;
  }

 private:
  const BesideClock::time_point start_ = BesideClock::now();
  mutable std::mutex mutex_;
  std::vector<BesideClock::time_point> times_;
  std::vector<HeardProgress> progress_;
};

absl::Status Failed(const char* what, const grpc::Status& status, const std::string& server) {
  return absl::UnavailableError(absl::StrCat(what, ": ", client::DescribeFailure(status, server)));
}

// Sends a request; what it came to, with times from `due` on. `progress`, if not null, gets what
// was said of its prompt.
RequestOutcome Send(client::Connection& connection, const v1::GenerationSpec& spec,
                    BesideClock::time_point due, std::vector<HeardProgress>* progress = nullptr) {
  TokenTimes watch;
  const client::Generation generation = client::StreamGenerate(connection, spec, watch);
  RequestOutcome outcome;
  outcome.code = generation.status.error_code();
  outcome.message = generation.status.error_message();
  outcome.end = Since(due, BesideClock::now());
  const auto times = watch.times();
  outcome.tokens = std::ssize(times);
  if (!times.empty()) outcome.first_token = Since(due, times.front());
  if (progress != nullptr) *progress = watch.progress();
  return outcome;
}

// Requests that arrive while `ended` is false.
std::vector<RequestOutcome> SendArrivals(client::Connection& connection, const LoadOptions& load,
                                         std::mt19937& random, const std::atomic<bool>& ended) {
  constexpr double kLongest = 3600;  // seconds
  const std::vector<double> times = ArrivalTimes(load.rate, kLongest, load.seed);
  std::vector<std::unique_ptr<RequestOutcome>> outcomes;
  std::vector<std::thread> threads;
  const auto start = BesideClock::now();
  for (const double time : times) {
    const auto due = start + std::chrono::duration_cast<BesideClock::duration>(
                                 std::chrono::duration<double>(time));
    while (!ended && BesideClock::now() < due) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    if (ended) break;
    outcomes.push_back(std::make_unique<RequestOutcome>());
    threads.emplace_back([&connection, due, outcome = outcomes.back().get(),
                          spec = RandomSpec(load, load.prompt_tokens, load.max_tokens, random)] {
      *outcome = Send(connection, spec, due);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<RequestOutcome> result;
  for (const auto& outcome : outcomes) result.push_back(*outcome);
  return result;
}

// How long nothing was heard of a prompt, and how wrong the time left was, each time.
Row ProgressRow(const BesideResult& result) {
  std::vector<double> gaps;
  std::vector<double> errors;
  double last = 0;
  for (const HeardProgress& heard : result.progress) {
    gaps.push_back(heard.at - last);
    last = heard.at;
    // The first tenth has nothing to go by, and of the last a moment is a large share.
    if (heard.done < 0.1 || heard.done > 0.9) continue;
    const double left = result.alone - heard.at;
    errors.push_back(std::abs(heard.eta - left) / left);
  }
  gaps.push_back(result.alone - last);
  Row row;
  row.Text("measured", "progress_alone").Int("count", std::ssize(result.progress));
  row.Number("gap_p50", Percentile(gaps, 0.5), Row::Unit::kSeconds);
  row.Number("gap_p99", Percentile(gaps, 0.99), Row::Unit::kSeconds);
  row.Number("gap_max", Percentile(gaps, 1), Row::Unit::kSeconds);
  row.Number("eta_error_p50", Percentile(errors, 0.5), Row::Unit::kShare);
  row.Number("eta_error_max", Percentile(errors, 1), Row::Unit::kShare);
  return row;
}

// Why a stream that was to outlast the long prompt did not.
absl::Status StreamEnded(const client::Generation& stream, const std::string& server) {
  if (!stream.status.ok()) return Failed("the stream", stream.status, server);
  return absl::InvalidArgumentError(
      "the stream ended before the long prompt was read; raise --stream-tokens");
}

}  // namespace

absl::StatusOr<BesideResult> RunBeside(const client::ConnectionOptions& connection,
                                       const BesideOptions& options,
                                       const std::function<void(const std::string&)>& progress) {
  client::Cancellation others;
  client::Cancellation of_stream;
  ANNULUS_ASSIGN_OR_RETURN(const auto open, client::Connection::Open(connection, others));
  ANNULUS_ASSIGN_OR_RETURN(const auto streaming, client::Connection::Open(connection, of_stream));
  std::mt19937 random(options.load.seed);
  BesideResult result;

  progress("the long prompt alone");
  const auto read_long = [&](std::vector<HeardProgress>* heard) -> absl::StatusOr<double> {
    const auto spec = RandomSpec(options.load, options.long_prompt, 1, random);
    const RequestOutcome outcome = Send(*open, spec, BesideClock::now(), heard);
    if (outcome.code == grpc::StatusCode::OK) return outcome.first_token;
    return Failed("the long prompt", grpc::Status(outcome.code, outcome.message), open->server());
  };
  ANNULUS_ASSIGN_OR_RETURN(result.alone, read_long(&result.progress));

  progress("the long prompt beside a stream and short requests");
  TokenTimes watch;
  client::Generation stream;
  std::atomic<bool> stream_ended{false};
  std::thread stream_thread(
      [&, spec = RandomSpec(options.load, 16, options.stream_tokens, random)] {
        stream = client::StreamGenerate(*streaming, spec, watch);
        stream_ended = true;
      });
  while (!stream_ended && watch.times().size() < 3) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (stream_ended) {
    stream_thread.join();
    return StreamEnded(stream, open->server());
  }
  const auto start = BesideClock::now();
  std::atomic<bool> ended{false};
  std::thread arrivals([&, seeded = std::mt19937(options.load.seed + 1)]() mutable {
    result.arrivals = SendArrivals(*open, options.load, seeded, ended);
  });
  const absl::StatusOr<double> beside = read_long(nullptr);
  const auto end = BesideClock::now();
  ended = true;
  const bool cut_short = stream_ended;
  of_stream.Cancel();
  stream_thread.join();
  arrivals.join();
  ANNULUS_RETURN_IF_ERROR(beside.status());
  if (cut_short) return StreamEnded(stream, open->server());
  result.beside = *beside;
  const auto times = watch.times();
  for (size_t i = 1; i < times.size(); ++i) {
    if (times[i] > start && times[i] <= end) {
      result.stream_gaps.push_back(Since(times[i - 1], times[i]));
    }
  }
  return result;
}

std::vector<Row> BesideRows(const BesideOptions& options, const BesideResult& result) {
  std::vector<double> first_tokens;
  int64_t failed = 0;
  for (const RequestOutcome& outcome : result.arrivals) {
    if (outcome.code != grpc::StatusCode::OK) {
      ++failed;
    } else {
      first_tokens.push_back(outcome.first_token);
    }
  }
  Row prompt;
  prompt.Text("measured", "long_prompt").Int("tokens", options.long_prompt);
  prompt.Number("alone", result.alone, Row::Unit::kSeconds);
  prompt.Number("beside", result.beside, Row::Unit::kSeconds);
  prompt.Number("of_its_rate", result.alone / result.beside);
  std::vector<Row> rows = {std::move(prompt), ProgressRow(result)};
  const auto latency = [&](const char* name, const std::vector<double>& seconds) {
    Row row;
    row.Text("measured", name).Int("count", std::ssize(seconds));
    for (const auto& [label, share] : {std::pair{"p50", 0.5}, std::pair{"p90", 0.9},
                                       std::pair{"p99", 0.99}, std::pair{"max", 1.0}}) {
      row.Number(label, Percentile(seconds, share), Row::Unit::kSeconds);
    }
    return row;
  };
  rows.push_back(latency("stream_inter_token", result.stream_gaps));
  Row arrivals = latency("time_to_first_token", first_tokens);
  arrivals.Int("tokens", options.load.prompt_tokens).Int("failed", failed);
  rows.push_back(std::move(arrivals));
  return rows;
}

}  // namespace annulus::bench
