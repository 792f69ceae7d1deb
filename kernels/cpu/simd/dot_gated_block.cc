// A gated block whose intermediate values never leave a thread's cache, but for the activated ones.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/base/status_macros.h"
#include "kernels/cpu/simd/dot_linear.h"
#include "kernels/cpu/simd/ops.h"
#include "kernels/ops/checks.h"

namespace annulus::cpu {
namespace {

constexpr int64_t kLine = 64;

// Where activated rows lie as `down` packs its input: in the memory of `output`, which nobody reads
// as float32 then. Null if `down` cannot pack a row piece by piece, or the rows do not fit there.
std::byte* PackedPlace(const DotProducts& down, const MatrixView& output) {
  // With other columns between the rows, the memory is not all ours.
  if (!down.packs_columns() || output.stride != output.cols) return nullptr;
  void* place = output.data;
  auto space = static_cast<size_t>(output.rows * output.cols) * sizeof(float);
  return static_cast<std::byte*>(
      std::align(kLine, static_cast<size_t>(down.PackedBytes(output.rows)), place, space));
}

// Computes gate and up task by task, both for the same rows and columns, to a buffer of the thread.
// From there the activation goes to `down`'s packed input, or to the first output as float32.
class GatedBlock {
 public:
  GatedBlock(const DotKernels& dot, const SimdKernels& isa, const GatedBlockParams& params)
      : dot_(dot),
        params_(params),
        activate_(isa.gated_mul_row[static_cast<int>(params.activation)]),
        inner_(dot, params.products),
        down_(dot, {&params.down, 1}),
        output_(params.products.front().output),
        packed_output_(PackedPlace(down_, output_)),
        products_(static_cast<int64_t>(params.products.size())),
        // Together, the products have the columns of one product's task, if that is wide.
        most_columns_(std::max(DotProducts::kFewestColumns, dot.task_columns / products_)) {}

  absl::Status Run(CpuStream& stream) const {
    if (inner_.rows() == 0) return absl::OkStatus();
    const int64_t most_rows = std::min(inner_.rows(), inner_.most_rows());
    const int64_t workspaces = stream.threads() * ThreadBytes();
    ANNULUS_ASSIGN_OR_RETURN(std::byte* const scratch,
                             stream.Scratch(workspaces + inner_.PackedBytes(most_rows)));
    std::byte* const packed = scratch + workspaces;
    for (int64_t row = 0; row < inner_.rows(); row += most_rows) {
      const int64_t count = std::min(most_rows, inner_.rows() - row);
      inner_.Pack(stream, row, count, packed);
      Activate(stream, row, count, packed, scratch);
    }
    const DeviceBuffer& next = params_.down.weight->storage;
    const std::span<const std::byte> range(next.data(), next.size());
    stream.WillRead({&range, 1});
    return packed_output_ == nullptr ? down_.Run(stream) : down_.RunPacked(stream, packed_output_);
  }

 private:
  // Rows [row, row + rows) of the output by at most most_columns_ columns from `column` on.
  struct Piece {
    int64_t row;
    int64_t rows;
    int64_t column;
    int64_t columns;
    const std::byte* packed;  // input of the first row
  };

  // Floats of a product's results in a task.
  int64_t ResultCount() const { return dot_.task_rows * most_columns_; }
  // A task's workspace, then the results of each product.
  int64_t ThreadBytes() const {
    return inner_.workspace_bytes() +
           products_ * ResultCount() * static_cast<int64_t>(sizeof(float));
  }

  // Rows [first, first + rows) of the output from the input rows that lie packed at `packed`.
  void Activate(CpuStream& stream, int64_t first, int64_t rows, const std::byte* packed,
                std::byte* scratch) const {
    // Row blocks of the same columns are neighbours, so that their weights are still in a cache.
    const int64_t row_blocks = CeilDiv(rows, dot_.task_rows);
    const auto tasks = [&](int64_t columns) { return row_blocks * CeilDiv(output_.cols, columns); };
    const int64_t columns = DotProducts::TaskColumns(most_columns_, stream.threads(), tasks);
    stream.ParallelRuns(tasks(columns), [&](int64_t index, int thread) {
      const int64_t row = index % row_blocks * dot_.task_rows;
      const int64_t column = index / row_blocks * columns;
      ActivatePiece({first + row, std::min<int64_t>(dot_.task_rows, rows - row), column,
                     std::min(columns, output_.cols - column), packed + row * inner_.stride()},
                    scratch + thread * ThreadBytes());
    });
  }

  void ActivatePiece(const Piece& piece, std::byte* scratch) const {
    float* const gate = reinterpret_cast<float*>(scratch + inner_.workspace_bytes());
    float* const up = gate + (products_ - 1) * ResultCount();  // `gate` if there is no other
    float* result = gate;
    for (const LinearParams& product : params_.products) {
      DotTask task = inner_.TaskOf(product, piece.packed, piece.rows, piece.column, piece.columns);
      task.output = result;
      task.output_stride = most_columns_;
      task.workspace = scratch;
      inner_.Multiply(task);
      result += ResultCount();
    }
    for (int64_t r = 0; r < piece.rows; ++r) {
      float* const own = gate + r * most_columns_;
      float* const to = packed_output_ != nullptr ? own : output_.row(piece.row + r) + piece.column;
      activate_(own, up + r * most_columns_, to, piece.columns, params_.alpha, params_.limit);
      if (packed_output_ == nullptr) continue;
      down_.PackColumns(to, piece.column, piece.columns,
                        packed_output_ + (piece.row + r) * down_.stride());
    }
  }

  const DotKernels& dot_;
  const GatedBlockParams& params_;
  void (*const activate_)(const float*, const float*, float*, int64_t, float, float);
  const DotProducts inner_;
  const DotProducts down_;
  const MatrixView output_;         // of the first product
  std::byte* const packed_output_;  // null: the activated rows go to output_
  const int64_t products_;
  const int64_t most_columns_;
};

}  // namespace

absl::Status DotGatedBlock(const DotKernels& dot, const SimdKernels& isa, CpuStream& stream,
                           const GatedBlockParams& params) {
  CheckGatedBlock(params);
  if (AreAlike(dot, params.products) && AreAlike(dot, {&params.down, 1})) {
    return GatedBlock(dot, isa, params).Run(stream);
  }
  ANNULUS_RETURN_IF_ERROR(DotLinears(dot, isa, stream, params.products));
  ANNULUS_RETURN_IF_ERROR(GatedMul(isa, stream, params.gated_mul()));
  return DotLinears(dot, isa, stream, {&params.down, 1});
}

}  // namespace annulus::cpu
