// linear-lab: times the linear layers of every table on one machine, each beside its bound. See
// bench/LABS.md.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "bench/kernels/cpu_clock.h"
#include "bench/report/row.h"
#include "bench/report/statistics.h"
#include "kernels/base/status_macros.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/register.h"

namespace annulus::bench {
namespace {

struct Options {
  std::vector<std::string> tables = {"cpu/avx512-bf16"};
  std::vector<std::string> dtypes = {"bf16"};
  std::vector<int64_t> rows = {1, 512};
  std::vector<int64_t> in = {896, 4864};
  std::vector<int64_t> out = {896, 4864};
  std::string activations = "float";
  int threads = 1;
  int rounds = 5;
  bool json = false;
};

// Weights of one shape, so many that decoding finds none of them in a cache.
class LinearCase {
 public:
  static absl::StatusOr<LinearCase> Make(const OpTable& ops, Backend& backend, DType dtype,
                                         int64_t rows, int64_t in, int64_t out) {
    constexpr size_t kColdBytes = size_t{320} << 20;
    LinearCase result;
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    result.input_.resize(rows * in);
    std::vector<float> values(out * in);
    for (float& x : result.input_) x = normal(random);
    for (size_t i = 0; i < values.size(); ++i) values[i] = normal(random) * 0.02f;
    result.output_.resize(rows * out);
    ANNULUS_ASSIGN_OR_RETURN(
        PackedMatrix first, PackMatrix(ops, backend, {values.data(), DType::kF32, out, in}, dtype));
    const size_t bytes = first.storage.size();
    result.weights_.push_back(std::move(first));
    for (size_t held = bytes; rows <= 8 && held < kColdBytes; held += bytes) {
      ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer copy, backend.Allocate(bytes));
      std::memcpy(copy.data(), result.weights_[0].storage.data(), bytes);
      result.weights_.push_back({out, in, dtype, std::move(copy)});
    }
    result.rows_ = rows;
    return result;
  }

  absl::Status Run(const OpTable& ops, Stream& stream, Activations activations) {
    const PackedMatrix& weight = weights_[next_++ % weights_.size()];
    LinearParams params;
    params.input = {input_.data(), rows_, weight.in_features, weight.in_features};
    params.weight = &weight;
    params.output = {output_.data(), rows_, weight.out_features, weight.out_features};
    params.activations = activations;
    return ops.linear(stream, params);
  }

  double flops() const {
    return 2.0 * static_cast<double>(rows_) * static_cast<double>(weights_[0].in_features) *
           static_cast<double>(weights_[0].out_features);
  }
  double bytes() const { return static_cast<double>(weights_[0].storage.size()); }

 private:
  int64_t rows_ = 0;
  std::vector<float> input_;
  std::vector<float> output_;
  std::vector<PackedMatrix> weights_;
  size_t next_ = 0;
};

// Few rows are bound by reading the weights.
Bound BoundOf(const OpTable& ops, DType dtype, Activations activations, int64_t rows) {
  if (rows <= 8) return Bound::kMemoryRead;
  if (activations == Activations::kInt8) return ops.name == "cpu/amx" ? Bound::kAmxI8 : Bound::kI8;
  if (dtype == DType::kF32 || dtype == DType::kF16) return Bound::kF32;
  if (ops.name == "cpu/amx") return Bound::kAmxBF16;
  return ops.name == "cpu/avx512-bf16" ? Bound::kBF16 : Bound::kF32;
}

absl::Status Measure(const Options& options, const OpTable& ops, Backend& backend, DType dtype,
                     Activations activations, int64_t rows, int64_t in, int64_t out,
                     RowWriter& writer) {
  ANNULUS_ASSIGN_OR_RETURN(LinearCase run, LinearCase::Make(ops, backend, dtype, rows, in, out));
  ANNULUS_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream,
                           backend.CreateStream(options.threads));
  const Bound bound = BoundOf(ops, dtype, activations, rows);
  const double work = bound == Bound::kMemoryRead ? run.bytes() : run.flops();
  ANNULUS_RETURN_IF_ERROR(run.Run(ops, *stream, activations));
  std::vector<double> rates;
  std::vector<double> fractions;
  for (int round = 0; round < options.rounds; ++round) {
    ANNULUS_ASSIGN_OR_RETURN(const double before, MeasureBound(bound, options.threads));
    const double start = ProcessCpuSeconds();
    int runs = 0;
    double spent = 0;
    do {
      for (int i = 0; i < 4; ++i, ++runs) {
        ANNULUS_RETURN_IF_ERROR(run.Run(ops, *stream, activations));
      }
      spent = ProcessCpuSeconds() - start;
    } while (spent < 0.05 * options.threads);
    ANNULUS_ASSIGN_OR_RETURN(const double after, MeasureBound(bound, options.threads));
    rates.push_back(work * runs / spent);
    fractions.push_back(rates.back() / ((before + after) / 2));
  }
  Row row;
  row.Text("table", ops.name).Text("weights", DTypeName(dtype));
  row.Int("rows", rows, Row::Unit::kPlain).Int("in", in, Row::Unit::kPlain);
  row.Int("out", out, Row::Unit::kPlain).Int("threads", options.threads);
  row.Number("rate", Median(rates), Row::Unit::kPerSecond);
  row.Number("fraction", Median(fractions), Row::Unit::kShare);
  writer.Write(row);
  return absl::OkStatus();
}

absl::Status Run(const Options& options) {
  ANNULUS_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, CreateCpuBackend());
  KernelRegistry registry;
  RegisterCpuKernels(registry);
  RowWriter writer({.out = std::cout,
                    .format = options.json ? RowOutput::Format::kJson : RowOutput::Format::kTable});
  for (const std::string& table : options.tables) {
    for (const std::string& name : options.dtypes) {
      KernelRequirements required;
      required.implementation = table;
      required.k_dim = required.v_dim = 64;
      ANNULUS_ASSIGN_OR_RETURN(required.activations, ParseActivations(options.activations));
      ANNULUS_ASSIGN_OR_RETURN(required.weights_dtype, ParseDType(name));
      ANNULUS_ASSIGN_OR_RETURN(const OpTable* ops, registry.Select(required));
      for (const int64_t rows : options.rows) {
        for (const int64_t in : options.in) {
          for (const int64_t out : options.out) {
            ANNULUS_RETURN_IF_ERROR(Measure(options, *ops, *backend, required.weights_dtype,
                                            required.activations, rows, in, out, writer));
          }
        }
      }
    }
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app{"Times linear layers against their bounds, by CPU time"};
  app.add_option("--tables", options.tables)->delimiter(',');
  app.add_option("--weights-dtypes", options.dtypes)->delimiter(',');
  app.add_option("--activations", options.activations, "float, int8 or fp8_e4m3");
  app.add_option("--rows", options.rows, "Row counts; up to 8 are compared with memory reads")
      ->delimiter(',');
  app.add_option("--in", options.in)->delimiter(',');
  app.add_option("--out", options.out)->delimiter(',');
  app.add_option("--threads", options.threads);
  app.add_option("--rounds", options.rounds);
  app.add_flag("--json", options.json);
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = Run(options);
  if (!status.ok()) std::cerr << "linear-lab: " << status << "\n";
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace annulus::bench

int main(int argc, char** argv) { return annulus::bench::Main(argc, argv); }
