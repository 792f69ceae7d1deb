// annulus-ring-modes: times one layer of ring attention in both modes over a grid of new (T) and
// cached (P) tokens, and prints what the cost model, measured as a server measures it at start,
// would have chosen and how much slower that is than the better mode.

#include <algorithm>
#include <chrono>
#include <iostream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_format.h"
#include "engine/base/clock.h"
#include "engine/exchange/measure_exchange.h"
#include "engine/exchange/ring_probe.h"
#include "engine/scheduler/cost_model.h"
#include "kernels/base/status_macros.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/register.h"

namespace annulus::bench {
namespace {

struct Arguments {
  int ranks = 4;
  int threads = 2;
  int heads = 8;
  int kv_heads = 2;
  int head_dim = 64;
  int page_tokens = 64;
  std::string kv_dtype = "f32";
  std::string kernels;
  std::vector<int32_t> rows = {16, 64, 256, 1024, 2048};
  std::vector<int32_t> cached = {0, 1024, 8192, 65536};
  double seconds = 1;  // of each mode in each cell, about
};

struct Cell {
  double pass_kv = 0;
  double pass_q = 0;
};

// The lower quartile: what else the machine does only adds.
double Quartile(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 4, values.end());
  return values[values.size() / 4];
}

// Both modes in turn, so that a slow moment meets both.
absl::StatusOr<Cell> TimeCell(RingProbe& probe, int32_t rows, int32_t cached, double budget) {
  ANNULUS_ASSIGN_OR_RETURN(const double warm, probe.Layer(RingMode::kPassKv, rows, cached));
  const int repeats = std::clamp(static_cast<int>(budget / warm), 5, 101);
  std::vector<double> pass_kv, pass_q;
  for (int n = 0; n < repeats; ++n) {
    ANNULUS_ASSIGN_OR_RETURN(pass_kv.emplace_back(), probe.Layer(RingMode::kPassKv, rows, cached));
    ANNULUS_ASSIGN_OR_RETURN(pass_q.emplace_back(), probe.Layer(RingMode::kPassQ, rows, cached));
  }
  return Cell{Quartile(pass_kv), Quartile(pass_q)};
}

absl::Status Run(const Arguments& a) {
  ANNULUS_ASSIGN_OR_RETURN(const auto backend, CreateCpuBackend({.shared_threads = a.threads}));
  KernelRegistry registry;
  RegisterCpuKernels(registry);
  ExchangeSetup setup;
  setup.ranks = a.ranks;
  setup.threads = a.threads;
  AttentionGeometry& geometry = setup.attention;
  geometry = {.heads = a.heads, .page = {a.page_tokens, a.kv_heads, a.head_dim, a.head_dim}};
  ANNULUS_ASSIGN_OR_RETURN(geometry.page.dtype, ParseDType(a.kv_dtype));
  KernelRequirements required;
  required.implementation = a.kernels;
  required.kv_dtype = geometry.page.dtype;
  required.k_dim = required.v_dim = a.head_dim;
  ANNULUS_ASSIGN_OR_RETURN(const OpTable* ops, registry.Select(required));
  const SteadyTime start = std::chrono::steady_clock::now();
  ANNULUS_ASSIGN_OR_RETURN(const ExchangeRates rates, MeasureExchange(setup, *ops, *backend));
  const double seconds = SecondsBetween(start, std::chrono::steady_clock::now());
  std::cout << absl::StreamFormat(
      "%s, %d ranks, %d threads, heads %d/%d of %d, %s: a call as %.0f keys, message %.2f us, part "
      "%.2f ns; "
      "measured in "
      "%.0f ms\n",
      ops->name, a.ranks, a.threads, a.heads, a.kv_heads, a.head_dim, a.kv_dtype, rates.call_keys,
      rates.message_seconds * 1e6, rates.part_seconds * 1e9, seconds * 1e3);
  for (const AttentionRate& rate : rates.attention) {
    std::cout << absl::StreamFormat(
        "attention of %3d rows: %6.1f GFLOP/s a rank, %6.1f alone, pass-Q %+.1f us\n", rate.rows,
        rate.flops / 1e9, rate.alone_flops / 1e9, rate.query_seconds * 1e6);
  }
  RingProbeOptions options{a.ranks, a.threads, geometry, 0, 0};
  options.rows = *std::max_element(a.rows.begin(), a.rows.end());
  options.tokens = options.rows + *std::max_element(a.cached.begin(), a.cached.end());
  ANNULUS_ASSIGN_OR_RETURN(const auto probe, RingProbe::Create(options, *ops, *backend));
  std::cout << "     T        P   pass-KV ms    pass-Q ms   chosen   over the better\n";
  double worst = 1;
  for (const int32_t rows : a.rows) {
    for (const int32_t cached : a.cached) {
      ANNULUS_ASSIGN_OR_RETURN(const Cell cell, TimeCell(*probe, rows, cached, a.seconds));
      const RingMode mode = ChooseRingMode(
          StripedWork(rows, cached, a.ranks, a.page_tokens, ShardsFor(a.ranks)), geometry, rates);
      const bool kv = mode == RingMode::kPassKv;
      const double over = (kv ? cell.pass_kv : cell.pass_q) / std::min(cell.pass_kv, cell.pass_q);
      worst = std::max(worst, over);
      std::cout << absl::StreamFormat("%6d %8d %12.3f %12.3f  %7s  %+6.1f%%\n", rows, cached,
                                      cell.pass_kv * 1e3, cell.pass_q * 1e3,
                                      kv ? "pass-KV" : "pass-Q", (over - 1) * 100)
                << std::flush;
    }
  }
  std::cout << absl::StreamFormat("worst choice: %+.1f%%\n", (worst - 1) * 100);
  return absl::OkStatus();
}

}  // namespace
}  // namespace annulus::bench

int main(int argc, char** argv) {
  annulus::bench::Arguments arguments;
  CLI::App app("Times ring attention in both modes and judges the cost model's choices");
  app.add_option("--ranks", arguments.ranks)->check(CLI::Range(2, 64));
  app.add_option("--threads", arguments.threads)->check(CLI::Range(1, 4096));
  app.add_option("--heads", arguments.heads)->check(CLI::Range(1, 1024));
  app.add_option("--kv-heads", arguments.kv_heads)->check(CLI::Range(1, 1024));
  app.add_option("--head-dim", arguments.head_dim)->check(CLI::Range(1, 1024));
  app.add_option("--page-tokens", arguments.page_tokens)->check(CLI::IsMember({16, 32, 64, 128}));
  app.add_option("--kv-dtype", arguments.kv_dtype);
  app.add_option("--kernels", arguments.kernels);
  app.add_option("--rows", arguments.rows)->delimiter(',')->check(CLI::Range(1, 1 << 20));
  app.add_option("--cached", arguments.cached)->delimiter(',')->check(CLI::Range(0, 1 << 28));
  app.add_option("--seconds", arguments.seconds, "Approximate seconds per mode and cell");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = annulus::bench::Run(arguments);
  if (status.ok()) return 0;
  std::cerr << "annulus-ring-modes: " << status << "\n";
  return 1;
}
