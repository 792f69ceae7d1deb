#include "kernels/cpu/simd/dot_linear.h"

#include <algorithm>

#include "absl/container/inlined_vector.h"
#include "kernels/base/quantize.h"
#include "kernels/base/status_macros.h"
#include "kernels/cpu/simd/ops.h"
#include "kernels/ops/checks.h"

namespace annulus::cpu {
namespace {

// Packed input of the rows that are multiplied together; more rows take several turns.
constexpr int64_t kPackedBytes = int64_t{4} << 20;
constexpr int64_t kLine = 64;

// Rows of a part among rows [first, first + rows) of the input.
int64_t RowsOf(const LinearParams& part, int64_t first, int64_t rows) {
  return std::clamp<int64_t>(part.input.rows - first, 0, rows);
}

const ConstMatrixView& LongestInput(std::span<const LinearParams> parts) {
  return std::max_element(parts.begin(), parts.end(),
                          [](const auto& a, const auto& b) { return a.input.rows < b.input.rows; })
      ->input;
}

// In bf16, the scale of an fp8 row would have to multiply the sums.
bool IsServed(const DotKernels& dot, const LinearParams& part) {
  return part.activations != Activations::kFp8 &&
         dot.linear[static_cast<int>(part.weight->dtype)] != nullptr;
}

}  // namespace

bool AreAlike(const DotKernels& dot, std::span<const LinearParams> parts) {
  return std::all_of(parts.begin(), parts.end(), [&](const LinearParams& part) {
    return IsServed(dot, part) && part.weight->dtype == parts[0].weight->dtype &&
           part.activations == parts[0].activations;
  });
}

DotProducts::DotProducts(const DotKernels& dot, std::span<const LinearParams> parts)
    : dot_(dot),
      parts_(parts),
      input_(LongestInput(parts)),
      dtype_(parts[0].weight->dtype),
      layout_(LayoutOf(dtype_, parts[0].weight->in_features, Bf16Order::kPairs)),
      int8_(parts[0].activations == Activations::kInt8),
      group_(QuantizedGroup(dtype_)),
      pack_(int8_ ? dot.pack_int8_row[static_cast<int>(dtype_)]
                  : dot.pack_fixed_row[static_cast<int>(dtype_)]),
      multiply_((int8_ ? dot.linear_int8 : dot.linear)[static_cast<int>(dtype_)]),
      // An odd number of cache lines: neighbouring rows then lie in different cache sets.
      stride_((CeilDiv(RowBytes(), kLine) | 1) * kLine),
      most_rows_(std::max<int64_t>(1, kPackedBytes / stride_ / dot.task_rows) * dot.task_rows) {}

absl::Status DotProducts::Run(CpuStream& stream) const {
  if (rows() == 0) return absl::OkStatus();
  const int64_t workspaces = stream.threads() * workspace_bytes();
  ANNULUS_ASSIGN_OR_RETURN(std::byte* const scratch,
                           stream.Scratch(workspaces + PackedBytes(std::min(rows(), most_rows_))));
  std::byte* const packed = scratch + workspaces;
  for (int64_t row = 0; row < rows(); row += most_rows_) {
    const int64_t count = std::min(most_rows_, rows() - row);
    Pack(stream, row, count, packed);
    MultiplyRows(stream, row, count, packed, scratch);
  }
  return absl::OkStatus();
}

absl::Status DotProducts::RunPacked(CpuStream& stream, const std::byte* packed) const {
  ANNULUS_ASSIGN_OR_RETURN(std::byte* const workspaces,
                           stream.Scratch(stream.threads() * workspace_bytes()));
  for (int64_t row = 0; row < rows(); row += most_rows_) {
    MultiplyRows(stream, row, std::min(most_rows_, rows() - row), packed + row * stride_,
                 workspaces);
  }
  return absl::OkStatus();
}

int64_t DotProducts::workspace_bytes() const { return RoundUp(dot_.workspace_bytes, kLine); }

int64_t DotProducts::PackedBytes(int64_t rows) const {
  return RoundUp(rows, dot_.row_multiple) * stride_;
}

void DotProducts::Pack(CpuStream& stream, int64_t first, int64_t rows, std::byte* packed) const {
  stream.ParallelRows(rows, input_.cols, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) PackRow(input_.row(first + r), packed + r * stride_);
  });
}

// Inputs of one scale in fixed point.
int64_t DotProducts::FixedGroup() const { return group_ > 0 ? group_ : kFixedGroup; }

int64_t DotProducts::RowBytes() const {
  if (int8_) return layout_.depth + 4 + (group_ > 0 ? layout_.depth / group_ * 4 : 0);
  return layout_.depth * 2 + (pack_ != nullptr ? layout_.depth / FixedGroup() * 8 : 0);
}

void DotProducts::PackRow(const float* input, std::byte* packed) const {
  const int64_t inputs = parts_[0].weight->in_features;
  if (pack_ != nullptr) {
    pack_(input, inputs, layout_.depth, FixedGroup(), packed);
  } else {
    dot_.pack_row(input, inputs, layout_.depth, packed);
  }
}

void DotProducts::PackColumns(const float* input, int64_t column, int64_t count,
                              std::byte* packed) const {
  const bool is_end = column + count == parts_[0].weight->in_features;
  dot_.pack_row(input, count, is_end ? layout_.depth - column : count,
                packed + column * int64_t{sizeof(Bf16)});
}

// Tasks of `columns` columns of a part alone.
int64_t DotProducts::TasksOf(const LinearParams& part, int64_t first, int64_t rows,
                             int64_t columns) const {
  return CeilDiv(RowsOf(part, first, rows), dot_.task_rows) *
         CeilDiv(part.weight->out_features, columns);
}

// Rows [first, first + rows) of every part, which lie packed at `packed`.
void DotProducts::MultiplyRows(CpuStream& stream, int64_t first, int64_t rows,
                               const std::byte* packed, std::byte* workspaces) const {
  const int64_t columns = TaskColumns(dot_.task_columns, stream.threads(), [&](int64_t width) {
    int64_t tasks = 0;
    for (const LinearParams& part : parts_) tasks += TasksOf(part, first, rows, width);
    return tasks;
  });
  absl::InlinedVector<int64_t, 4> ends;  // of the parts' tasks
  for (const LinearParams& part : parts_) {
    ends.push_back((ends.empty() ? 0 : ends.back()) + TasksOf(part, first, rows, columns));
  }
  // Few rows wait for weights, so kernels ask for those of the next columns.
  stream.ParallelRuns(ends.back(), [&](int64_t index, int thread) {
    size_t i = 0;
    while (index >= ends[i]) ++i;
    MultiplyTask(parts_[i], first, RowsOf(parts_[i], first, rows),
                 index - (i == 0 ? 0 : ends[i - 1]), columns, packed,
                 workspaces + thread * workspace_bytes());
  });
}

void DotProducts::MultiplyTask(const LinearParams& part, int64_t first, int64_t rows, int64_t index,
                               int64_t columns, const std::byte* packed,
                               std::byte* workspace) const {
  // Row blocks of the same columns are neighbours, so that their weights are still in a cache.
  const int64_t row_blocks = CeilDiv(rows, dot_.task_rows);
  const int64_t row = index % row_blocks * dot_.task_rows;
  const int64_t column = index / row_blocks * columns;
  DotTask task = TaskOf(part, packed + row * stride_, std::min<int64_t>(dot_.task_rows, rows - row),
                        column, columns);
  task.output = part.output.row(first + row) + column;
  task.output_stride = part.output.stride;
  task.accumulate = part.accumulate;
  task.workspace = workspace;
  multiply_(task);
}

DotTask DotProducts::TaskOf(const LinearParams& part, const std::byte* packed, int64_t rows,
                            int64_t column, int64_t columns) const {
  const PackedMatrix& weight = *part.weight;
  DotTask task = {};
  task.input = packed;
  task.input_stride = stride_;
  task.rows = static_cast<int>(rows);
  task.panels = weight.storage.data() + column / kPanel * layout_.panel_bytes;
  task.panel_bytes = layout_.panel_bytes;
  task.scales = layout_.scales;
  task.group = group_;
  task.depth = layout_.depth;
  task.columns = static_cast<int>(std::min(columns, weight.out_features - column));
  task.bias = part.bias == nullptr ? nullptr : part.bias + column;
  return task;
}

absl::Status DotLinears(const DotKernels& dot, const SimdKernels& isa, CpuStream& stream,
                        std::span<const LinearParams> parts) {
  CheckLinears(parts);
  if (AreAlike(dot, parts)) return DotProducts(dot, parts).Run(stream);
  for (const LinearParams& part : parts) {
    ANNULUS_RETURN_IF_ERROR(IsServed(dot, part) ? DotProducts(dot, {&part, 1}).Run(stream)
                                                : Linear(isa, stream, part));
  }
  return absl::OkStatus();
}

}  // namespace annulus::cpu
