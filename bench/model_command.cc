#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/commands.h"
#include "bench/flags.h"
#include "bench/model/engine_options.h"
#include "bench/model/host_machine.h"
#include "bench/model/model_bench.h"
#include "bench/model_flags.h"
#include "bench/report/progress.h"
#include "bench/report/row.h"
#include "bench/workers/worker_processes.h"
#include "kernels/base/activations.h"
#include "kernels/base/dtype.h"
#include "kernels/base/status_macros.h"

namespace annulus::bench {
namespace {

// What this program is started with as a worker, for AddModelCommand to read: what the processes of
// a ring must agree in.
std::vector<std::string> WorkerArguments(const ModelBenchOptions& options) {
  std::vector<std::string> arguments = {"model",
                                        "--threads",
                                        absl::StrCat(options.threads),
                                        "--activations",
                                        std::string(ActivationsName(options.activations)),
                                        "--kv-dtype",
                                        std::string(DTypeName(options.kv_dtype))};
  const auto add = [&arguments](const char* flag, const std::string& value) {
    if (!value.empty()) arguments.insert(arguments.end(), {flag, value});
  };
  add("--model", options.directory);
  add("--random", options.random_config);
  add("--kernels", options.kernels);
  if (options.weights_dtype.has_value()) {
    add("--weights-dtype", std::string(DTypeName(*options.weights_dtype)));
  }
  return arguments;
}

absl::Status RunWorker(const ModelBenchOptions& options, const std::string& coordinator,
                       const PeakMeter& meter) {
  ANNULUS_ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(options));
  ANNULUS_ASSIGN_OR_RETURN(const auto machine, OpenHostMachine(meter, options.threads, {}));
  return ServeAsWorker(coordinator, EngineOptionsOf(options, /*ranks=*/1, config),
                       machine->backend(), machine->kernels());
}

// Routing and experts in files are timed on the CPU alone, and by one process.
void AddExpertFlags(CLI::App& command, ModelBenchOptions& options) {
  const std::map<std::string, ForcedRouting> routings = {{"uniform", ForcedRouting::kUniform},
                                                         {"zipf", ForcedRouting::kZipf}};
  command
      .add_option_function<ForcedRouting>(
          "--routing", [&options](ForcedRouting routing) { options.routing = routing; },
          "How rows choose experts, instead of by the router: uniform, or zipf (the expert of rank "
          "n in proportion to 1 / n)")
      ->type_name("NAME")
      ->transform(CLI::CheckedTransformer(routings).description(""));
  command
      .add_option("--expert-memory", options.expert_memory,
                  "Memory for experts, like annulusd's; decode rows then tell how long steps wait "
                  "for the others")
      ->type_name("SIZE")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/true));
}

absl::Status CheckExpertFlags(const ModelBenchOptions& options) {
  if (!options.routing.has_value() && options.expert_memory == 0) return absl::OkStatus();
  if (!options.workers.empty()) {
    return absl::InvalidArgumentError(
        "--routing and --expert-memory time one process: leave --workers out");
  }
  if (options.expert_memory == 0) return absl::OkStatus();
  if (options.streams != std::vector<int32_t>{1} || !options.force_tokens.empty()) {
    return absl::InvalidArgumentError(
        "--expert-memory times one stream that chooses its tokens: leave --streams and "
        "--force-tokens out");
  }
  if (options.generate >= 2) return absl::OkStatus();
  return absl::InvalidArgumentError("--expert-memory needs --generate 2 or more");
}

absl::Status RunModel(ModelBenchOptions options, std::optional<PeakKind> peak,
                      const std::string& coordinator, BenchContext& context) {
  options.threads = ThreadsOrAll(options.threads);
  ANNULUS_RETURN_IF_ERROR(CheckModelFlags(options));
  ANNULUS_RETURN_IF_ERROR(CheckExpertFlags(options));
  if (!options.workers.empty() || !coordinator.empty()) ANNULUS_RETURN_IF_ERROR(LoadWire());
  if (!coordinator.empty()) return RunWorker(options, coordinator, PeakMeter(context.read_bytes));
  if (options.prompt_tokens.empty() && options.depths.empty()) {
    options.prompt_tokens = {512, 2048};
    options.depths = {0};
  }
  options.start_workers = [&options](int processes) {
    return StartWorkerProcesses(processes, WorkerArguments(options));
  };
  const PeakMeter meter(context.read_bytes);
  BenchProgress progress(context.err);
  RowWriter writer(context.rows);
  ANNULUS_ASSIGN_OR_RETURN(const auto machine,
                           OpenHostMachine(meter, options.threads, peak, options.routing));
  return RunModelBench(options, *machine, progress, [&](const Row& row) { writer.Write(row); });
}

}  // namespace

void AddModelCommand(CLI::App& app, BenchContext& context) {
  auto options = std::make_shared<ModelBenchOptions>();
  auto peak = std::make_shared<std::optional<PeakKind>>();
  auto coordinator = std::make_shared<std::string>();
  options->threads = 0;
  CLI::App* command = app.add_subcommand(
      "model", "Time prompts and generated tokens through the whole engine, one request at a time");
  command->footer(
      "Examples:\n"
      "  annulus-bench model --random bench/configs/llama-3.2-1b.json --prompt-tokens 512,2048\n"
      "  annulus-bench model --model /models/llama --depth 0,8192 --generate 32 --ranks 2 "
      "--workers 1");
  AddModelFlags(*command, *options);
  AddCounts(*command, "--workers", options->workers, 1, 63,
            "Then time rings of one rank here and one in each of N further processes");
  command->add_option("--join", *coordinator)->group("");  // of the processes that --workers starts
  AddThreads(*command, options->threads);
  AddExpertFlags(*command, *options);
  AddPeakChoice(*command, *peak);
  command->callback([options, peak, coordinator, &context] {
    context.action = [=, &context] { return RunModel(*options, *peak, *coordinator, context); };
  });
}

}  // namespace annulus::bench
