#ifndef ANNULUS_BENCH_MODEL_FLAGS_H_
#define ANNULUS_BENCH_MODEL_FLAGS_H_

// Flags of the programs that time whole models.

#include <CLI/CLI.hpp>

#include "absl/status/status.h"
#include "bench/model/model_bench.h"

namespace annulus {

// All of ModelBenchOptions but threads; what stands there is the default.
void AddModelFlags(CLI::App& command, ModelBenchOptions& options);

// INVALID_ARGUMENT where not one model was given.
absl::Status CheckModelFlags(const ModelBenchOptions& options);

}  // namespace annulus

#endif  // ANNULUS_BENCH_MODEL_FLAGS_H_
