// linear-lab: times the linear layers of every table on one machine, each beside its bound. See
// bench/LABS.md.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
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
  bool blocks = false;
  bool json = false;
};

// So many bytes of weights that a product finds none of its own in a cache, if they take turns.
constexpr size_t kColdBytes = size_t{320} << 20;

std::vector<float> Normal(std::mt19937& random, int64_t count, float deviation) {
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& x : values) x = normal(random);
  return values;
}

// A random matrix, and copies of it until they have `bytes` bytes.
absl::StatusOr<std::vector<PackedMatrix>> PackCopies(const OpTable& ops, Backend& backend,
                                                     std::mt19937& random, DType dtype, int64_t in,
                                                     int64_t out, size_t bytes) {
  const std::vector<float> values = Normal(random, out * in, 0.02f);
  std::vector<PackedMatrix> copies(1);
  ANNULUS_ASSIGN_OR_RETURN(copies[0],
                           PackMatrix(ops, backend, {values.data(), DType::kF32, out, in}, dtype));
  const size_t size = copies[0].storage.size();
  for (size_t held = size; held < bytes; held += size) {
    ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer copy, backend.Allocate(size));
    std::memcpy(copy.data(), copies[0].storage.data(), size);
    copies.push_back({out, in, dtype, std::move(copy)});
  }
  return copies;
}

// Weights of one shape, so many that decoding finds none of them in a cache.
class LinearCase {
 public:
  static absl::StatusOr<LinearCase> Make(const OpTable& ops, Backend& backend, DType dtype,
                                         int64_t rows, int64_t in, int64_t out) {
    LinearCase result;
    std::mt19937 random(1);
    result.input_ = Normal(random, rows * in, 1);
    result.output_.resize(rows * out);
    ANNULUS_ASSIGN_OR_RETURN(result.weights_, PackCopies(ops, backend, random, dtype, in, out,
                                                         rows <= 8 ? kColdBytes : 0));
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

// Gated blocks as the layers of a model have them: each is run once, then come the others.
class BlockCase {
 public:
  static absl::StatusOr<BlockCase> Make(const OpTable& ops, Backend& backend, DType dtype,
                                        int64_t rows, int64_t hidden, int64_t intermediate) {
    BlockCase result;
    std::mt19937 random(1);
    result.input_ = Normal(random, rows * hidden, 1);
    result.output_.resize(rows * hidden);
    for (std::vector<float>* inside : {&result.gate_, &result.up_}) {
      inside->resize(rows * intermediate);
    }
    for (const bool last : {false, false, true}) {
      ANNULUS_ASSIGN_OR_RETURN(std::vector<PackedMatrix> weights,
                               PackCopies(ops, backend, random, dtype, last ? intermediate : hidden,
                                          last ? hidden : intermediate, kColdBytes / 3));
      result.weights_.push_back(std::move(weights));
    }
    result.rows_ = rows;
    return result;
  }

  // `together`: as one op.
  absl::Status Run(const OpTable& ops, Stream& stream, Activations activations, bool together) {
    const size_t i = next_++ % weights_[0].size();
    const int64_t hidden = weights_[0][i].in_features;
    const int64_t intermediate = weights_[0][i].out_features;
    const MatrixView input{input_.data(), rows_, hidden, hidden};
    const MatrixView gate{gate_.data(), rows_, intermediate, intermediate};
    const MatrixView up{up_.data(), rows_, intermediate, intermediate};
    const MatrixView output{output_.data(), rows_, hidden, hidden};
    const LinearParams products[] = {
        {.input = input, .weight = &weights_[0][i], .output = gate, .activations = activations},
        {.input = input, .weight = &weights_[1][i], .output = up, .activations = activations}};
    const GatedBlockParams params = {.products = products,
                                     .down = {.input = gate,
                                              .weight = &weights_[2][i],
                                              .output = output,
                                              .activations = activations}};
    if (together) return ops.gated_block(stream, params);
    ANNULUS_RETURN_IF_ERROR(Linears(ops, stream, params.products));
    ANNULUS_RETURN_IF_ERROR(ops.gated_mul(stream, params.gated_mul()));
    return ops.linear(stream, params.down);
  }

  double flops() const {
    return 6.0 * static_cast<double>(rows_) * static_cast<double>(weights_[0][0].in_features) *
           static_cast<double>(weights_[0][0].out_features);
  }
  double bytes() const {
    double bytes = 0;
    for (const auto& copies : weights_) bytes += static_cast<double>(copies[0].storage.size());
    return bytes;
  }

 private:
  int64_t rows_ = 0;
  std::vector<float> input_;
  std::vector<float> gate_;
  std::vector<float> up_;
  std::vector<float> output_;
  std::vector<std::vector<PackedMatrix>> weights_;  // [gate, up and down][copy]
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

// What is timed, by its row of the table.
struct Timed {
  const OpTable& ops;
  DType dtype;
  Activations activations;
  int64_t rows;
  int64_t in;
  int64_t out;
};

// Times `run`, which does `flops` or, bound by memory, reads `bytes`.
absl::Status Measure(const Options& options, const Timed& timed, double flops, double bytes,
                     absl::string_view op, absl::FunctionRef<absl::Status()> run,
                     RowWriter& writer) {
  const Bound bound = BoundOf(timed.ops, timed.dtype, timed.activations, timed.rows);
  const double work = bound == Bound::kMemoryRead ? bytes : flops;
  ANNULUS_RETURN_IF_ERROR(run());
  std::vector<double> rates;
  std::vector<double> fractions;
  for (int round = 0; round < options.rounds; ++round) {
    ANNULUS_ASSIGN_OR_RETURN(const double before, MeasureBound(bound, options.threads));
    const double start = ProcessCpuSeconds();
    int runs = 0;
    double spent = 0;
    do {
      for (int i = 0; i < 4; ++i, ++runs) ANNULUS_RETURN_IF_ERROR(run());
      spent = ProcessCpuSeconds() - start;
    } while (spent < 0.05 * options.threads);
    ANNULUS_ASSIGN_OR_RETURN(const double after, MeasureBound(bound, options.threads));
    rates.push_back(work * runs / spent);
    fractions.push_back(rates.back() / ((before + after) / 2));
  }
  Row row;
  row.Text("table", timed.ops.name).Text("weights", DTypeName(timed.dtype));
  if (!op.empty()) row.Text("op", op);
  row.Int("rows", timed.rows, Row::Unit::kPlain).Int("in", timed.in, Row::Unit::kPlain);
  row.Int("out", timed.out, Row::Unit::kPlain).Int("threads", options.threads);
  row.Number("rate", Median(rates), Row::Unit::kPerSecond);
  row.Number("fraction", Median(fractions), Row::Unit::kShare);
  writer.Write(row);
  return absl::OkStatus();
}

absl::Status MeasureLinear(const Options& options, const Timed& timed, Backend& backend,
                           Stream& stream, RowWriter& writer) {
  ANNULUS_ASSIGN_OR_RETURN(LinearCase test, LinearCase::Make(timed.ops, backend, timed.dtype,
                                                             timed.rows, timed.in, timed.out));
  return Measure(
      options, timed, test.flops(), test.bytes(), "",
      [&] { return test.Run(timed.ops, stream, timed.activations); }, writer);
}

// `in`: the block's inputs and outputs; `out`: the values in between.
absl::Status MeasureBlock(const Options& options, const Timed& timed, Backend& backend,
                          Stream& stream, RowWriter& writer) {
  ANNULUS_ASSIGN_OR_RETURN(BlockCase test, BlockCase::Make(timed.ops, backend, timed.dtype,
                                                           timed.rows, timed.in, timed.out));
  for (const bool together : {false, true}) {
    if (together && timed.ops.gated_block == nullptr) continue;
    ANNULUS_RETURN_IF_ERROR(Measure(
        options, timed, test.flops(), test.bytes(), together ? "block" : "separate ops",
        [&] { return test.Run(timed.ops, stream, timed.activations, together); }, writer));
  }
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
            ANNULUS_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream,
                                     backend->CreateStream(options.threads));
            const Timed timed = {*ops, required.weights_dtype, required.activations, rows, in, out};
            ANNULUS_RETURN_IF_ERROR((options.blocks ? MeasureBlock : MeasureLinear)(
                options, timed, *backend, *stream, writer));
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
  app.add_flag("--blocks", options.blocks,
               "Gated blocks of so many inputs (--in) and values in between (--out), as one op and "
               "as several");
  app.add_flag("--json", options.json);
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = Run(options);
  if (!status.ok()) std::cerr << "linear-lab: " << status << "\n";
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace annulus::bench

int main(int argc, char** argv) { return annulus::bench::Main(argc, argv); }
