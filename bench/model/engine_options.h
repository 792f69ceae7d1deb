#ifndef ANNULUS_BENCH_MODEL_ENGINE_OPTIONS_H_
#define ANNULUS_BENCH_MODEL_ENGINE_OPTIONS_H_

#include "absl/status/statusor.h"
#include "bench/model/model_bench.h"
#include "engine/api.h"
#include "engine/model/model_config.h"

namespace annulus::bench {

// The configuration of the model that is timed. Errors are those of reading its files.
absl::StatusOr<ModelConfig> ReadModelConfig(const ModelBenchOptions& options);

// Options of an engine with `ranks` ranks that has room for all that `options` asks for. `config`:
// the model's. Processes that host ranks of one engine get them from the same `options`.
EngineOptions EngineOptionsOf(const ModelBenchOptions& options, int ranks,
                              const ModelConfig& config);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_MODEL_ENGINE_OPTIONS_H_
