#include "kernels/cpu/dot_linear.h"

#include <algorithm>

#include "kernels/base/quantize.h"
#include "kernels/base/status_macros.h"
#include "kernels/cpu/simd_ops.h"
#include "kernels/ops/checks.h"

namespace annulus::cpu {
namespace {

// Packed input of the rows that are multiplied together; more rows take several turns.
constexpr int64_t kPackedBytes = int64_t{4} << 20;
constexpr int64_t kLine = 64;

class Product {
 public:
  Product(const DotKernels& dot, const LinearParams& params)
      : dot_(dot),
        params_(params),
        weight_(*params.weight),
        layout_(LayoutOf(weight_.dtype, weight_.in_features, Bf16Order::kPairs)),
        int8_(params.activations == Activations::kInt8),
        group_(QuantizedGroup(weight_.dtype)),
        fixed_(dot.pack_fixed_row[static_cast<int>(weight_.dtype)]),
        // An odd number of cache lines: neighbouring rows then lie in different cache sets.
        stride_((CeilDiv(RowBytes(), kLine) | 1) * kLine),
        most_rows_(std::max<int64_t>(1, kPackedBytes / stride_ / dot.task_rows) * dot.task_rows) {}

  absl::Status Run(CpuStream& stream) const {
    const int64_t rows = params_.input.rows;
    if (rows == 0) return absl::OkStatus();
    const int64_t workspaces = stream.threads() * RoundUp(dot_.workspace_bytes, kLine);
    const int64_t packed_rows = RoundUp(std::min(rows, most_rows_), dot_.row_multiple);
    ANNULUS_ASSIGN_OR_RETURN(std::byte * scratch,
                             stream.Scratch(workspaces + packed_rows * stride_));
    std::byte* const packed = scratch + workspaces;
    for (int64_t row = 0; row < rows; row += most_rows_) {
      const int64_t count = std::min(most_rows_, rows - row);
      stream.ParallelRows(count, weight_.in_features, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          PackRow(params_.input.row(row + r), packed + r * stride_);
        }
      });
      Multiply(stream, row, count, packed, scratch);
    }
    return absl::OkStatus();
  }

 private:
  // Inputs of one scale in fixed point.
  int64_t FixedGroup() const { return group_ > 0 ? group_ : kFixedGroup; }

  int64_t RowBytes() const {
    if (int8_) return layout_.depth + 4;
    return layout_.depth * 2 + (fixed_ != nullptr ? layout_.depth / FixedGroup() * 8 : 0);
  }

  void PackRow(const float* input, std::byte* packed) const {
    if (fixed_ != nullptr && !int8_) {
      fixed_(input, weight_.in_features, layout_.depth, FixedGroup(), packed);
    } else {
      (int8_ ? dot_.quantize_row : dot_.pack_row)(input, weight_.in_features, layout_.depth,
                                                  packed);
    }
  }

  // Columns of a task: wide, but not so wide that the threads would get unequal shares.
  int64_t TaskColumns(int64_t row_blocks, int64_t threads) const {
    constexpr int64_t kFewestColumns = 64;
    constexpr int64_t kTasksPerThread = 6;
    int64_t columns = dot_.task_columns;
    while (columns > kFewestColumns &&
           row_blocks * CeilDiv(weight_.out_features, columns) < kTasksPerThread * threads) {
      columns /= 2;
    }
    return columns;
  }

  // Rows [first, first + rows), which lie packed at `packed`.
  void Multiply(CpuStream& stream, int64_t first, int64_t rows, const std::byte* packed,
                std::byte* workspaces) const {
    const auto kernel = int8_ ? dot_.linear_int8 : dot_.linear[static_cast<int>(weight_.dtype)];
    const int64_t row_blocks = CeilDiv(rows, dot_.task_rows);
    const int64_t columns = TaskColumns(row_blocks, stream.threads());
    const int64_t column_blocks = CeilDiv(weight_.out_features, columns);
    // Row blocks of the same columns are neighbours, so that their weights are still in a cache;
    // few rows wait for weights, so kernels ask for those of the next columns.
    stream.ParallelRuns(row_blocks * column_blocks, [&](int64_t index, int thread) {
      const int64_t row = index % row_blocks * dot_.task_rows;
      const int64_t column = index / row_blocks * columns;
      DotTask task;
      task.input = packed + row * stride_;
      task.input_stride = stride_;
      task.rows = static_cast<int>(std::min<int64_t>(dot_.task_rows, rows - row));
      task.panels = weight_.storage.data() + column / kPanel * layout_.panel_bytes;
      task.panel_bytes = layout_.panel_bytes;
      task.scales = layout_.scales;
      task.group = group_;
      task.depth = layout_.depth;
      task.columns = static_cast<int>(std::min(columns, weight_.out_features - column));
      task.bias = params_.bias == nullptr ? nullptr : params_.bias + column;
      task.output = params_.output.row(first + row) + column;
      task.output_stride = params_.output.stride;
      task.accumulate = params_.accumulate;
      task.workspace = workspaces + thread * RoundUp(dot_.workspace_bytes, kLine);
      kernel(task);
    });
  }

  const DotKernels& dot_;
  const LinearParams& params_;
  const PackedMatrix& weight_;
  const WeightLayout layout_;
  const bool int8_;
  const int64_t group_;
  void (*const fixed_)(const float*, int64_t, int64_t, int64_t, void*);  // null: as bf16
  const int64_t stride_;
  const int64_t most_rows_;
};

}  // namespace

absl::Status DotLinear(const DotKernels& dot, const SimdKernels& isa, CpuStream& stream,
                       const LinearParams& params) {
  CheckLinear(params);
  // In bf16 the scale of a row of fp8 would be wanted behind the sums.
  if (params.activations == Activations::kFp8 ||
      dot.linear[static_cast<int>(params.weight->dtype)] == nullptr) {
    return Linear(isa, stream, params);
  }
  return Product(dot, params).Run(stream);
}

}  // namespace annulus::cpu
