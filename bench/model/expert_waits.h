#ifndef ANNULUS_BENCH_MODEL_EXPERT_WAITS_H_
#define ANNULUS_BENCH_MODEL_EXPERT_WAITS_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/report/progress.h"
#include "bench/report/row.h"
#include "engine/api.h"
#include "engine/model/model_config.h"

namespace annulus::bench {

struct ExpertWaitsOptions {
  int32_t depth = 0;      // see PromptTokens
  int32_t generate = 32;  // tokens of each answer, at least 2
  int repeat = 5;         // runs
  int page_tokens = EngineOptions().page_tokens;
};

// Tokens of a prompt: the whole pages in `depth` and one token more. If it is asked again, all but
// that token come from the prefix cache, and each step has one row.
int32_t PromptTokens(const ExpertWaitsOptions& options);

// All the work of one ExpertWaits, for BenchProgress::Plan.
BenchProgress::Work WorkOf(const ModelConfig& config, const ExpertWaitsOptions& options);

// Decodes with an engine whose experts are not all in memory, and tells how often and how long
// steps wait for them. Every run has a prompt of its own, which is read before and not counted. The
// row's "seconds" are the median of the runs, from the first token to the last. All runs together
// make "expert_hits", the share of needed experts that were in memory; "waited_steps", the share of
// steps that waited; and per step "wait_seconds", in which ranks waited, and "read_bytes", as
// experts are packed. "planned_bytes" is the memory that the engine planned for the process.
//
// `prompt(n)` returns n token ids that share no page with those before. WorkOf must have been
// planned in `progress`. INVALID_ARGUMENT if all experts are in memory; otherwise the engine's
// errors.
absl::StatusOr<Row> ExpertWaits(Engine& engine, const ModelConfig& config,
                                const ExpertWaitsOptions& options,
                                const std::function<std::vector<int32_t>(int32_t)>& prompt,
                                BenchProgress& progress);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_MODEL_EXPERT_WAITS_H_
