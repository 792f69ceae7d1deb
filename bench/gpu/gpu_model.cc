// gpu-model: times prompts and answers of a whole model on the first GPU, on one or several virtual
// ranks. See bench/LABS.md.
#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <utility>

#include "bench/flags.h"
#include "bench/gpu/device_machine.h"
#include "bench/model/model_bench.h"
#include "bench/model_flags.h"
#include "bench/report/progress.h"
#include "bench/report/row.h"
#include "kernels/base/status_macros.h"
#include "kernels/cuda/cuda_backend.h"

namespace annulus::bench {
namespace {

ModelBenchOptions Defaults() {
  ModelBenchOptions options;
  options.ranks = {1, 4};
  options.chunk_tokens = 8192;
  options.warm_up_tokens = 8192;  // a whole chunk: the first one loads kernels and finds its memory
  options.repeat = 1;
  return options;
}

absl::Status Run(ModelBenchOptions options, const RowOutput& output) {
  ANNULUS_RETURN_IF_ERROR(CheckModelFlags(options));
  if (options.prompt_tokens.empty() && options.depths.empty()) {
    options.prompt_tokens = {131072};
    options.depths = {131072};
  }
  ANNULUS_ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, CreateCudaBackend(0));
  std::cerr << backend->capabilities().description << "\n";
  KernelRegistry kernels;
  RegisterCudaKernels(kernels);
  DeviceMachineOptions machine_options;
  machine_options.activations = options.activations;
  ANNULUS_ASSIGN_OR_RETURN(
      const auto machine,
      OpenDeviceMachine(std::move(backend), std::move(kernels), machine_options));
  BenchProgress progress(std::cerr);
  RowWriter writer(output);
  return RunModelBench(options, *machine, progress, [&](const Row& row) { writer.Write(row); });
}

int Main(int argc, char** argv) {
  CLI::App app("Times prompts and answers of a whole model on the first GPU.", "gpu-model");
  app.footer(
      "Default, without --prompt-tokens and --depth: a prompt of 131072 tokens, then an answer.\n"
      "Example: gpu-model --random bench/configs/llama-3.1-8b.json");
  ModelBenchOptions options = Defaults();
  RowOutput output{.out = std::cout};
  std::ofstream json_copy;
  AddModelFlags(app, options);
  AddOutputFlags(app, output, json_copy);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const absl::Status status = Run(options, output);
  if (status.ok()) return 0;
  std::cerr << "gpu-model: " << status.message() << "\n";
  return 1;
}

}  // namespace
}  // namespace annulus::bench

int main(int argc, char** argv) { return annulus::bench::Main(argc, argv); }
