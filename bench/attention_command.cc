#include <memory>
#include <string>
#include <vector>

#include "bench/attention/attention_bench.h"
#include "bench/commands.h"
#include "bench/flags.h"
#include "bench/report/progress.h"
#include "bench/report/row.h"

namespace annulus::bench {
namespace {

constexpr int32_t kMostAttendedTokens = 1 << 24;

absl::Status RunAttention(AttentionBenchOptions options, BenchContext& context) {
  options.shape.threads = ThreadsOrAll(options.shape.threads);
  // The engine chooses by a cost model; a bench without a link to cross lets pages travel.
  if (options.ring_mode == RingMode::kAuto) options.ring_mode = RingMode::kPassKv;
  const PeakMeter meter(context.read_bytes);
  BenchProgress progress(context.err);
  RowWriter writer(context.rows);
  return RunAttentionBench(options, meter, progress, [&](const Row& row) { writer.Write(row); });
}

}  // namespace

void AddAttentionCommand(CLI::App& app, BenchContext& context) {
  auto options = std::make_shared<AttentionBenchOptions>();
  options->sequences = {1024, 4096, 16384};
  options->shape.threads = 0;
  options->ring_mode = RingMode::kAuto;
  AttentionShape& shape = options->shape;
  CLI::App* command = app.add_subcommand(
      "attention",
      "Time attention alone: each policy against dense causal attention with the same kernel");
  command->footer(
      "Examples:\n"
      "  annulus-bench attention --seq 8192,32768 --heads 14 --kv-heads 2 --decode\n"
      "  annulus-bench attention --seq 65536 --policy window random --density 0.1\n"
      "  annulus-bench attention --seq 32768 --policy adaptive:coverage=0.95 top_pages --quality");
  const auto count = [&](const char* flag, auto& value, int low, int high, const char* help) {
    command->add_option(flag, value, help)->check(CLI::Range(low, high))->capture_default_str();
  };
  AddCounts(*command, "--seq", options->sequences, 1, kMostAttendedTokens,
            "Lengths of the sequence (default: 1024,4096,16384)");
  count("--heads", shape.heads, 1, 1024, "Query heads");
  count("--kv-heads", shape.kv_heads, 1, 1024, "Key and value heads");
  count("--head-dim", shape.head_dim, 2, 512, "Elements per head");
  AddDType(
      *command, "--kv-dtype", [options](DType dtype) { options->shape.kv_dtype = dtype; },
      "Dtype of keys and values (default: bf16)");
  AddPolicies(*command, options->policies);
  command
      ->add_option(
          "--density", options->density,
          "Choose each policy's window, stride, rates, or number of near or random blocks so that "
          "it attends this share of the causal pairs")
      ->check(CLI::Range(0.0, 1.0));
  command
      ->add_option(
          "--most-chunks", options->most_chunks,
          "Run only this many chunks, evenly spread, and infer the time of all (default: all)")
      ->check(CLI::Range(1, 1 << 20));
  command->add_flag(
      "--quality", options->quality,
      "Also measure the coverage and error of the patterns on heads of known structure, and the "
      "least density that would suffice");
  command->add_flag("--decode", options->decode, "Also time one query over the whole sequence");
  AddParallelism(*command, shape.ranks, shape.threads);
  AddRingMode(*command, options->ring_mode);
  count("--chunk-tokens", shape.chunk_tokens, 16, 1 << 20,
        "Rows that attend at once, on all ranks together");
  command
      ->add_option("--kernels", options->kernels,
                   "Name of the kernel table to use (default: the best)")
      ->type_name("NAME");
  AddRepeat(*command, options->repeat);
  AddPeakChoice(*command, options->peak);
  command->callback([options, &context] {
    context.action = [=, &context] { return RunAttention(*options, context); };
  });
}

}  // namespace annulus::bench
