#include "bench/model/batched_decode.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "bench/model/bench_sink.h"
#include "bench/model/model_work.h"
#include "bench/report/statistics.h"
#include "kernels/base/status_macros.h"

namespace annulus::bench {
namespace {

// Streams whose tokens are compared with those that they have alone.
constexpr int kAlone = 4;

using Prompts = std::vector<std::vector<int32_t>>;

struct Answers {
  std::vector<std::vector<int32_t>> ids;  // of each prompt
  double step_seconds = 0;                // of one token of each
  double idle = 0;                        // share of that in which no rank had a step
  std::string policy;
};

// One prompt of which the first `cached` tokens were read before.
BenchProgress::Work PromptWork(const ModelConfig& config, int32_t depth, int32_t cached) {
  const double before = cached > 0 ? PrefillFlops(config, cached) : 0;
  return {depth - cached, PrefillFlops(config, depth) - before};
}

BenchProgress::Work AnswerWork(const ModelConfig& config, const BatchedDecodeOptions& options,
                               int streams) {
  const int64_t tokens = int64_t{streams} * options.generate;
  return {tokens, static_cast<double>(tokens) * DecodeFlops(config, options.depth)};
}

int AloneOf(int streams) { return std::min(kAlone, streams); }

// Sends all prompts at once and waits for all answers.
absl::StatusOr<Answers> Together(Engine& engine, std::span<const std::vector<int32_t>> prompts,
                                 int32_t tokens, BenchProgress& progress) {
  std::vector<std::shared_ptr<BenchSink>> sinks;
  for (const std::vector<int32_t>& prompt : prompts) {
    RequestSpec spec;
    spec.prompt = prompt;
    spec.sampling.max_tokens = tokens;
    spec.sampling.temperature = 0;
    spec.sampling.ignore_eos = true;
    spec.speculation = Speculation::kOff;
    sinks.push_back(std::make_shared<BenchSink>());
    ANNULUS_RETURN_IF_ERROR(engine.Submit(std::move(spec), sinks.back()).status());
  }
  Answers answers;
  std::vector<double> seconds;
  std::vector<double> idle;
  for (const auto& sink : sinks) {
    std::optional<Completion> completion;
    while (!completion.has_value()) {
      completion = sink->WaitFor(std::chrono::milliseconds(200));
      progress.Show({});
    }
    ANNULUS_RETURN_IF_ERROR(completion->status);
    answers.ids.push_back(sink->ids());
    answers.policy = completion->attention.policy;
    seconds.push_back(completion->timings.decode);
    const Timings& timings = completion->timings;
    idle.push_back(timings.decode > 0 ? timings.host / timings.decode : 0);
  }
  // From its first token to its last a stream has one token a step. They begin within a few steps.
  answers.step_seconds = Median(seconds) / std::max(1, tokens - 1);
  answers.idle = Median(idle);
  return answers;
}

double SameTokens(const std::vector<std::vector<int32_t>>& left,
                  const std::vector<std::vector<int32_t>>& right) {
  int64_t same = 0;
  int64_t all = 0;
  for (size_t i = 0; i < right.size(); ++i) {
    for (size_t n = 0; n < right[i].size(); ++n) {
      same += n < left[i].size() && left[i][n] == right[i][n] ? 1 : 0;
      ++all;
    }
  }
  return static_cast<double>(same) / static_cast<double>(std::max<int64_t>(all, 1));
}

}  // namespace

double LeastStepSeconds(const ModelConfig& config, const BatchedDecodeOptions& options,
                        DType weights, double bytes_per_second, double flops_per_second) {
  const int64_t middle = options.depth + options.generate / 2;
  const double bytes = DecodeBytes(config, middle, weights, options.kv_dtype);
  const double keys = bytes - DecodeBytes(config, options.shared - 1, weights, options.kv_dtype);
  const double all_bytes = bytes + (options.streams - 1) * keys;
  const double flops = options.streams * DecodeFlops(config, middle);
  return std::max(all_bytes / bytes_per_second, flops / flops_per_second);
}

BenchProgress::Work BatchedWork(const ModelConfig& config, const BatchedDecodeOptions& options) {
  const BenchProgress::Work first = PromptWork(config, options.depth, 0);
  const BenchProgress::Work other = PromptWork(config, options.depth, options.shared);
  const BenchProgress::Work answers =
      AnswerWork(config, options, AloneOf(options.streams) + options.streams * options.repeat);
  const int others = options.streams - 1;
  return {first.tokens + others * other.tokens + answers.tokens,
          first.operations + others * other.operations + answers.operations};
}

absl::StatusOr<Row> BatchedDecode(Engine& engine, BenchMachine& machine, const ModelConfig& config,
                                  const BatchedDecodeOptions& options,
                                  const std::function<std::vector<int32_t>(int32_t)>& prompt,
                                  BenchProgress& progress) {
  const DType weights = engine.model().weights_dtype;
  ANNULUS_RETURN_IF_ERROR(machine.ChooseProducts(ProductsOf(engine.model())));
  Prompts prompts;
  const std::vector<int32_t> shared = prompt(options.shared);
  for (int i = 0; i < options.streams; ++i) {
    prompts.push_back(shared);
    const std::vector<int32_t> own = prompt(options.depth - options.shared);
    prompts.back().insert(prompts.back().end(), own.begin(), own.end());
    ANNULUS_RETURN_IF_ERROR(Together(engine, std::span(prompts).last(1), 1, progress).status());
    progress.Done(PromptWork(config, options.depth, i == 0 ? 0 : options.shared));
  }
  std::vector<std::vector<int32_t>> alone;
  for (int i = 0; i < AloneOf(options.streams); ++i) {
    ANNULUS_ASSIGN_OR_RETURN(Answers one,
                             Together(engine, std::span(prompts).subspan(static_cast<size_t>(i), 1),
                                      options.generate, progress));
    alone.push_back(std::move(one.ids[0]));
    progress.Done(AnswerWork(config, options, 1));
  }
  std::vector<double> steps;
  std::vector<double> shares;
  std::vector<double> idle;
  std::string policy;
  double same = 1;
  for (int i = 0; i < options.repeat; ++i) {
    ANNULUS_ASSIGN_OR_RETURN(const auto memory, machine.TakeMemoryMeter());
    ANNULUS_ASSIGN_OR_RETURN(const double read, memory->BytesPerSecond());
    ANNULUS_ASSIGN_OR_RETURN(const CeilingRates before, machine.MeasureProducts());
    ANNULUS_ASSIGN_OR_RETURN(const Answers answers,
                             Together(engine, prompts, options.generate, progress));
    progress.Done(AnswerWork(config, options, options.streams));
    ANNULUS_ASSIGN_OR_RETURN(const double read_after, memory->BytesPerSecond());
    ANNULUS_ASSIGN_OR_RETURN(const CeilingRates after, machine.MeasureProducts());
    const double least = LeastStepSeconds(config, options, weights, (read + read_after) / 2,
                                          MeanOf(before, after).best);
    steps.push_back(answers.step_seconds);
    shares.push_back(least / answers.step_seconds);
    idle.push_back(answers.idle);
    policy = answers.policy;
    same = std::min(same, SameTokens(answers.ids, alone));
  }
  const double step = Median(steps);
  Row row;
  row.Text("phase", "decode, batched").Int("streams", options.streams).Int("depth", options.depth);
  row.Int("shared", options.shared);
  row.Int("tokens", options.generate);
  row.Number("step_seconds", step, Row::Unit::kSeconds);
  row.Number("tokens_per_second", options.streams / step, Row::Unit::kPerSecond);
  row.Number("peak_fraction", Median(shares), Row::Unit::kShare);
  row.Number("idle", Median(idle), Row::Unit::kShare);
  row.Number("same_tokens", same, Row::Unit::kShare);
  row.Text("policy", policy);
  return row;
}

}  // namespace annulus::bench
