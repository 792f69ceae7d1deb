#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/commands.h"
#include "bench/flags.h"
#include "bench/heads/find_heads.h"
#include "bench/report/row.h"
#include "engine/loading/loaded_model.h"
#include "kernels/base/status_macros.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/register.h"

namespace annulus::bench {
namespace {

struct HeadsOptions {
  std::string model;
  std::string out;
  int threads = 0;
  int64_t bytes = FindHeadsOptions().bytes;
  int facts = FindHeadsOptions().facts;
};

absl::Status RunHeads(const HeadsOptions& options, BenchContext& context) {
  if (std::filesystem::exists(options.out)) {
    return absl::AlreadyExistsError(
        absl::StrCat(options.out, " is there already; name a new file"));
  }
  ANNULUS_ASSIGN_OR_RETURN(const auto backend, CreateCpuBackend());
  KernelRegistry kernels;
  RegisterCpuKernels(kernels);
  EngineOptions engine;
  engine.model = options.model;
  ANNULUS_ASSIGN_OR_RETURN(const LoadedModel model, LoadModel(engine, *backend, kernels));
  ANNULUS_RETURN_IF_ERROR(model.tokenizer->usable());
  const FindHeadsOptions find{
      .threads = ThreadsOrAll(options.threads), .bytes = options.bytes, .facts = options.facts};
  ANNULUS_ASSIGN_OR_RETURN(const std::vector<HeadScore> scores,
                           FindHeads(model.ranks, *model.tokenizer, *backend, find));
  RowWriter writer(context.rows);
  for (const HeadScore& each : scores) {
    Row row;
    row.Int("layer", each.head.layer).Int("head", each.head.head).Number("score", each.score);
    writer.Write(row);
  }
  writer.Finish();
  const std::vector<HeadScore> chosen = ChooseHeads(scores, model.ranks.layers());
  if (chosen.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "no head of this model points at planted facts with a score of ", kLeastHeadScore,
        " or more; nothing was written, and annulusd chooses heads by depth"));
  }
  std::ofstream file(options.out, std::ios::binary);
  file << ProfileJson(chosen, find);
  file.close();
  return file ? absl::OkStatus() : absl::InternalError(absl::StrCat("cannot write ", options.out));
}

}  // namespace

void AddHeadsCommand(CLI::App& app, BenchContext& context) {
  auto options = std::make_shared<HeadsOptions>();
  CLI::App* command = app.add_subcommand(
      "heads", "Find the heads that point at planted facts, for evidence of answers");
  command->footer(
      "Examples:\n"
      "  annulus-bench heads --model /models/llama -o llama.profile.json\n"
      "  annulusd --model /models/llama --attention-profile llama.profile.json");
  command
      ->add_option("--model", options->model, "Model directory, builtin:NAME or random:CONFIG.json")
      ->required();
  command->add_option("-o,--out", options->out, "JSON file to write; must not exist")->required();
  command->add_option("--bytes", options->bytes, "Size of the text with the facts")
      ->check(CLI::Range(int64_t{2048}, int64_t{1} << 24))
      ->capture_default_str();
  command->add_option("--facts", options->facts, "Number of facts, each read in a text of its own")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  command->add_option("--threads", options->threads, "Threads (default: what the process may use)")
      ->check(CLI::Range(1, 256));
  command->callback([options, &context] {
    context.action = [=, &context] { return RunHeads(*options, context); };
  });
}

}  // namespace annulus::bench
