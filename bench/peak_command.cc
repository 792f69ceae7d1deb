#include <memory>
#include <set>

#include "bench/commands.h"
#include "bench/peak/peak_meter.h"
#include "bench/report/row.h"
#include "kernels/base/status_macros.h"
#include "kernels/cpu/host/host_limits.h"

namespace annulus::bench {
namespace {

struct PeakOptions {
  int threads = 0;  // 0: what the process may use
  int rounds = PeakEffort().rounds;
};

absl::Status RunPeak(const PeakOptions& options, BenchContext& context) {
  const HostLimits host = ReadHostLimits();
  const int threads = options.threads > 0 ? options.threads : host.threads;
  PeakEffort effort;
  effort.rounds = options.rounds;
  const PeakMeter meter(context.read_bytes);
  if (!meter.refused().empty()) context.err << "annulus-bench: " << meter.refused() << "\n";
  RowWriter writer(context.rows);
  for (const PeakKind kind : meter.Available()) {
    for (const int count : std::set<int>{1, threads}) {
      ANNULUS_ASSIGN_OR_RETURN(const double rate, meter.Measure(kind, count, effort));
      Row row;
      row.Text("peak", PeakName(kind)).Int("threads", count);
      row.Number("rate", rate, Row::Unit::kPerSecond).Text("unit", PeakUnit(kind));
      row.Text("instructions", meter.Instructions(kind));
      row.OnlyJson().Text("processor", host.processor);
      writer.Write(row);
    }
  }
  return absl::OkStatus();
}

}  // namespace

void AddPeakCommand(CLI::App& app, BenchContext& context) {
  auto options = std::make_shared<PeakOptions>();
  CLI::App* command = app.add_subcommand(
      "peak", "Measure the machine's own ceilings: arithmetic, exponentials, memory reads");
  command->footer(
      "Examples:\n"
      "  annulus-bench peak\n"
      "  annulus-bench peak --threads 2 --json");
  command
      ->add_option("--threads", options->threads,
                   "Threads of each kind's second row (default: all that the process may use)")
      ->check(CLI::Range(1, 256));
  command
      ->add_option("--rounds", options->rounds, "Rounds of 9 slices; the rate is the best median")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->callback([options, &context] {
    context.action = [=, &context] { return RunPeak(*options, context); };
  });
}

}  // namespace annulus::bench
