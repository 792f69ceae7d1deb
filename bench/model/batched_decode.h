#ifndef ANNULUS_BENCH_MODEL_BATCHED_DECODE_H_
#define ANNULUS_BENCH_MODEL_BATCHED_DECODE_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/model/bench_machine.h"
#include "bench/report/progress.h"
#include "bench/report/row.h"
#include "engine/api.h"
#include "engine/model/model_config.h"

namespace annulus::bench {

struct BatchedDecodeOptions {
  int32_t depth = 0;      // tokens of each prompt, at least 1
  int32_t shared = 0;     // the first so many are those of every prompt; less than depth
  int streams = 1;        // requests that decode at once, at most the engine's max_running
  int32_t generate = 32;  // tokens of each, at least 2
  int repeat = 5;         // runs; figures are medians
  DType kv_dtype = DType::kBF16;
};

// Seconds that a decode step of `streams` rows takes at least on a machine that reads memory and
// multiplies at these rates: the weights and all keys and values are read once, shared ones once
// for all streams, and each row has its FLOPs. Experts of a mixture are counted once, as if all
// rows chose the same.
double LeastStepSeconds(const ModelConfig& config, const BatchedDecodeOptions& options,
                        DType weights, double bytes_per_second, double flops_per_second);

// What BatchedDecode reads and answers in all, for the time left.
BenchProgress::Work BatchedWork(const ModelConfig& config, const BatchedDecodeOptions& options);

// Requests with random prompts, of which the first `shared` tokens are the same, decode together;
// the prompts have been read before anything is timed. The row's "peak_fraction" is
// LeastStepSeconds over the seconds of a step, median of the runs; "same_tokens" is the share of
// equal tokens when some of the same requests run alone. `prompt` draws so many tokens. `progress`
// has BatchedWork in its plan. Errors are the engine's own.
absl::StatusOr<Row> BatchedDecode(Engine& engine, BenchMachine& machine, const ModelConfig& config,
                                  const BatchedDecodeOptions& options,
                                  const std::function<std::vector<int32_t>(int32_t)>& prompt,
                                  BenchProgress& progress);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_MODEL_BATCHED_DECODE_H_
