// Packed weights, products and embeddings of the SIMD path.
#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/cpu/checks.h"
#include "kernels/cpu/simd_ops.h"

namespace annulus::cpu {
namespace {

// Columns of a source row that are converted and interleaved together.
constexpr int64_t kPackColumns = 256;

// Interleaves `rows` rows of `columns` elements into panel order: to[i][r] = from[r][i].
template <class Element>
void Interleave(const std::byte* from, int64_t rows, int64_t columns, std::byte* to) {
  const Element* source = reinterpret_cast<const Element*>(from);
  Element* destination = reinterpret_cast<Element*>(to);
  for (int64_t i = 0; i < columns; ++i) {
    for (int64_t r = 0; r < kPanel; ++r) {
      destination[i * kPanel + r] = r < rows ? source[r * kPackColumns + i] : Element{0};
    }
  }
}

// Packs columns [begin, begin + columns) of source rows [row, row + rows) into `to`.
void PackBlock(const HostTensorView& source, DType dtype, int64_t row, int64_t rows, int64_t begin,
               int64_t columns, std::byte* to) {
  const size_t source_bytes = DTypeSize(source.dtype);
  const size_t bytes = DTypeSize(dtype);
  alignas(64) std::byte staged[kPanel * kPackColumns * sizeof(float)];
  float widened[kPackColumns];
  for (int64_t r = 0; r < rows; ++r) {
    const std::byte* from = static_cast<const std::byte*>(source.data) +
                            ((row + r) * source.cols + begin) * source_bytes;
    std::byte* const staged_row = staged + r * kPackColumns * bytes;
    if (source.dtype == dtype) {
      std::memcpy(staged_row, from, columns * bytes);
    } else {
      ConvertToFloat(source.dtype, from, widened, columns);
      ConvertFromFloat(dtype, widened, staged_row, columns);
    }
  }
  if (bytes == sizeof(uint32_t)) {
    Interleave<uint32_t>(staged, rows, columns, to);
  } else {
    Interleave<uint16_t>(staged, rows, columns, to);
  }
}

// Elements [begin, begin + count) of matrix row `row`, gathered from its panel.
template <class Element>
void GatherRow(const PackedMatrix& matrix, int64_t row, int64_t begin, int64_t count,
               std::byte* to) {
  const Element* panel =
      matrix.storage.as<Element>() + row / kPanel * matrix.in_features * kPanel + row % kPanel;
  Element* const destination = reinterpret_cast<Element*>(to);
  for (int64_t i = 0; i < count; ++i) destination[i] = panel[(begin + i) * kPanel];
}

void EmbedRow(const SimdKernels& isa, const PackedMatrix& table, int64_t id, float* output) {
  alignas(64) std::byte gathered[kPackColumns * sizeof(float)];
  for (int64_t begin = 0; begin < table.in_features; begin += kPackColumns) {
    const int64_t count = std::min(kPackColumns, table.in_features - begin);
    if (DTypeSize(table.dtype) == sizeof(uint32_t)) {
      GatherRow<uint32_t>(table, id, begin, count, gathered);
    } else {
      GatherRow<uint16_t>(table, id, begin, count, gathered);
    }
    isa.widen[StorageIndex(table.dtype)](gathered, output + begin, count);
  }
}

}  // namespace

absl::StatusOr<PackedMatrix> PackMatrix(Backend& backend, const HostTensorView& source,
                                        DType dtype) {
  ANNULUS_RETURN_IF_ERROR(MatrixBytes(source.rows, source.cols, source.dtype).status());
  if (source.rows > std::numeric_limits<int64_t>::max() - kPanel) {
    return absl::InvalidArgumentError(absl::StrCat(source.rows, " rows are too many"));
  }
  const int64_t panels = CeilDiv(source.rows, kPanel);
  ANNULUS_ASSIGN_OR_RETURN(const size_t bytes, MatrixBytes(panels * kPanel, source.cols, dtype));
  PackedMatrix packed;
  packed.out_features = source.rows;
  packed.in_features = source.cols;
  packed.dtype = dtype;
  ANNULUS_ASSIGN_OR_RETURN(packed.storage, backend.Allocate(bytes));
  const int64_t panel_bytes = source.cols * kPanel * DTypeSize(dtype);
  for (int64_t panel = 0; panel < panels; ++panel) {
    const int64_t row = panel * kPanel;
    std::byte* const to = packed.storage.data() + panel * panel_bytes;
    for (int64_t begin = 0; begin < source.cols; begin += kPackColumns) {
      PackBlock(source, dtype, row, std::min<int64_t>(kPanel, source.rows - row), begin,
                std::min(kPackColumns, source.cols - begin),
                to + begin * kPanel * DTypeSize(dtype));
    }
  }
  return packed;
}

absl::Status Linear(const SimdKernels& isa, CpuStream& stream, const LinearParams& params) {
  CheckLinear(params);
  const PackedMatrix& weight = *params.weight;
  const auto kernel = isa.linear[StorageIndex(weight.dtype)];
  const int64_t rows = params.input.rows;
  const int64_t row_blocks = CeilDiv(rows, kLinearRows);
  const int64_t column_blocks = CeilDiv(weight.out_features, kLinearColumns);
  const int64_t column_bytes = weight.in_features * DTypeSize(weight.dtype);
  // Row blocks of the same columns are neighbours, so that their weights are still in a cache.
  stream.ParallelFor(row_blocks * column_blocks, [&](int64_t index, int) {
    const int64_t row = index % row_blocks * kLinearRows;
    const int64_t column = index / row_blocks * kLinearColumns;
    LinearTask task;
    task.input = params.input.row(row);
    task.input_stride = params.input.stride;
    task.rows = static_cast<int>(std::min<int64_t>(kLinearRows, rows - row));
    task.panels = weight.storage.data() + column * column_bytes;
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

absl::Status Embed(const SimdKernels& isa, CpuStream& stream, const EmbedParams& params) {
  CheckEmbed(params);
  const int64_t rows = params.ids.size();
  // A gathered element costs a cache line each.
  const int64_t cost = kPanel * params.table->in_features;
  stream.ParallelRows(rows, cost, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      EmbedRow(isa, *params.table, params.ids[r], params.output.row(r));
    }
  });
  return absl::OkStatus();
}

}  // namespace annulus::cpu
