#include "bench/model/expert_waits.h"

#include <utility>

#include "bench/model/bench_answer.h"
#include "bench/model/engine_counts.h"
#include "bench/model/model_work.h"
#include "bench/report/statistics.h"
#include "kernels/base/status_macros.h"

namespace annulus::bench {
namespace {

BenchProgress::Work RunWork(const ModelConfig& config, const ExpertWaitsOptions& options) {
  const int32_t prompt = PromptTokens(options);
  return {prompt + options.generate,
          PrefillFlops(config, prompt) + options.generate * DecodeFlops(config, prompt)};
}

absl::StatusOr<Answer> Answered(Engine& engine, std::vector<int32_t> prompt, int32_t tokens,
                                BenchProgress& progress) {
  RequestSpec spec;
  spec.prompt = std::move(prompt);
  spec.sampling.max_tokens = tokens;
  spec.speculation = Speculation::kOff;
  return Generate(engine, std::move(spec), progress);
}

}  // namespace

int32_t PromptTokens(const ExpertWaitsOptions& options) {
  return options.depth / options.page_tokens * options.page_tokens + 1;
}

BenchProgress::Work WorkOf(const ModelConfig& config, const ExpertWaitsOptions& options) {
  const BenchProgress::Work run = RunWork(config, options);
  return {run.tokens * options.repeat, run.operations * options.repeat};
}

absl::StatusOr<Row> ExpertWaits(Engine& engine, const ModelConfig& config,
                                const ExpertWaitsOptions& options,
                                const std::function<std::vector<int32_t>(int32_t)>& prompt,
                                BenchProgress& progress) {
  std::vector<double> seconds;
  ExpertFigures sum;
  for (int i = 0; i < options.repeat; ++i) {
    const std::vector<int32_t> ids = prompt(PromptTokens(options));
    ANNULUS_RETURN_IF_ERROR(Answered(engine, ids, 1, progress).status());
    const ExpertFigures before = ExpertsSoFar(engine);
    ANNULUS_ASSIGN_OR_RETURN(const Answer answer,
                             Answered(engine, ids, options.generate, progress));
    AddSince(before, ExpertsSoFar(engine), sum);
    seconds.push_back(answer.completion.timings.decode);
    progress.Done(RunWork(config, options));
  }
  if (sum.steps == 0) {
    return absl::InvalidArgumentError(
        "--expert-memory has room for all experts of this model, so no step reads any; give less");
  }
  const double median = Median(seconds);
  const MemoryPlan plan = engine.Load().plan;
  Row row;
  row.Text("phase", "decode, experts").Int("tokens", options.generate);
  row.Int("depth", PromptTokens(options));
  row.Number("seconds", median, Row::Unit::kSeconds);
  row.Number("tokens_per_second", (options.generate - 1) / median, Row::Unit::kPerSecond);
  row.Number("expert_hits", sum.hits / (sum.hits + sum.misses), Row::Unit::kShare);
  row.Number("waited_steps", sum.waited_steps / sum.steps, Row::Unit::kShare);
  row.Number("wait_seconds", sum.wait_seconds / sum.steps, Row::Unit::kSeconds);
  row.Number("read_bytes", sum.read_bytes / sum.steps, Row::Unit::kBytes);
  row.Int("planned_bytes", static_cast<int64_t>(plan.weights + plan.program + plan.needed()),
          Row::Unit::kBytes);
  return row;
}

}  // namespace annulus::bench
