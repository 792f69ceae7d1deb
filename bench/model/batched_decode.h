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
  int32_t shared = 0;     // tokens at the beginning that all prompts share; less than depth
  int streams = 1;        // requests that decode at once, at most the engine's max_running
  int32_t generate = 32;  // tokens of each answer, at least 2
  int repeat = 5;         // runs; figures are medians
  DType kv_dtype = DType::kBF16;
};

// The least seconds that one decode step of all streams can take on a machine that reads memory and
// multiplies at these rates: the longer of reading and multiplying. A step reads the weights once,
// the shared keys and values once for all streams, and those of each stream once. Experts of a
// mixture are counted as if all rows chose the same ones.
double LeastStepSeconds(const ModelConfig& config, const BatchedDecodeOptions& options,
                        DType weights, double bytes_per_second, double flops_per_second);

// All the work of one BatchedDecode, for BenchProgress::Plan.
BenchProgress::Work BatchedWork(const ModelConfig& config, const BatchedDecodeOptions& options);

// Times decode steps of several requests that run together; their prompts are read before. In the
// row, "peak_fraction" is LeastStepSeconds divided by the seconds of a step, and "idle" the share
// of the time in which no rank computes; both are medians of the runs. "same_tokens" is the share
// of tokens that the first requests (at most 4) also give when they run alone, in the worst run.
// `prompt(n)` returns n token ids. BatchedWork must have been planned in `progress`. Errors are
// those of the engine and of the machine.
absl::StatusOr<Row> BatchedDecode(Engine& engine, BenchMachine& machine, const ModelConfig& config,
                                  const BatchedDecodeOptions& options,
                                  const std::function<std::vector<int32_t>(int32_t)>& prompt,
                                  BenchProgress& progress);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_MODEL_BATCHED_DECODE_H_
