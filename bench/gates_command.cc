#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/commands.h"
#include "bench/flags.h"
#include "bench/gates/fit_gates.h"
#include "bench/read_tokens.h"
#include "bench/report/row.h"
#include "engine/loading/loaded_model.h"
#include "kernels/base/status_macros.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/register.h"

namespace annulus::bench {
namespace {

struct GatesOptions {
  std::string model;
  std::vector<std::string> documents;
  std::string out;
  int threads = 0;
  int tokens = 16'384;
  int page_tokens = 64;
  GateFitting fitting;
};

absl::Status RunGates(const GatesOptions& options, BenchContext& context) {
  // Before hours of fitting, not behind them.
  if (std::filesystem::exists(options.out)) {
    return absl::AlreadyExistsError(
        absl::StrCat(options.out, " is there already; name a new file"));
  }
  ANNULUS_ASSIGN_OR_RETURN(const auto backend, CreateCpuBackend());
  KernelRegistry kernels;
  RegisterCpuKernels(kernels);
  EngineOptions engine;
  engine.model = options.model;
  engine.page_tokens = options.page_tokens;
  ANNULUS_ASSIGN_OR_RETURN(const LoadedModel model, LoadModel(engine, *backend, kernels));
  std::vector<std::vector<int32_t>> documents;
  for (const std::string& path : options.documents) {
    ANNULUS_ASSIGN_OR_RETURN(documents.emplace_back(),
                             ReadTokens(path, *model.tokenizer, options.tokens));
  }
  RowWriter writer(context.rows);
  ANNULUS_ASSIGN_OR_RETURN(
      const AttentionGates gates,
      FitGates(model.ranks, *backend, ThreadsOrAll(options.threads), documents, options.fitting,
               [&](const GateLoss& loss) {
                 Row row;
                 row.Int("layer", loss.layer).Number("divergence_before", loss.before);
                 row.Number("divergence_after", loss.after);
                 writer.Write(row);
               }));
  return WriteGates(gates, GateShapeOf(model.ranks), options.out);
}

}  // namespace

void AddGatesCommand(CLI::App& app, BenchContext& context) {
  auto options = std::make_shared<GatesOptions>();
  CLI::App* command = app.add_subcommand(
      "gates", "Fit the gates of the policy 'learned' to a model's own attention in documents");
  command->footer(
      "Examples:\n"
      "  annulus-bench gates --model /models/llama --document a.txt b.txt -o gates.safetensors\n"
      "  annulusd --model /models/llama --attention-gates gates.safetensors --attention learned");
  command
      ->add_option("--model", options->model, "Model directory, builtin:NAME or random:CONFIG.json")
      ->required();
  command->add_option("--document", options->documents, "Text files to learn from")->required();
  command->add_option("-o,--out", options->out, "Safetensors file to write; must not exist")
      ->required();
  const auto count = [&](const char* flag, int& value, int low, int high, const char* help) {
    command->add_option(flag, value, help)->check(CLI::Range(low, high))->capture_default_str();
  };
  count("--tokens", options->tokens, 512, 1 << 20, "Most tokens to read of each document");
  count("--page-tokens", options->page_tokens, 16, 256, "Tokens per page; must equal the server's");
  count("--width", options->fitting.width, 1, kMostGateWidth, "Width of a gate, in channels");
  count("--passes", options->fitting.passes, 1, 100'000, "Training passes over the collected data");
  command->add_option("--threads", options->threads, "Threads (default: what the process may use)")
      ->check(CLI::Range(1, 256));
  command->callback([options, &context] {
    context.action = [=, &context] { return RunGates(*options, context); };
  });
}

}  // namespace annulus::bench
