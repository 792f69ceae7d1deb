#include <memory>
#include <optional>
#include <string>

#include "bench/commands.h"
#include "bench/flags.h"
#include "bench/model/host_machine.h"
#include "bench/model/model_bench.h"
#include "bench/model_flags.h"
#include "bench/report/progress.h"
#include "bench/report/row.h"
#include "kernels/base/status_macros.h"

namespace annulus::bench {
namespace {

absl::Status RunModel(ModelBenchOptions options, std::optional<PeakKind> peak,
                      BenchContext& context) {
  options.threads = ThreadsOrAll(options.threads);
  ANNULUS_RETURN_IF_ERROR(CheckModelFlags(options));
  if (options.prompt_tokens.empty() && options.depths.empty()) {
    options.prompt_tokens = {512, 2048};
    options.depths = {0};
  }
  const PeakMeter meter(context.read_bytes);
  BenchProgress progress(context.err);
  RowWriter writer(context.rows);
  ANNULUS_ASSIGN_OR_RETURN(const auto machine, OpenHostMachine(meter, options.threads, peak));
  return RunModelBench(options, *machine, progress, [&](const Row& row) { writer.Write(row); });
}

}  // namespace

void AddModelCommand(CLI::App& app, BenchContext& context) {
  auto options = std::make_shared<ModelBenchOptions>();
  auto peak = std::make_shared<std::optional<PeakKind>>();
  options->threads = 0;
  CLI::App* command = app.add_subcommand(
      "model", "Time prompts and generated tokens through the whole engine, one request at a time");
  command->footer(
      "Examples:\n"
      "  annulus-bench model --random bench/configs/llama-3.2-1b.json --prompt-tokens 512,2048\n"
      "  annulus-bench model --model /models/llama --depth 0,8192 --generate 32 --ranks 2");
  AddModelFlags(*command, *options);
  AddThreads(*command, options->threads);
  AddPeakChoice(*command, *peak);
  command->callback([options, peak, &context] {
    context.action = [=, &context] { return RunModel(*options, *peak, context); };
  });
}

}  // namespace annulus::bench
