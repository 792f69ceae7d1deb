#ifndef ANNULUS_KERNELS_CPU_SIMD_DOT_LINEAR_H_
#define ANNULUS_KERNELS_CPU_SIMD_DOT_LINEAR_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/cpu/host/cpu_stream.h"
#include "kernels/cpu/simd/dot_kernels.h"
#include "kernels/cpu/simd/weight_layout.h"
#include "kernels/ops/gated_block.h"
#include "kernels/ops/linear.h"

namespace annulus::cpu {

// OpTable::linears with dot products of bf16 pairs. Weights that `dot` does not support (f32, f16)
// go through `isa`.
absl::Status DotLinears(const DotKernels& dot, const SimdKernels& isa, CpuStream& stream,
                        std::span<const LinearParams> parts);

// OpTable::gated_block. If `dot` does not support a weight, or the first products differ in their
// dtypes or activations, it calls the separate ops.
absl::Status DotGatedBlock(const DotKernels& dot, const SimdKernels& isa, CpuStream& stream,
                           const GatedBlockParams& params);

// Whether `parts` can be the products of one DotProducts: `dot` supports them, and they want the
// same packed rows.
bool AreAlike(const DotKernels& dot, std::span<const LinearParams> parts);

// Products of one input, whose rows are packed once for all of them. The arguments must outlive it,
// and AreAlike(dot, parts).
class DotProducts {
 public:
  // Columns of a task are a power of two times this, except at the end of the matrix.
  static constexpr int64_t kFewestColumns = 64;

  DotProducts(const DotKernels& dot, std::span<const LinearParams> parts);

  // Packs the input and computes all outputs.
  absl::Status Run(CpuStream& stream) const;
  // Computes all outputs from rows that lie packed at `packed`: see PackedBytes.
  absl::Status RunPacked(CpuStream& stream, const std::byte* packed) const;

  // The most rows of any part.
  int64_t rows() const { return input_.rows; }
  // Rows that are packed together if Run packs them; a multiple of DotKernels::task_rows. More rows
  // take several turns.
  int64_t most_rows() const { return most_rows_; }
  // Bytes from one packed row to the next.
  int64_t stride() const { return stride_; }
  // Bytes of `rows` packed rows, aligned to 64. The kernels may read all of them.
  int64_t PackedBytes(int64_t rows) const;
  // Packs rows [first, first + rows) of the input.
  void Pack(CpuStream& stream, int64_t first, int64_t rows, std::byte* packed) const;

  // Whether a packed row is its inputs as bf16 and nothing else, so that its columns can be packed
  // one piece after the other.
  bool packs_columns() const { return pack_ == nullptr; }
  // Packs columns [column, column + count) of the row at `packed`, from values that start at
  // `input`. `column` is a multiple of 32, and so is `count`, except at the row's end.
  void PackColumns(const float* input, int64_t column, int64_t count, std::byte* packed) const;

  // Columns of a task, at most `most`: so many that the threads get about equal shares of
  // `tasks_of(columns)` tasks.
  template <class TasksOf>
  static int64_t TaskColumns(int64_t most, int64_t threads, const TasksOf& tasks_of) {
    constexpr int64_t kTasksPerThread = 6;
    int64_t columns = most;
    while (columns > kFewestColumns && tasks_of(columns) < kTasksPerThread * threads) columns /= 2;
    return columns;
  }
  // One task of a part: `rows` packed rows from `packed` on, and at most `columns` columns from
  // `column` on. The caller sets where the result goes (output, output_stride, accumulate), and the
  // workspace.
  DotTask TaskOf(const LinearParams& part, const std::byte* packed, int64_t rows, int64_t column,
                 int64_t columns) const;
  void Multiply(const DotTask& task) const { multiply_(task); }
  // Bytes of a task's workspace, aligned to 64.
  int64_t workspace_bytes() const;

 private:
  int64_t FixedGroup() const;
  int64_t RowBytes() const;
  void PackRow(const float* input, std::byte* packed) const;
  int64_t TasksOf(const LinearParams& part, int64_t first, int64_t rows, int64_t columns) const;
  void MultiplyRows(CpuStream& stream, int64_t first, int64_t rows, const std::byte* packed,
                    std::byte* workspaces) const;
  void MultiplyTask(const LinearParams& part, int64_t first, int64_t rows, int64_t index,
                    int64_t columns, const std::byte* packed, std::byte* workspace) const;

  const DotKernels& dot_;
  const std::span<const LinearParams> parts_;
  const ConstMatrixView input_;  // of the part with the most rows
  const DType dtype_;
  const WeightLayout layout_;
  const bool int8_;
  const int64_t group_;
  void (*const pack_)(const float*, int64_t, int64_t, int64_t, void*);  // null: as bf16
  void (*const multiply_)(const DotTask&);
  const int64_t stride_;  // an odd number of cache lines
  const int64_t most_rows_;
};

}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_SIMD_DOT_LINEAR_H_
