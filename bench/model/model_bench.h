#ifndef ANNULUS_BENCH_MODEL_MODEL_BENCH_H_
#define ANNULUS_BENCH_MODEL_MODEL_BENCH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/model/bench_machine.h"
#include "bench/model/bench_workers.h"
#include "bench/model/forced_routing.h"
#include "bench/report/progress.h"
#include "bench/report/row.h"
#include "engine/api.h"

namespace annulus::bench {

// How many tokens at the end of a prompt differ if prompts are shared: about a question's.
inline constexpr int32_t kOwnTokens = 64;

struct ModelBenchOptions {
  std::string directory;               // a model directory or GGUF file, or empty
  std::string random_config;           // a config.json, or empty; set exactly one of the two
  std::vector<int32_t> prompt_tokens;  // a prefill row for each; >= 1
  std::vector<int32_t> depths;         // a decode row for each; >= 0, and 0 counts as 1
  int32_t generate = 32;               // tokens to generate per decode row
  // How many requests decode at once; each depth has a decode row for each. Above 1: see
  // BatchedDecode. Ignored with force_tokens.
  std::vector<int32_t> streams = {1};
  bool shared_prompt = false;  // those prompts differ in the last kOwnTokens only
  // Of a mixture of experts: how rows choose them. Absent: by its router. The machine's kernels
  // must have been registered so.
  std::optional<ForcedRouting> routing;
  // EngineOptions::expert_memory_bytes. If not 0, decode rows are those of ExpertWaits, with one
  // stream.
  int64_t expert_memory = 0;
  // If not empty, the answers of decode rows are forced, and each row is timed without and with
  // guessing ahead. "quote": a passage of the prompt. "mislead": full of false matches (every three
  // tokens also occur in the prompt, with a different token after them). Otherwise: a file of token
  // ids. If empty, the model chooses its answers.
  std::string force_tokens;
  std::vector<int32_t> ranks = {1};  // a new engine for each; at least one
  // After those, a new engine for each, with one rank here and one in each of so many processes.
  std::vector<int32_t> workers;
  // Starts them. Not null if there are `workers`.
  std::function<absl::StatusOr<std::unique_ptr<BenchWorkers>>(int processes)> start_workers;
  int threads = 1;                     // of all ranks of a process together
  std::optional<DType> weights_dtype;  // if absent, as the checkpoint stores them
  Activations activations = Activations::kFloat;
  DType kv_dtype = DType::kBF16;
  RingMode ring_mode = RingMode::kAuto;
  AttentionPolicy attention;
  int chunk_tokens = EngineOptions().chunk_tokens;
  int repeat = 5;               // runs per row; figures are medians
  std::string kernels;          // an OpTable's name; if empty, the best
  int32_t warm_up_tokens = 64;  // length of the prompt that is read before anything is timed
};

// Runs a whole engine on the machine and passes each row to `report` as soon as it is measured.
// Requests run one at a time, except in rows of several streams. What the machine could do at best
// is measured between the runs. Errors are those of the engine and of the machine, and of reading
// the model's configuration or `force_tokens`, and INVALID_ARGUMENT for `routing` of a model
// without experts.
//
// - A prefill row reads a prompt of random ids that shares no prefix with any other. Its time is
//   from leaving the queue to the first token.
// - A decode row generates after a prompt of `depth` ids, which is read before. If a prefill row
//   has that length, its last prompt is used again.
// - With `force_tokens`, each decode row becomes two: the same answer without and with guessing.
//   Their runs alternate. The second has the ratio of their times, and how many tokens were guessed
//   and were right. They are not compared with the machine.
// - With `expert_memory`, decode rows are those of ExpertWaits. They are not compared with the
//   machine, nor with other engines.
// - With several engines (`ranks`, `workers`), all read the same prompts. Prefill rows, and decode
//   rows of one stream, are compared with those of the first: the ratio of times, the share of
//   equal tokens, and the seconds per run that a rank waited for a peer with nothing to attend
//   (mean over the ranks).
// - With `workers`, rows also say how many there were, and EmptyStepSeconds. Memory is that of this
//   process alone.
absl::Status RunModelBench(const ModelBenchOptions& options, BenchMachine& machine,
                           BenchProgress& progress, const std::function<void(const Row&)>& report);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_MODEL_MODEL_BENCH_H_
