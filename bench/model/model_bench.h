#ifndef ANNULUS_BENCH_MODEL_MODEL_BENCH_H_
#define ANNULUS_BENCH_MODEL_MODEL_BENCH_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "bench/model/bench_machine.h"
#include "bench/report/progress.h"
#include "bench/report/row.h"
#include "engine/api.h"

namespace annulus {

struct ModelBenchOptions {
  std::string directory;               // a model directory, else empty
  std::string random_config;           // a config.json, else empty: one of both
  std::vector<int32_t> prompt_tokens;  // a prefill row for each, >= 1
  std::vector<int32_t> depths;         // a decode row for each, >= 0
  int32_t generate = 32;               // tokens of a decode row
  // A decode row for each: requests that decode at once. Above 1: see BatchedDecode.
  std::vector<int32_t> streams = {1};
  // What the answers of decode rows are, and then each such row is timed without and with guessing
  // ahead: "quote" (a passage of the prompt), "mislead" (every three tokens stand in the prompt,
  // with something else behind them) or a file of token ids. Empty: what the model generates.
  std::string force_tokens;
  std::vector<int32_t> ranks = {1};    // an engine after the other for each, at least one
  int threads = 1;                     // all ranks together
  std::optional<DType> weights_dtype;  // absent: as the checkpoint stores them
  Activations activations = Activations::kFloat;
  DType kv_dtype = DType::kBF16;
  RingMode ring_mode = RingMode::kAuto;
  AttentionPolicy attention;
  int chunk_tokens = EngineOptions().chunk_tokens;
  int repeat = 5;               // runs of a row; its figures are medians
  std::string kernels;          // an OpTable by name; empty: the best
  int32_t warm_up_tokens = 64;  // of a prompt that is read before anything is timed
};

// Runs a whole engine on the machine, one request at a time, and gives each row to `report` as it
// is measured. A prefill row reads a prompt of random ids that shares no prefix with another, from
// the queue to the first token. A decode row generates after a prompt of `depth` ids, which is read
// once; that of the last prefill row of this length, where there is one. The machine's limits are
// measured before and after each run.
//
// With `force_tokens` a decode row is that of an answer without guesses, and is followed by one of
// the same answer with guesses: their runs take turns, and the second has the ratio of their times
// and the share of guesses that were right.
//
// With several numbers of ranks rows also have, beside the first of them, their time's ratio and
// the share of equal tokens, and the seconds of a run that a rank waited for another with nothing
// to attend, mean of the ranks. All read the same prompts. Errors are the engine's own.
absl::Status RunModelBench(const ModelBenchOptions& options, BenchMachine& machine,
                           BenchProgress& progress, const std::function<void(const Row&)>& report);

}  // namespace annulus

#endif  // ANNULUS_BENCH_MODEL_MODEL_BENCH_H_
