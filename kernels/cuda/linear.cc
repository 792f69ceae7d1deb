// Weights and their products, on the host side.
#include "kernels/cuda/sm80/linear.h"

#include <cstring>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/base/row_converter.h"
#include "kernels/base/status_macros.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/error.h"
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

// bf16 weights and many rows: inputs are rounded into the stream's scratch, the library multiplies.
absl::Status LinearByLibrary(CudaStream& stream, Products& products, const LinearParams& params) {
  const PackedMatrix& weight = *params.weight;
  const int64_t depth = RowBytes(DType::kBF16, weight.in_features) / 2;
  const auto input_bytes = static_cast<size_t>(params.input.rows * depth * 2 + 255) / 256 * 256;
  ANNULUS_ASSIGN_OR_RETURN(std::byte* const scratch,
                           stream.Scratch(input_bytes + Products::kWorkspaceBytes));
  auto* const rounded = reinterpret_cast<uint16_t*>(scratch);
  ANNULUS_RETURN_IF_ERROR(StatusOf(LaunchRoundRows(stream.handle(), {params.input, depth, rounded}),
                                   "rounding inputs"));
  Product product;
  product.rows = params.input.rows;
  product.out = weight.out_features;
  product.in = weight.in_features;
  product.input = rounded;
  product.weight = weight.storage.data();
  product.depth = depth;
  product.bias = params.bias;
  product.output = params.output.data;
  product.stride = params.output.stride;
  product.accumulate = params.accumulate;
  return products.Multiply(stream.handle(), product, scratch + input_bytes);
}

}  // namespace

absl::StatusOr<PackedMatrix> CreateMatrix(Backend& backend, int64_t out, int64_t in, DType dtype) {
  ANNULUS_RETURN_IF_ERROR(CheckMatrixShape(out, in));
  PackedMatrix packed;
  packed.out_features = out;
  packed.in_features = in;
  packed.dtype = dtype;
  ANNULUS_ASSIGN_OR_RETURN(
      packed.storage,
      backend.Allocate(static_cast<size_t>(ScalesBegin(packed) + out * ScaleBytes(dtype, in))));
  return packed;
}

// Rows are converted on the host, some at a time, and then copied.
absl::Status PackRows(PackedMatrix& matrix, int64_t first_row, const HostTensorView& source,
                      QuantizationError* error) {
  CheckPackRows(matrix, first_row, source);
  constexpr int64_t kRowsAtOnce = 64;
  const int64_t row_bytes = RowBytes(matrix.dtype, matrix.in_features);
  const int64_t scale_bytes = ScaleBytes(matrix.dtype, matrix.in_features);
  RowConverter converter(source, matrix.dtype);
  std::vector<std::byte> values(static_cast<size_t>(kRowsAtOnce * row_bytes));
  std::vector<std::byte> scales(static_cast<size_t>(kRowsAtOnce * scale_bytes));
  for (int64_t begin = 0; begin < source.rows; begin += kRowsAtOnce) {
    const int64_t count = std::min(kRowsAtOnce, source.rows - begin);
    for (int64_t r = 0; r < count; ++r) {
      ANNULUS_RETURN_IF_ERROR(converter.Convert(begin + r, values.data() + r * row_bytes,
                                                scales.data() + r * scale_bytes, error));
    }
    const int64_t row = first_row + begin;
    ANNULUS_RETURN_IF_ERROR(CopyNow(matrix.storage.data() + row * row_bytes, values.data(),
                                    static_cast<size_t>(count * row_bytes)));
    if (scale_bytes == 0) continue;
    ANNULUS_RETURN_IF_ERROR(CopyNow(matrix.storage.data() + ScalesBegin(matrix) + row * scale_bytes,
                                    scales.data(), static_cast<size_t>(count * scale_bytes)));
  }
  return absl::OkStatus();
}

absl::Status Linear(Stream& stream, const LinearParams& params) {
  CheckLinear(params);
  const LinearArguments arguments{params.input, ViewOf(*params.weight), params.bias, params.output,
                                  params.accumulate};
  CudaStream& own = AsCudaStream(stream);
  const StreamHandle handle = own.handle();
  const DType dtype = params.weight->dtype;
  if (dtype == DType::kBF16 && params.input.rows >= kLibraryRows && own.products() != nullptr) {
    return LinearByLibrary(own, *own.products(), params);
  }
  const bool exact = dtype == DType::kF32 || dtype == DType::kF16;
  if (params.input.rows <= kFewRows) {
    const FewRowsArguments few{arguments,
                               FewRowsTiles(arguments.weight.out_features, !exact, own.device())};
    return StatusOf(exact ? LaunchFewRowsFloat(handle, few) : LaunchFewRowsTensor(handle, few),
                    "linear of few rows");
  }
  if (exact) {
    return StatusOf(LaunchLinearFloat(handle, arguments), "linear");
  }
  return StatusOf(LaunchLinearTensor(handle, arguments), "linear");
}

absl::Status Embed(Stream& stream, const EmbedParams& params) {
  CheckEmbed(params);
  if (params.ids.empty()) return absl::OkStatus();
  CudaStream& own = AsCudaStream(stream);
  ANNULUS_ASSIGN_OR_RETURN(const int32_t* const ids, own.UploadOne(params.ids));
  return StatusOf(LaunchEmbed(own.handle(), {ViewOf(*params.table), ids, params.output}), "embed");
}

}  // namespace annulus::cuda
