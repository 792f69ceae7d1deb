// Weights and their products, on the host side.
#include "kernels/cuda/sm80/linear.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/row_converter.h"
#include "kernels/base/status_macros.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/device_waits.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/linear_ways.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/products.h"
#include "kernels/cuda/sm80/elementwise.h"
#include "kernels/cuda/tuning/linear_plan.h"
#include "kernels/ops/checks.h"

namespace annulus::cuda {
namespace {

int64_t RowBytes(DType dtype, int64_t in) {
  const int64_t padded = (in + kDepthStep - 1) / kDepthStep * kDepthStep;
  return static_cast<int64_t>(StoredRowBytes(dtype, padded));
}

int64_t ScaleBytes(DType dtype, int64_t in) {
  return IsQuantized(dtype) ? static_cast<int64_t>(QuantizedScaleBytes(dtype, in)) : 0;
}

int64_t ScalesBegin(const PackedMatrix& matrix) {
  return (matrix.out_features * RowBytes(matrix.dtype, matrix.in_features) + 63) / 64 * 64;
}

WeightView ViewOf(const PackedMatrix& matrix) {
  WeightView view{};
  view.dtype = matrix.dtype;
  view.values = matrix.storage.data();
  view.row_bytes = RowBytes(matrix.dtype, matrix.in_features);
  view.scale_bytes = ScaleBytes(matrix.dtype, matrix.in_features);
  view.scales = view.scale_bytes > 0 ? matrix.storage.data() + ScalesBegin(matrix) : nullptr;
  view.out_features = matrix.out_features;
  view.in_features = matrix.in_features;
  return view;
}

LinearArguments ArgumentsOf(const LinearParams& params) {
  return {params.input,  ViewOf(*params.weight), params.bias,
          params.output, params.accumulate,      /*input_scales=*/nullptr};
}

// Those of outputs `first` and later.
LinearArguments OutputsFrom(int64_t first, const LinearParams& params) {
  LinearArguments arguments = ArgumentsOf(params);
  WeightView& weight = arguments.weight;
  weight.out_features -= first;
  weight.values += first * weight.row_bytes;
  if (weight.scales != nullptr) weight.scales += first * weight.scale_bytes;
  if (arguments.bias != nullptr) arguments.bias += first;
  arguments.output.data += first;
  arguments.output.cols -= first;
  return arguments;
}

int LaunchWholeDepth(StreamHandle stream, const DeviceInfo&, const ManyRowsArguments& arguments) {
  return LaunchLinearTensor(stream, arguments);
}

// The input of an op's products, rounded into the stream's scratch once for all of them that want
// the same form of it: 6 bytes of traffic an element, beside products that may have few outputs.
class SharedInput {
 public:
  SharedInput(CudaStream& stream, const LinearWays& ways) : stream_(stream), ways_(ways) {}

  CudaStream& stream() const { return stream_; }
  const LinearWays& ways() const { return ways_; }

  // Before BeginWork of a product that will Round to codes: if the stream keeps back the op that
  // makes its input, that op is then part of the rounding.
  void TakeRows(const ConstMatrixView& input) {
    if (ways_.coded_rows != nullptr) rows_ = stream_.TakeRows(input);
  }

  // `wanted.output` and `wanted.scales` lie in the scratch, before whatever else a product writes
  // there.
  absl::Status Round(const RoundRowsArguments& wanted) {
    const bool grown = scratch_bytes_ != stream_.scratch_bytes();
    if (!grown && wanted.kind == last_.kind && wanted.input.rows == last_.input.rows &&
        wanted.depth == last_.depth && wanted.output == last_.output) {
      return absl::OkStatus();
    }
    last_ = wanted;
    scratch_bytes_ = stream_.scratch_bytes();
    if (rows_.has_value()) {
      const RowsOp op = *std::exchange(rows_, std::nullopt);
      return StatusOf(ways_.coded_rows(stream_.handle(), {op, wanted}), "rows and their codes");
    }
    return StatusOf(LaunchRoundRows(stream_.handle(), wanted), "rounding inputs");
  }

 private:
  CudaStream& stream_;
  const LinearWays ways_;
  RoundRowsArguments last_{};
  size_t scratch_bytes_ = 0;  // when that was launched
  std::optional<RowsOp> rows_;
};

// Whether weights are multiplied in float32.
bool InFloat(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF16; }

FewRowsArguments FewRowsOf(const LinearArguments& arguments, const ChosenExperts& choices,
                           const DeviceInfo& device) {
  const bool exact = InFloat(arguments.weight.dtype);
  const int64_t products = choices.experts == nullptr ? 1 : arguments.output.rows;
  const bool streamed = !exact && choices.experts == nullptr;
  const int tiles = FewRowsTiles(products * arguments.weight.out_features, !exact, device);
  return {arguments, choices, tiles,
          FewRowsBlocks(arguments.weight.out_features, tiles, streamed, device)};
}

// Of the choices, or without any of all rows.
absl::Status LinearOfChoices(CudaStream& stream, const LinearArguments& arguments,
                             const ChosenExperts& choices) {
  const FewRowsArguments few = FewRowsOf(arguments, choices, stream.device());
  return StatusOf(InFloat(arguments.weight.dtype) ? LaunchFewRowsFloat(stream.handle(), few)
                                                  : LaunchFewRowsTensor(stream.handle(), few),
                  "linear of few rows");
}

absl::Status LinearOfFewRows(SharedInput& shared, const LinearArguments& arguments) {
  CudaStream& stream = shared.stream();
  if (InFloat(arguments.weight.dtype)) return LinearOfChoices(stream, arguments, {});
  return StatusOf(shared.ways().few_rows(stream.handle(), stream.device(), arguments),
                  "linear of few rows");
}

// Inputs are rounded, with `codes` to those of Activations::kFp8, which bf16 holds exactly.
absl::Status LinearOfManyRows(SharedInput& shared, LinearArguments arguments, bool codes) {
  CudaStream& stream = shared.stream();
  const WeightView& weight = arguments.weight;
  const int64_t rows = arguments.input.rows;
  const int64_t depth = (weight.in_features + kRoundedDepth - 1) / kRoundedDepth * kRoundedDepth;
  const ProductScratch parts = ScratchOfManyRows(rows, weight.in_features, codes);
  ANNULUS_ASSIGN_OR_RETURN(std::byte* const scratch, stream.Scratch(parts.total()));
  std::byte* const inputs = scratch + parts.scales;
  RoundedRows kind = RoundedRows::kBFloat16Steps;
  if (QuantizedGroup(weight.dtype) > 0) kind = RoundedRows::kFourBitSteps;
  float* scales = nullptr;
  if (codes) {
    kind = RoundedRows::kFloat8Steps;
    scales = reinterpret_cast<float*>(scratch);
  }
  ANNULUS_RETURN_IF_ERROR(shared.Round({arguments.input, kind, depth, inputs, scales}));
  arguments.input_scales = scales;
  const int tiles = ManyRowsTiles(rows, weight.out_features, stream.device());
  return StatusOf(
      shared.ways().many_rows(stream.handle(), stream.device(), {arguments, inputs, depth, tiles}),
      "linear of many rows");
}

absl::Status LinearByKernels(SharedInput& shared, const LinearArguments& arguments) {
  if (arguments.input.rows <= kFewRows) return LinearOfFewRows(shared, arguments);
  if (!InFloat(arguments.weight.dtype)) return LinearOfManyRows(shared, arguments, false);
  return StatusOf(LaunchLinearFloat(shared.stream().handle(), arguments), "linear");
}

Product ProductOf(const LinearParams& params, int64_t depth) {
  Product product;
  product.rows = params.input.rows;
  product.out = params.weight->out_features;
  product.in = params.weight->in_features;
  product.weight = params.weight->storage.data();
  product.depth = depth;
  product.bias = params.bias;
  product.output = params.output.data;
  product.stride = params.output.stride;
  product.accumulate = params.accumulate;
  return product;
}

absl::StatusOr<bool> MultiplyByLibrary(CudaStream& stream, Products& products,
                                       const Product& product, std::byte* workspace) {
  ANNULUS_ASSIGN_OR_RETURN(const StreamHandle own, stream.HandOver(GraphCut::kLibrary));
  return products.Multiply(own, product, workspace);
}

// bf16 weights and many rows: inputs are rounded, the library multiplies where it has a way.
absl::Status LinearByLibrary(SharedInput& shared, Products& products, const LinearParams& params) {
  CudaStream& stream = shared.stream();
  const int64_t depth = RowBytes(DType::kBF16, params.weight->in_features) / 2;
  const ProductScratch parts = ScratchOfLibrary(params.input.rows, params.weight->in_features);
  ANNULUS_ASSIGN_OR_RETURN(std::byte* const scratch, stream.Scratch(parts.total()));
  Product product = ProductOf(params, depth);
  product.input = scratch;
  ANNULUS_ASSIGN_OR_RETURN(const bool served, products.Serves(product));
  if (!served) return LinearByKernels(shared, ArgumentsOf(params));
  ANNULUS_RETURN_IF_ERROR(
      shared.Round({params.input, RoundedRows::kBFloat16, depth, scratch, nullptr}));
  ANNULUS_ASSIGN_OR_RETURN(const bool done,
                           MultiplyByLibrary(stream, products, product, scratch + parts.inputs));
  return done ? absl::OkStatus() : LinearByKernels(shared, ArgumentsOf(params));
}

// Makes few rows of inputs codes, in float32.
absl::Status TakeCodes(SharedInput& shared, LinearArguments& arguments) {
  const int64_t rows = arguments.input.rows;
  const int64_t depth = (arguments.input.cols + 3) / 4 * 4;
  const ProductScratch parts = ScratchOfFewCodes(rows, arguments.input.cols);
  ANNULUS_ASSIGN_OR_RETURN(std::byte* const scratch, shared.stream().Scratch(parts.total()));
  auto* const scales = reinterpret_cast<float*>(scratch);
  auto* const codes = reinterpret_cast<float*>(scratch + parts.scales);
  ANNULUS_RETURN_IF_ERROR(
      shared.Round({arguments.input, RoundedRows::kFloat8Wide, depth, codes, scales}));
  arguments.input = {codes, rows, arguments.input.cols, depth};
  arguments.input_scales = scales;
  return absl::OkStatus();
}

absl::Status Fp8ByKernels(SharedInput& shared, const LinearParams& params) {
  LinearArguments arguments = ArgumentsOf(params);
  if (params.input.rows > kFewRows) return LinearOfManyRows(shared, arguments, true);
  ANNULUS_RETURN_IF_ERROR(TakeCodes(shared, arguments));
  return LinearOfFewRows(shared, arguments);
}

// Multiplies codes with the library. Returns false if the library does not support it; then only
// rounding has been enqueued. With `scaled` the library applies the scales. Otherwise it leaves the
// sums in the output, or in the scratch if the output is accumulated, and a kernel does the rest.
absl::StatusOr<bool> TryFp8(SharedInput& shared, Products& products, const LinearParams& params,
                            bool scaled) {
  CudaStream& stream = shared.stream();
  const WeightView weight = ViewOf(*params.weight);
  const int64_t rows = params.input.rows;
  const int64_t depth = weight.row_bytes;  // zeros from in_features on, on both sides
  const auto* const weight_scales = reinterpret_cast<const float*>(weight.scales);
  const bool aside = !scaled && params.accumulate;
  const ProductScratch parts =
      ScratchOfFp8Library(rows, weight.in_features, weight.out_features, aside);
  ANNULUS_ASSIGN_OR_RETURN(std::byte* const scratch, stream.Scratch(parts.total()));
  auto* const scales = reinterpret_cast<float*>(scratch);
  std::byte* const codes = scratch + parts.scales;
  std::byte* const sums = codes + parts.inputs;
  Product product = ProductOf(params, depth);
  product.factors = Factors::kFloat8E4M3;
  product.in = depth;
  product.input = codes;
  if (scaled) {
    product.input_scales = scales;
    product.weight_scales = weight_scales;
  } else {
    product.bias = nullptr;
    product.accumulate = false;
  }
  if (aside) {
    product.output = reinterpret_cast<float*>(sums);
    product.stride = weight.out_features;
  }
  ANNULUS_ASSIGN_OR_RETURN(const bool served, products.Serves(product));
  if (!served) return false;
  ANNULUS_RETURN_IF_ERROR(shared.Round({params.input, RoundedRows::kFloat8, depth, codes, scales}));
  ANNULUS_ASSIGN_OR_RETURN(const bool done,
                           MultiplyByLibrary(stream, products, product, sums + parts.sums));
  if (!done || scaled) return done;
  ANNULUS_RETURN_IF_ERROR(StatusOf(
      LaunchScale(stream.handle(), {{product.output, rows, weight.out_features, product.stride},
                                    1,
                                    scales,
                                    weight_scales,
                                    params.bias,
                                    params.output,
                                    params.accumulate}),
      "scaling a product"));
  return true;
}

// The library takes scales on some GPUs, and not together with a bias. Products that it does not
// support with scales it may support without; for all others there are own kernels.
absl::Status Fp8ByLibrary(SharedInput& shared, Products& products, const LinearParams& params) {
  bool done = false;
  if (Fp8ProductsOf(shared.stream().device()) == Fp8Products::kScaled && params.bias == nullptr) {
    ANNULUS_ASSIGN_OR_RETURN(done, TryFp8(shared, products, params, /*scaled=*/true));
  }
  if (!done) {
    ANNULUS_ASSIGN_OR_RETURN(done, TryFp8(shared, products, params, /*scaled=*/false));
  }
  return done ? absl::OkStatus() : Fp8ByKernels(shared, params);
}

// Quantised weights and many rows: the weights of some outputs at a time become 16-bit numbers that
// are exact (WidenArguments). The library multiplies them, and a kernel applies the scales. Own
// kernels multiply what the library refuses.
absl::Status LinearOfWidened(SharedInput& shared, Products& products, const LinearParams& params) {
  CudaStream& stream = shared.stream();
  const WeightView weight = ViewOf(*params.weight);
  const bool grouped = QuantizedGroup(weight.dtype) > 0;
  const int64_t rows = params.input.rows;
  const int64_t depth = grouped ? weight.row_bytes * 2 : weight.row_bytes;
  const bool aside = params.accumulate;
  const int64_t most = WidenedOutputs(rows, weight.out_features);
  const ProductScratch parts =
      ScratchOfWidened(rows, weight.in_features, weight.out_features, aside);
  ANNULUS_ASSIGN_OR_RETURN(std::byte* const scratch, stream.Scratch(parts.total()));
  auto* const row_scales = grouped ? reinterpret_cast<float*>(scratch) : nullptr;
  std::byte* const inputs = scratch + parts.scales;
  std::byte* const widened = inputs + parts.inputs;
  auto* const factors = reinterpret_cast<float*>(widened + parts.weights);
  std::byte* const sums = widened + parts.weights + parts.factors;
  Product product = ProductOf(params, depth);
  product.factors = grouped ? Factors::kFloat16 : Factors::kBFloat16;
  product.input = inputs;
  product.weight = widened;
  product.bias = nullptr;
  product.accumulate = false;
  int64_t first = 0;
  for (; first < weight.out_features; first += product.out) {
    product.out = std::min(most, weight.out_features - first);
    product.output = aside ? reinterpret_cast<float*>(sums) : params.output.data + first;
    if (aside) product.stride = most;
    ANNULUS_ASSIGN_OR_RETURN(bool served, products.Serves(product));
    if (!served) break;
    const RoundedRows kind = grouped ? RoundedRows::kFloat16 : RoundedRows::kBFloat16;
    ANNULUS_RETURN_IF_ERROR(shared.Round({params.input, kind, depth, inputs, row_scales}));
    ANNULUS_RETURN_IF_ERROR(StatusOf(
        LaunchWiden(stream.handle(),
                    {weight, first, product.out, reinterpret_cast<uint16_t*>(widened), factors}),
        "widening weights"));
    ANNULUS_ASSIGN_OR_RETURN(served,
                             MultiplyByLibrary(stream, products, product, sums + parts.sums));
    if (!served) break;
    const auto* const scales = reinterpret_cast<const float*>(weight.scales) + first;
    ANNULUS_RETURN_IF_ERROR(
        StatusOf(LaunchScale(stream.handle(),
                             {{product.output, rows, product.out, product.stride},
                              1,
                              row_scales,
                              grouped ? factors : scales,
                              params.bias == nullptr ? nullptr : params.bias + first,
                              {params.output.data + first, rows, product.out, params.output.stride},
                              params.accumulate}),
                 "scaling a product"));
  }
  return first < weight.out_features ? LinearByKernels(shared, OutputsFrom(first, params))
                                     : absl::OkStatus();
}

// Without the library, a row's bits do not depend on the number of rows.
absl::Status Multiply(SharedInput& shared, const LinearParams& params) {
  ANNULUS_CHECK(params.activations != Activations::kInt8);
  if (params.activations == Activations::kFp8) shared.TakeRows(params.input);
  ANNULUS_ASSIGN_OR_RETURN(const CudaStream* const own, BeginWork(shared.stream()));
  const bool many =
      shared.ways().with_library && params.input.rows >= kLibraryRows && own->products() != nullptr;
  if (params.activations == Activations::kFp8) {
    const bool library =
        many && Fp8ProductsOf(own->device()) != Fp8Products::kNone && Fp8OutputFits(params.output);
    return library ? Fp8ByLibrary(shared, *own->products(), params) : Fp8ByKernels(shared, params);
  }
  if (many && params.weight->dtype == DType::kBF16) {
    return LinearByLibrary(shared, *own->products(), params);
  }
  if (many && params.input.rows >= kWidenedRows && IsWidened(params.weight->dtype)) {
    return LinearOfWidened(shared, *own->products(), params);
  }
  return LinearByKernels(shared, ArgumentsOf(params));
}

// Products that the table's joint way takes together.
absl::Status MultiplyTogether(SharedInput& shared, std::span<const LinearParams> parts) {
  const bool codes = parts.front().activations == Activations::kFp8;
  if (codes) shared.TakeRows(parts.front().input);
  ANNULUS_ASSIGN_OR_RETURN(const CudaStream* const own, BeginWork(shared.stream()));
  std::vector<LinearArguments> products;
  for (const LinearParams& part : parts) {
    products.push_back(ArgumentsOf(part));
    if (codes) ANNULUS_RETURN_IF_ERROR(TakeCodes(shared, products.back()));
  }
  return StatusOf(shared.ways().joint.launch(shared.stream().handle(), own->device(), products),
                  "linears of the same rows");
}

// Of some rows of weights, to a device that has nothing else to do.
constexpr std::chrono::seconds kLongestCopy{60};

std::shared_ptr<std::vector<std::byte>> MakeBytes(int64_t bytes) {
  return std::make_shared<std::vector<std::byte>>(static_cast<size_t>(bytes));
}

absl::Status CopyWithin(DeviceWaits& waits, int ordinal, std::byte* to,
                        const std::shared_ptr<std::vector<std::byte>>& from, size_t bytes) {
  return waits.Call("copying weights to the GPU",
                    [=] { return CopyNow(ordinal, to, from->data(), bytes); });
}

}  // namespace

absl::StatusOr<size_t> MatrixBytes(int64_t out, int64_t in, DType dtype) {
  ANNULUS_RETURN_IF_ERROR(CheckMatrixShape(out, in));
  if (dtype == DType::kQ8_0 || dtype == DType::kQ4_0 || dtype == DType::kQ4_1) {
    return absl::UnimplementedError(
        absl::StrCat("matrices of ", DTypeName(dtype),
                     " are for CPUs; on a GPU use --weights-dtype bf16, int8 or int4_g32"));
  }
  return static_cast<size_t>(ScalesBegin({out, in, dtype, {}}) + out * ScaleBytes(dtype, in));
}

// Rows are converted on the host, some at a time, and then copied, by copies that end.
absl::Status PackRows(PackedMatrix& matrix, int64_t first_row, const HostTensorView& source,
                      QuantizationError* error) {
  CheckPackRows(matrix, first_row, source);
  constexpr int64_t kRowsAtOnce = 64;
  const int64_t row_bytes = RowBytes(matrix.dtype, matrix.in_features);
  const int64_t scale_bytes = ScaleBytes(matrix.dtype, matrix.in_features);
  RowConverter converter(source, matrix.dtype);
  DeviceWaits waits(kLongestCopy);
  const auto values = MakeBytes(kRowsAtOnce * row_bytes);
  const auto scales = MakeBytes(kRowsAtOnce * scale_bytes);
  for (int64_t begin = 0; begin < source.rows; begin += kRowsAtOnce) {
    const int64_t count = std::min(kRowsAtOnce, source.rows - begin);
    for (int64_t r = 0; r < count; ++r) {
      ANNULUS_RETURN_IF_ERROR(converter.Convert(begin + r, values->data() + r * row_bytes,
                                                scales->data() + r * scale_bytes, error));
    }
    const int64_t row = first_row + begin;
    std::byte* const to = matrix.storage.data();
    const int ordinal = matrix.storage.device();
    ANNULUS_RETURN_IF_ERROR(CopyWithin(waits, ordinal, to + row * row_bytes, values,
                                       static_cast<size_t>(count * row_bytes)));
    if (scale_bytes == 0) continue;
    ANNULUS_RETURN_IF_ERROR(CopyWithin(waits, ordinal, to + ScalesBegin(matrix) + row * scale_bytes,
                                       scales, static_cast<size_t>(count * scale_bytes)));
  }
  return absl::OkStatus();
}

int LaunchStreamed(StreamHandle stream, const DeviceInfo& device,
                   const LinearArguments& arguments) {
  return LaunchFewRowsTensor(stream, FewRowsOf(arguments, {}, device));
}

absl::Status LinearsBy(const LinearWays& ways, Stream& stream,
                       std::span<const LinearParams> parts) {
  CheckLinears(parts);
  SharedInput shared(AsCudaStream(stream), ways);
  while (!parts.empty()) {
    const size_t joint =
        ways.joint.count == nullptr ? 0 : ways.joint.count(parts, shared.stream().device());
    ANNULUS_RETURN_IF_ERROR(joint == 0 ? Multiply(shared, parts.front())
                                       : MultiplyTogether(shared, parts.first(joint)));
    parts = parts.subspan(std::max<size_t>(joint, 1));
  }
  return absl::OkStatus();
}

absl::Status Linears(Stream& stream, std::span<const LinearParams> parts) {
  return LinearsBy({.with_library = true, .many_rows = LaunchWholeDepth}, stream, parts);
}

absl::Status Linear(Stream& stream, const LinearParams& params) {
  return Linears(stream, {&params, 1});
}

absl::Status InvariantLinears(Stream& stream, std::span<const LinearParams> parts) {
  return LinearsBy({.with_library = false, .many_rows = LaunchWholeDepth}, stream, parts);
}

absl::Status InvariantLinear(Stream& stream, const LinearParams& params) {
  return InvariantLinears(stream, {&params, 1});
}

absl::Status ExpertLinear(Stream& stream, const ExpertLinearParams& params) {
  CheckExpertLinear(params);
  ANNULUS_CHECK(params.activations != Activations::kInt8);
  ANNULUS_ASSIGN_OR_RETURN(CudaStream* const own, BeginWork(stream));
  LinearArguments arguments = ArgumentsOf(
      {params.input, params.weights->matrices.front(), /*bias=*/nullptr, params.output});
  if (params.activations == Activations::kFp8) {
    SharedInput shared(*own, {.with_library = false, .many_rows = LaunchWholeDepth});
    ANNULUS_RETURN_IF_ERROR(TakeCodes(shared, arguments));
  }
  return LinearOfChoices(
      *own, arguments,
      {params.weights->addresses.as<ExpertAddress>(), params.experts, params.chosen});
}

absl::Status Embed(Stream& stream, const EmbedParams& params) {
  CheckEmbed(params);
  if (params.ids.empty()) return absl::OkStatus();
  ANNULUS_ASSIGN_OR_RETURN(CudaStream* const own, BeginWork(stream));
  ANNULUS_ASSIGN_OR_RETURN(const int32_t* const ids, own->UploadOne(params.ids));
  return StatusOf(LaunchEmbed(own->handle(), {ViewOf(*params.table), ids, params.output}), "embed");
}

}  // namespace annulus::cuda
