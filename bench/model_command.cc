#include <memory>
#include <string>

#include "bench/commands.h"
#include "bench/flags.h"
#include "bench/model/model_bench.h"
#include "bench/report/progress.h"
#include "bench/report/row.h"

namespace annulus {
namespace {

constexpr int32_t kMostPromptTokens = 1 << 24;

absl::Status RunModel(ModelBenchOptions options, BenchContext& context) {
  options.threads = ThreadsOrAll(options.threads);
  if (options.directory.empty() == options.random_config.empty()) {
    return absl::InvalidArgumentError("give either --model DIR or --random CONFIG.json");
  }
  if (options.prompt_tokens.empty() && options.depths.empty()) {
    options.prompt_tokens = {512, 2048};
    options.depths = {0};
  }
  const PeakMeter meter(context.read_bytes);
  BenchProgress progress(context.err);
  RowWriter writer(context.rows);
  return RunModelBench(options, meter, progress, [&](const Row& row) { writer.Write(row); });
}

}  // namespace

void AddModelCommand(CLI::App& app, BenchContext& context) {
  auto options = std::make_shared<ModelBenchOptions>();
  options->threads = 0;
  CLI::App* command = app.add_subcommand(
      "model", "Time whole prompts and generated tokens through the engine, one request at a time");
  command->footer(
      "Examples:\n"
      "  annulus-bench model --random bench/configs/llama-3.2-1b.json --prompt-tokens 512,2048\n"
      "  annulus-bench model --model /models/llama --depth 0,8192 --generate 32 --ranks 2");
  command->add_option("--model", options->directory, "Model directory")->type_name("DIR");
  command
      ->add_option("--random", options->random_config,
                   "Hugging Face config.json: seeded random weights of that shape")
      ->type_name("CONFIG.json");
  AddCounts(*command, "--prompt-tokens", options->prompt_tokens, 1, kMostPromptTokens,
            "Prompt lengths, a prefill row for each (default, without --depth: 512,2048)");
  AddCounts(*command, "--depth", options->depths, 0, kMostPromptTokens,
            "Context lengths, a decode row for each (default, without --prompt-tokens: 0)");
  command->add_option("--generate", options->generate, "Tokens of a decode row")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  AddParallelism(*command, options->ranks, options->threads);
  AddDType(
      *command, "--weights-dtype", [options](DType dtype) { options->weights_dtype = dtype; },
      "Weights (default: as stored)");
  AddActivations(*command, options->activations);
  AddDType(
      *command, "--kv-dtype", [options](DType dtype) { options->kv_dtype = dtype; },
      "Keys and values (default: bf16)");
  AddRingMode(*command, options->ring_mode);
  command->add_option("--chunk-tokens", options->chunk_tokens, "Prompt tokens of a step")
      ->check(CLI::Range(16, 1 << 20))
      ->capture_default_str();
  AddPolicy(*command, options->attention);
  command->add_option("--kernels", options->kernels, "Kernel table by name (default: the best)")
      ->type_name("NAME");
  AddRepeat(*command, options->repeat);
  AddPeakChoice(*command, options->peak);
  command->callback([options, &context] {
    context.action = [=, &context] { return RunModel(*options, context); };
  });
}

}  // namespace annulus
