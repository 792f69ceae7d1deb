#ifndef ANNULUS_BENCH_FLAGS_H_
#define ANNULUS_BENCH_FLAGS_H_

// Flags that several commands share.

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

namespace annulus {

void AddDType(CLI::App& command, const char* flag, std::function<void(DType)> set,
              const char* help);
// A list with commas.
void AddDTypes(CLI::App& command, const char* flag, std::vector<DType>& values, const char* help);
// --activations NAME
void AddActivations(CLI::App& command, Activations& activations);
void AddRingMode(CLI::App& command, RingMode& mode);
// --peak NAME; absent: chosen by what is measured.
void AddPeakChoice(CLI::App& command, std::optional<PeakKind>& peak);
// --threads (0 becomes what the process may use), and --ranks besides.
void AddThreads(CLI::App& command, int& threads);
void AddParallelism(CLI::App& command, int& ranks, int& threads);
int ThreadsOrAll(int threads);
// --attention and --policy: policies with their parameters, as ParsePolicy reads them.
void AddPolicy(CLI::App& command, AttentionPolicy& policy);
void AddPolicies(CLI::App& command, std::vector<AttentionPolicy>& policies);
// --repeat, odd or even; medians are of the nearest rank.
void AddRepeat(CLI::App& command, int& repeat);
// --json, --markdown and --json-file, which `json_copy` is opened for; both outlive the reading.
void AddOutputFlags(CLI::App& command, RowOutput& output, std::ofstream& json_copy);
// A list of whole numbers with commas, each within [low, high].
void AddCounts(CLI::App& command, const char* flag, std::vector<int32_t>& values, int32_t low,
               int32_t high, const char* help);

}  // namespace annulus

#endif  // ANNULUS_BENCH_FLAGS_H_
