#include "bench/model_flags.h"

#include <vector>

#include "bench/flags.h"

namespace annulus::bench {
namespace {

constexpr int32_t kMostPromptTokens = 1 << 24;

}  // namespace

void AddModelFlags(CLI::App& command, ModelBenchOptions& options) {
  command.add_option("--model", options.directory, "Model directory or GGUF file")
      ->type_name("PATH");
  command
      .add_option("--random", options.random_config,
                  "Use seeded random weights in the shape of this Hugging Face config.json")
      ->type_name("CONFIG.json");
  AddCounts(command, "--prompt-tokens", options.prompt_tokens, 1, kMostPromptTokens,
            "Prompt lengths; a prefill row for each");
  AddCounts(command, "--depth", options.depths, 0, kMostPromptTokens,
            "Context lengths; a decode row for each");
  command.add_option("--generate", options.generate, "Tokens to generate per decode row")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  AddCounts(command, "--streams", options.streams, 1, 4096,
            "Requests that decode at once, a decode row for each (default: 1)");
  command.add_flag("--shared-prompt", options.shared_prompt,
                   "With --streams: prompts differ in their last 64 tokens only");
  command
      .add_option(
          "--force-tokens", options.force_tokens,
          "Force the answers of decode rows, and time each without and with guessing ahead: "
          "quote (a passage of the prompt), mislead (full of false matches) or a file of "
          "token ids")
      ->type_name("quote|mislead|FILE");
  AddCounts(command, "--ranks", options.ranks, 1, 64,
            "Ranks in this process; with several numbers, rows are compared with the first");
  AddDType(
      command, "--weights-dtype", [&options](DType dtype) { options.weights_dtype = dtype; },
      "Dtype of the weights (default: as stored)");
  AddActivations(command, options.activations);
  AddDType(
      command, "--kv-dtype", [&options](DType dtype) { options.kv_dtype = dtype; },
      "Dtype of keys and values (default: bf16)");
  AddRingMode(command, options.ring_mode);
  command.add_option("--chunk-tokens", options.chunk_tokens, "Prompt tokens per step")
      ->check(CLI::Range(16, 1 << 20))
      ->capture_default_str();
  AddPolicy(command, options.attention);
  command
      .add_option("--kernels", options.kernels,
                  "Name of the kernel table to use (default: the best)")
      ->type_name("NAME");
  AddRepeat(command, options.repeat);
}

absl::Status CheckModelFlags(const ModelBenchOptions& options) {
  if (options.directory.empty() == options.random_config.empty()) {
    return absl::InvalidArgumentError("give either --model DIR or --random CONFIG.json");
  }
  const bool batched = options.streams != std::vector<int32_t>{1};
  if (batched && !options.force_tokens.empty()) {
    return absl::InvalidArgumentError(
        "--force-tokens times one stream: leave --streams out, or --force-tokens");
  }
  if (!batched && options.shared_prompt) {
    return absl::InvalidArgumentError("--shared-prompt needs --streams with 2 or more");
  }
  if (batched && options.generate < 2) {
    return absl::InvalidArgumentError(
        "--streams needs --generate 2 or more: one token has no step");
  }
  return absl::OkStatus();
}

}  // namespace annulus::bench
