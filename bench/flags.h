#ifndef ANNULUS_BENCH_FLAGS_H_
#define ANNULUS_BENCH_FLAGS_H_

// Flags that several commands have.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/peak/peak_meter.h"
#include "bench/report/row.h"
#include "engine/api.h"
#include "engine/sparse/policy.h"
#include "kernels/base/activations.h"
#include "kernels/base/dtype.h"

namespace annulus::bench {

void AddDType(CLI::App& command, const char* flag, std::function<void(DType)> set,
              const char* help);
// A list separated by commas.
void AddDTypes(CLI::App& command, const char* flag, std::vector<DType>& values, const char* help);
// --activations NAME
void AddActivations(CLI::App& command, Activations& activations);
void AddRingMode(CLI::App& command, RingMode& mode);
// --peak NAME; if absent, depends on what is measured.
void AddPeakChoice(CLI::App& command, std::optional<PeakKind>& peak);
// --threads (the caller turns 0 into all that the process may use); AddParallelism also adds
// --ranks.
void AddThreads(CLI::App& command, int& threads);
void AddParallelism(CLI::App& command, int& ranks, int& threads);
int ThreadsOrAll(int threads);
// --attention and --policy take policies with their parameters, in ParsePolicy's format.
void AddPolicy(CLI::App& command, AttentionPolicy& policy);
void AddPolicies(CLI::App& command, std::vector<AttentionPolicy>& policies);
// --repeat; may be even: the median is then the lower of the two middle values (nearest rank).
void AddRepeat(CLI::App& command, int& repeat);
// --json, --markdown and --json-file. Opens `json_copy` for the latter. `output` and `json_copy`
// must outlive the parsing of the command line.
void AddOutputFlags(CLI::App& command, RowOutput& output, std::ofstream& json_copy);
// A list of whole numbers separated by commas, each in [low, high].
void AddCounts(CLI::App& command, const char* flag, std::vector<int32_t>& values, int32_t low,
               int32_t high, const char* help);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_FLAGS_H_
