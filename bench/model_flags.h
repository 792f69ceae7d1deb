#ifndef ANNULUS_BENCH_MODEL_FLAGS_H_
#define ANNULUS_BENCH_MODEL_FLAGS_H_

// Flags of the programs that time whole models.

#include <CLI/CLI.hpp>

#include "absl/status/status.h"
#include "bench/model/model_bench.h"

namespace annulus::bench {

// Adds flags for all of ModelBenchOptions except threads. The present values are the defaults.
void AddModelFlags(CLI::App& command, ModelBenchOptions& options);

// INVALID_ARGUMENT unless exactly one model was given.
absl::Status CheckModelFlags(const ModelBenchOptions& options);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_MODEL_FLAGS_H_
