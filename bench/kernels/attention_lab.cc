// attention-lab: times the attention kernels of every table on one machine, each beside its bound.
// See bench/LABS.md.
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "bench/kernels/attention_case.h"
#include "bench/kernels/cpu_clock.h"
#include "bench/report/row.h"
#include "bench/report/statistics.h"
#include "kernels/base/status_macros.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/register.h"
#include "kernels/ops/shards.h"

namespace annulus::bench {
namespace {

struct Options {
  std::string mode = "prefill";
  std::vector<std::string> tables = {"cpu/avx512-bf16"};
  std::vector<std::string> dtypes = {"bf16"};
  std::vector<int> head_dims = {64, 128};
  std::vector<int> tokens = {8192, 32768};
  std::vector<double> densities = {1.0};
  std::vector<int> shards = {ShardsFor(1)};
  int group = 7;
  int kv_heads = 1;
  int page = 64;
  int rows = 0;
  int threads = 1;
  int64_t memory_mib = 256;  // as much as the bound reads
  int rounds = 5;
  bool json = false;
};

// The products that the table computes scores and values with.
Bound ProductsOf(const OpTable& ops, DType dtype) {
  const bool wide = dtype == DType::kF32 || dtype == DType::kF16;
  if (!wide && ops.name == "cpu/avx512-bf16") return Bound::kBF16;
  if (!wide && ops.name == "cpu/amx") return Bound::kAmxBF16;
  return Bound::kF32;
}

// Per second and thread.
struct Bounds {
  double products = 0;
  double read = 0;
};

absl::StatusOr<Bounds> MeasureBounds(bool decode, Bound products, int threads) {
  Bounds bounds;
  ANNULUS_ASSIGN_OR_RETURN(bounds.products, MeasureBound(products, threads));
  if (decode) {
    ANNULUS_ASSIGN_OR_RETURN(bounds.read, MeasureBound(Bound::kMemoryRead, threads));
  }
  return bounds;
}

absl::Status Measure(const Options& options, const OpTable& ops, Backend& backend,
                     const AttentionShape& shape, RowWriter& writer) {
  ANNULUS_ASSIGN_OR_RETURN(AttentionCase run, AttentionCase::Make(ops, backend, shape));
  ANNULUS_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream,
                           backend.CreateStream(options.threads));
  const bool decode = options.mode == "decode";
  const Bound products = ProductsOf(ops, shape.page.dtype);
  ANNULUS_RETURN_IF_ERROR(run.Run(*stream));
  std::vector<double> rates;
  std::vector<double> fractions;
  std::vector<double> product_fractions;
  std::vector<double> seconds;
  const double work = decode ? run.kv_bytes() : run.flops();
  for (int round = 0; round < options.rounds; ++round) {
    ANNULUS_ASSIGN_OR_RETURN(const Bounds before, MeasureBounds(decode, products, options.threads));
    // Long enough for the clock: at least 50 ms.
    const double start = ProcessCpuSeconds();
    int runs = 0;
    double spent = 0;
    do {
      ANNULUS_RETURN_IF_ERROR(run.Run(*stream));
      spent = ProcessCpuSeconds() - start;
      ++runs;
    } while (spent < 0.05 * options.threads);
    ANNULUS_ASSIGN_OR_RETURN(const Bounds after, MeasureBounds(decode, products, options.threads));
    seconds.push_back(spent / runs);
    rates.push_back(work * runs / spent);
    product_fractions.push_back(run.flops() * runs / spent /
                                ((before.products + after.products) / 2));
    fractions.push_back(decode ? rates.back() / ((before.read + after.read) / 2)
                               : product_fractions.back());
  }
  Row row;
  row.Text("table", ops.name).Text("kv", DTypeName(shape.page.dtype));
  row.Int("head_dim", shape.page.k_dim).Int("kv_heads", shape.page.kv_heads);
  row.Int("group", shape.group).Int("tokens", shape.tokens, Row::Unit::kPlain);
  row.Int("rows", int64_t{shape.block_rows} * shape.blocks).Int("threads", options.threads);
  row.Int("shards", shape.shards);
  row.Number("density", run.density()).Number("cpu_seconds", Median(seconds), Row::Unit::kSeconds);
  row.Number("rate", Median(rates), Row::Unit::kPerSecond);
  row.Number("fraction", Median(fractions), Row::Unit::kShare);
  if (decode) row.Number("of_products", Median(product_fractions), Row::Unit::kShare);
  writer.Write(row);
  return absl::OkStatus();
}

// The shapes to time for a table's kernels, with pages of that kind.
std::vector<AttentionShape> ShapesOf(const Options& options, const KvPageShape& page) {
  const bool decode = options.mode == "decode";
  AttentionShape shape;
  shape.page = page;
  shape.group = options.group;
  shape.blocks = decode ? 1 : 4;
  if (decode) shape.memory_bytes = options.memory_mib << 20;
  shape.block_rows = options.rows > 0 ? options.rows : decode ? 1 : 256;
  std::vector<AttentionShape> shapes;
  for (const int tokens : options.tokens) {
    for (const double density : options.densities) {
      for (const int shards : options.shards) {
        shape.tokens = tokens;
        shape.density = density;
        shape.shards = shards;
        shapes.push_back(shape);
      }
    }
  }
  return shapes;
}

absl::Status Run(const Options& options) {
  ANNULUS_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, CreateCpuBackend());
  KernelRegistry registry;
  RegisterCpuKernels(registry);
  RowWriter writer({.out = std::cout,
                    .format = options.json ? RowOutput::Format::kJson : RowOutput::Format::kTable});
  for (const std::string& table : options.tables) {
    for (const int dim : options.head_dims) {
      for (const std::string& dtype : options.dtypes) {
        KernelRequirements required;
        required.implementation = table;
        required.k_dim = required.v_dim = dim;
        ANNULUS_ASSIGN_OR_RETURN(required.kv_dtype, ParseDType(dtype));
        ANNULUS_ASSIGN_OR_RETURN(const OpTable* ops, registry.Select(required));
        const KvPageShape page = {options.page, options.kv_heads, dim, dim, required.kv_dtype};
        for (const AttentionShape& shape : ShapesOf(options, page)) {
          ANNULUS_RETURN_IF_ERROR(Measure(options, *ops, *backend, shape, writer));
        }
      }
    }
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app{"Times attention kernels against their bounds, by CPU time"};
  app.add_option("mode", options.mode,
                 "prefill (bound: arithmetic) or decode (bound: memory reads)")
      ->check(CLI::IsMember({"prefill", "decode"}));
  app.add_option("--tables", options.tables)->delimiter(',');
  app.add_option("--kv-dtypes", options.dtypes)->delimiter(',');
  app.add_option("--head-dims", options.head_dims)->delimiter(',');
  app.add_option("--tokens", options.tokens)->delimiter(',');
  app.add_option("--densities", options.densities,
                 "Densities of random block lists, 64 rows by one page")
      ->delimiter(',');
  app.add_option("--shards", options.shards, "Virtual shards, in which kernels sum the keys")
      ->delimiter(',')
      ->check(CLI::IsMember({1, 2, 4, 8, 16, 32, kMostVirtualShards}));
  app.add_option("--group", options.group);
  app.add_option("--kv-heads", options.kv_heads);
  app.add_option("--page", options.page);
  app.add_option("--rows", options.rows, "Rows per block (default: 256; decode: 1)");
  app.add_option("--memory-mib", options.memory_mib,
                 "Decode attends copies of its pages in turn, this many MiB in all; 0: the same "
                 "pages again, from a cache");
  app.add_option("--threads", options.threads);
  app.add_option("--rounds", options.rounds);
  app.add_flag("--json", options.json);
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = Run(options);
  if (!status.ok()) std::cerr << "attention-lab: " << status << "\n";
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace annulus::bench

int main(int argc, char** argv) { return annulus::bench::Main(argc, argv); }
