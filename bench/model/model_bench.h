#ifndef ANNULUS_BENCH_MODEL_MODEL_BENCH_H_
#define ANNULUS_BENCH_MODEL_MODEL_BENCH_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "bench/peak/peak_meter.h"
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
  int ranks = 1;
  int threads = 1;                     // all ranks together
  std::optional<DType> weights_dtype;  // absent: as the checkpoint stores them
  Activations activations = Activations::kFloat;
  DType kv_dtype = DType::kBF16;
  RingMode ring_mode = RingMode::kAuto;
  AttentionPolicy attention;
  int chunk_tokens = EngineOptions().chunk_tokens;
  int repeat = 5;                // runs of a row; its figures are medians
  std::string kernels;           // an OpTable by name; empty: the best
  std::optional<PeakKind> peak;  // ceiling of prefill rows; absent: the fastest that applies
};

// Runs a whole engine, one request at a time, and gives each row to `report` as it is measured. A
// prefill row reads a prompt of random ids that shares no prefix with another, from the queue to
// the first token. A decode row generates after a prompt of `depth` ids, which is read once. The
// ceilings are measured before and after each run. Errors are the engine's own.
absl::Status RunModelBench(const ModelBenchOptions& options, const PeakMeter& meter,
                           BenchProgress& progress, const std::function<void(const Row&)>& report);

}  // namespace annulus

#endif  // ANNULUS_BENCH_MODEL_MODEL_BENCH_H_
