// Products and embeddings of the SIMD path.
#include <algorithm>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/cpu/simd/ops.h"
#include "kernels/ops/checks.h"

namespace annulus::cpu {
namespace {

// The inputs as kFp8 rounds them, but no narrower than float32: code * scale.
absl::StatusOr<ConstMatrixView> RoundInputs(CpuStream& stream, const ConstMatrixView& input) {
  const int64_t count = input.rows * input.cols;
  ANNULUS_ASSIGN_OR_RETURN(std::byte* const scratch,
                           stream.Scratch(static_cast<size_t>(count) * sizeof(float)));
  const MatrixView rounded{reinterpret_cast<float*>(scratch), input.rows, input.cols, input.cols};
  stream.ParallelRows(input.rows, input.cols, [&](int64_t begin, int64_t end) {
    std::vector<Float8E4M3> codes(static_cast<size_t>(input.cols));
    for (int64_t r = begin; r < end; ++r) {
      const float scale = RoundToFloat8({input.row(r), codes.size()}, codes);
      ConvertToFloat(DType::kF8E4M3, codes.data(), rounded.row(r), codes.size());
      for (int64_t i = 0; i < input.cols; ++i) rounded.row(r)[i] *= scale;
    }
  });
  return ConstMatrixView(rounded);
}

absl::Status LinearFloat(const SimdKernels& isa, CpuStream& stream, const LinearParams& params) {
  const PackedMatrix& weight = *params.weight;
  const auto kernel = isa.linear[static_cast<int>(weight.dtype)];
  const WeightLayout layout = LayoutOf(weight.dtype, weight.in_features, Bf16Order::kSingle);
  const int64_t rows = params.input.rows;
  const int64_t row_blocks = CeilDiv(rows, kLinearRows);
  const int64_t column_blocks = CeilDiv(weight.out_features, kLinearColumns);
  // Row blocks of the same columns are neighbours, so that their weights are still in a cache.
  stream.ParallelFor(row_blocks * column_blocks, [&](int64_t index, int) {
    const int64_t row = index % row_blocks * kLinearRows;
    const int64_t column = index / row_blocks * kLinearColumns;
    LinearTask task;
    task.input = params.input.row(row);
    task.input_stride = params.input.stride;
    task.rows = static_cast<int>(std::min<int64_t>(kLinearRows, rows - row));
    task.panels = weight.storage.data() + column / kPanel * layout.panel_bytes;
    task.panel_bytes = layout.panel_bytes;
    task.scales = layout.scales;
    task.group = QuantizedGroup(weight.dtype);
    task.depth = weight.in_features;
    task.columns =
        static_cast<int>(std::min<int64_t>(kLinearColumns, weight.out_features - column));
    task.bias = params.bias == nullptr ? nullptr : params.bias + column;
    task.output = params.output.row(row) + column;
    task.output_stride = params.output.stride;
    task.accumulate = params.accumulate;
    kernel(task);
  });
  return absl::OkStatus();
}

}  // namespace

absl::Status Linear(const SimdKernels& isa, CpuStream& stream, const LinearParams& params) {
  CheckLinear(params);
  ANNULUS_CHECK(params.activations != Activations::kInt8);
  if (params.activations == Activations::kFloat) return LinearFloat(isa, stream, params);
  LinearParams rounded = params;
  ANNULUS_ASSIGN_OR_RETURN(rounded.input, RoundInputs(stream, params.input));
  return LinearFloat(isa, stream, rounded);
}

absl::Status Embed(CpuStream& stream, const EmbedParams& params, Bf16Order order) {
  CheckEmbed(params);
  const int64_t rows = params.ids.size();
  // A gathered element costs a cache line each.
  const int64_t cost = kPanel * params.table->in_features;
  stream.ParallelRows(rows, cost, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      UnpackRow(*params.table, params.ids[r], order, params.output.row(r));
    }
  });
  return absl::OkStatus();
}

}  // namespace annulus::cpu
