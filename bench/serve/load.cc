#include "bench/serve/load.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <random>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/generation.h"
#include "kernels/base/status_macros.h"

namespace annulus::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kProgressInterval{200};

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Notes when tokens come.
class Stopwatch final : public client::GenerationObserver {
 public:
  Stopwatch(Clock::time_point due, RequestOutcome& outcome) : due_(due), outcome_(outcome) {}

  void OnQueued(const v1::Queued&) override {}
  void OnProgress(const v1::PromptProgress&) override {}
  void OnDelta(const v1::Delta& delta) override {
    if (delta.token_ids_size() == 0) return;
    const double now = SecondsSince(due_);
    if (outcome_.tokens == 0) {
      outcome_.first_token = now;
    } else {
      outcome_.gaps.push_back(now - last_);
    }
    last_ = now;
    outcome_.tokens += delta.token_ids_size();
  }

 private:
  const Clock::time_point due_;
  RequestOutcome& outcome_;
  double last_ = 0;
};

void SendOne(client::Connection& connection, const v1::GenerationSpec& spec, Clock::time_point due,
             RequestOutcome& outcome) {
  Stopwatch watch(due, outcome);
  const client::Generation generation = client::StreamGenerate(connection, spec, watch);
  outcome.code = generation.status.error_code();
  outcome.message = generation.status.error_message();
  outcome.end = SecondsSince(due);
}

}  // namespace

v1::GenerationSpec RandomSpec(const LoadOptions& options, int32_t prompt, int32_t answer,
                              std::mt19937& random) {
  v1::GenerationSpec spec;
  spec.set_model(options.model);
  std::uniform_int_distribution<int32_t> id(0, options.vocabulary - 1);
  auto* ids = spec.mutable_token_ids()->mutable_ids();
  for (int32_t i = 0; i < prompt; ++i) ids->Add(id(random));
  spec.mutable_sampling()->set_max_tokens(answer);
  spec.mutable_sampling()->set_temperature(0);
  spec.mutable_sampling()->set_ignore_eos(true);
  spec.set_speculation(options.speculation ? v1::SPECULATION_NGRAM : v1::SPECULATION_OFF);
  return spec;
}

std::vector<int32_t> PromptLengths(const LoadOptions& options, size_t count) {
  std::vector<int32_t> lengths(count, options.prompt_tokens);
  if (options.longest_prompt <= options.prompt_tokens) return lengths;
  const double shortest = options.prompt_tokens;
  const double ratio = options.longest_prompt / shortest;
  for (size_t i = 0; i < count; ++i) {
    const double quantile = (static_cast<double>(i) + 0.5) / static_cast<double>(count);
    lengths[i] = static_cast<int32_t>(shortest * std::pow(ratio, quantile));
  }
  std::mt19937 random(options.seed);
  std::shuffle(lengths.begin(), lengths.end(), random);
  return lengths;
}

std::vector<double> ArrivalTimes(double rate, double duration, uint32_t seed) {
  std::mt19937 random(seed);
  std::exponential_distribution<double> gap(rate);
  std::vector<double> times;
  for (double time = gap(random); time < duration; time += gap(random)) times.push_back(time);
  return times;
}

absl::StatusOr<LoadResult> RunLoad(
    client::Connection& connection, const LoadOptions& options,
    const std::function<void(int64_t sent, int64_t ended)>& progress) {
  const std::vector<double> times = ArrivalTimes(options.rate, options.duration, options.seed);
  const std::vector<int32_t> lengths = PromptLengths(options, times.size());
  std::mt19937 random(options.seed);
  LoadResult result;
  result.outcomes.resize(times.size());
  std::atomic<int64_t> ended{0};
  std::vector<std::thread> requests;
  absl::Status status;
  const Clock::time_point start = Clock::now();
  for (size_t i = 0; i < times.size() && status.ok(); ++i) {
    const auto due = start + std::chrono::duration_cast<Clock::duration>(
                                 std::chrono::duration<double>(times[i]));
    result.outcomes[i].prompt_tokens = lengths[i];
    v1::GenerationSpec spec = RandomSpec(options, lengths[i], options.max_tokens, random);
    while (Clock::now() < due) {
      std::this_thread::sleep_until(std::min(due, Clock::now() + kProgressInterval));
      progress(static_cast<int64_t>(i), ended.load());
    }
    try {
      requests.emplace_back([&, i, due, spec = std::move(spec)] {
        SendOne(connection, spec, due, result.outcomes[i]);
        ended.fetch_add(1);
      });
    } catch (const std::system_error& error) {
      status = absl::ResourceExhaustedError(absl::StrCat(
          "cannot start a thread for request ", i + 1, " with ",
          static_cast<int64_t>(i) - ended.load(), " in flight: ", error.what(), "; lower --rate"));
    }
  }
  const auto sent = static_cast<int64_t>(requests.size());
  while (ended.load() < sent) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    progress(sent, ended.load());
  }
  for (std::thread& request : requests) request.join();
  ANNULUS_RETURN_IF_ERROR(status);
  for (size_t i = 0; i < times.size(); ++i) {
    result.seconds = std::max(result.seconds, times[i] + result.outcomes[i].end);
  }
  return result;
}

}  // namespace annulus::bench
