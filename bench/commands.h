#ifndef ANNULUS_BENCH_COMMANDS_H_
#define ANNULUS_BENCH_COMMANDS_H_

// The commands of annulus-bench. Each function adds a subcommand and its flags to the application;
// parsing the command line then sets `action` to the work to do.

#include <CLI/CLI.hpp>
#include <cstddef>
#include <functional>
#include <ostream>

#include "absl/status/status.h"
#include "bench/report/row.h"

namespace annulus::bench {

struct BenchContext {
  RowOutput rows;
  std::ostream& err;
  size_t read_bytes = 0;  // see PeakMeter
  std::function<absl::Status()> action{};
};

void AddPeakCommand(CLI::App& app, BenchContext& context);
void AddAttentionCommand(CLI::App& app, BenchContext& context);
void AddModelCommand(CLI::App& app, BenchContext& context);
void AddGatesCommand(CLI::App& app, BenchContext& context);
void AddHeadsCommand(CLI::App& app, BenchContext& context);
void AddQualityCommand(CLI::App& app, BenchContext& context);
void AddChartCommand(CLI::App& app, BenchContext& context);
void AddServeCommand(CLI::App& app, BenchContext& context);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_COMMANDS_H_
