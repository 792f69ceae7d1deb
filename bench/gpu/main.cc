// gpu-lab: times single ops on the first GPU. See bench/LABS.md.
#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "bench/gpu/op_times.h"
#include "kernels/base/status_macros.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/trial.h"

namespace annulus::bench {
namespace {

const std::vector<std::string> kOps = {
    "copy",       "decode",         "linear",        "step",
    "prefill",    "prefill_blocks", "prefill_trial", "linear_trial",
    "gate_trial", "down_trial",     "fp8_trial",     "overlap_trial",
    "step_trial", "pairs_trial",    "wgmma_trial",   "prefill_fp8_trial"};

bool IsTrial(absl::string_view op) { return absl::EndsWith(op, "_trial"); }

struct LabOptions {
  OpTimesOptions ops;
  std::vector<std::string> tables;  // empty: all
  std::ofstream json;
};

absl::Status Run(LabOptions& lab) {
  ANNULUS_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, CreateCudaBackend(0));
  KernelRegistry registry;
  RegisterCudaKernels(registry);
  const std::vector<const OpTable*> tables = registry.Available("cuda");
  const std::optional<OpTable> trial = cuda::TrialOf(*tables.front());
  const std::optional<OpTable> pairs = cuda::PairsTrialOf(*tables.front());
  const std::optional<OpTable> warpgroups = cuda::WarpgroupTrialOf(*tables.front());
  const std::optional<OpTable> float8 = cuda::Float8TrialOf(*tables.front());
  if (!trial.has_value() && absl::c_any_of(lab.ops.only, IsTrial)) {
    return absl::FailedPreconditionError(
        absl::StrCat("there are no kernels on trial for ", backend->capabilities().description,
                     "; leave out ops of *_trial, or use a GPU of compute capability 9.0"));
  }
  RowWriter writer(
      {std::cout, RowOutput::Format::kTable, lab.json.is_open() ? &lab.json : nullptr});
  std::cout << backend->capabilities().description << "\n";
  // The fastest table whole; of the others, which share its ops, what is their own. Those that are
  // row-invariant only if they are named. What is on trial is a variant of the fastest.
  for (const OpTable* ops : tables) {
    const bool named = absl::c_linear_search(lab.tables, ops->name);
    if (!named && (!lab.tables.empty() || ops->row_invariant)) continue;
    const bool fastest = ops == tables.front();
    lab.ops.trial = fastest && trial.has_value() ? &*trial : nullptr;
    lab.ops.pairs = pairs.has_value() ? &*pairs : nullptr;
    lab.ops.warpgroup_trial = warpgroups.has_value() ? &*warpgroups : nullptr;
    lab.ops.float8_trial = float8.has_value() ? &*float8 : nullptr;
    lab.ops.overlap = cuda::LetKernelsOverlap;
    ANNULUS_RETURN_IF_ERROR(
        MeasureOps(*backend, *ops, lab.ops, [&](const Row& row) { writer.Write(row); }));
    if (lab.ops.only.empty()) lab.ops.only = {"prefill", "prefill_blocks"};
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  CLI::App app("Times single ops on the first GPU.", "gpu-lab");
  app.footer(
      "Example, one op for a profiler: gpu-lab --ops prefill --tables cuda/sm90 --tokens 16384 "
      "--seconds 0");
  LabOptions lab;
  std::string file;
  app.add_option("--ops", lab.ops.only, "only these; *_trial runs only if it is named")
      ->delimiter(',')
      ->check(CLI::IsMember(kOps));
  app.add_option("--tables", lab.tables,
                 "only these op tables: cuda/sm90, cuda/sm80, or one of them with -invariant")
      ->delimiter(',');
  app.add_option("--tokens", lab.ops.sequences, "lengths of prompts")
      ->delimiter(',')
      ->check(CLI::Range(64, 1 << 20))
      ->capture_default_str();
  app.add_option("--seconds", lab.ops.enough_seconds, "of each measurement")
      ->check(CLI::Range(0.0, 60.0))
      ->capture_default_str();
  app.add_option("FILE", file, "also gets every row as JSON");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (!file.empty()) {
    lab.json.open(file);
    if (!lab.json) {
      std::cerr << "gpu-lab: cannot write " << file << "\n";
      return 2;
    }
  }
  const absl::Status status = Run(lab);
  if (status.ok()) return 0;
  std::cerr << "gpu-lab: " << status.message() << "\n";
  return 1;
}

}  // namespace
}  // namespace annulus::bench

int main(int argc, char** argv) { return annulus::bench::Main(argc, argv); }
