// Reference weights, products and embeddings.
#include <cstring>
#include <vector>

#include "kernels/base/status_macros.h"
#include "kernels/cpu/checks.h"
#include "kernels/cpu/cpu_stream.h"
#include "kernels/cpu/reference.h"

namespace annulus::reference {
namespace {

const std::byte* Row(const PackedMatrix& matrix, int64_t row) {
  return matrix.storage.data() + row * matrix.in_features * DTypeSize(matrix.dtype);
}

}  // namespace

absl::StatusOr<PackedMatrix> PackMatrix(Backend& backend, const HostTensorView& source,
                                        DType dtype) {
  ANNULUS_RETURN_IF_ERROR(MatrixBytes(source.rows, source.cols, source.dtype).status());
  ANNULUS_ASSIGN_OR_RETURN(const size_t bytes, MatrixBytes(source.rows, source.cols, dtype));
  PackedMatrix packed;
  packed.out_features = source.rows;
  packed.in_features = source.cols;
  packed.dtype = dtype;
  ANNULUS_ASSIGN_OR_RETURN(packed.storage, backend.Allocate(bytes));
  if (dtype == source.dtype) {
    std::memcpy(packed.storage.data(), source.data, bytes);
    return packed;
  }
  std::vector<float> row(source.cols);
  const size_t source_row_bytes = source.cols * DTypeSize(source.dtype);
  const size_t packed_row_bytes = source.cols * DTypeSize(dtype);
  for (int64_t r = 0; r < source.rows; ++r) {
    ConvertToFloat(source.dtype, static_cast<const std::byte*>(source.data) + r * source_row_bytes,
                   row.data(), row.size());
    ConvertFromFloat(dtype, row.data(), packed.storage.data() + r * packed_row_bytes, row.size());
  }
  return packed;
}

absl::Status Linear(Stream& stream, const LinearParams& params) {
  CheckLinear(params);
  const PackedMatrix& weight = *params.weight;
  AsCpuStream(stream).ParallelFor(weight.out_features, [&](int64_t o, int) {
    std::vector<float> w(weight.in_features);
    ConvertToFloat(weight.dtype, Row(weight, o), w.data(), w.size());
    for (int64_t r = 0; r < params.input.rows; ++r) {
      const float* x = params.input.row(r);
      float sum = 0;
      for (int64_t i = 0; i < weight.in_features; ++i) sum += x[i] * w[i];
      if (params.bias != nullptr) sum += params.bias[o];
      float& output = params.output.row(r)[o];
      output = params.accumulate ? output + sum : sum;
    }
  });
  return absl::OkStatus();
}

absl::Status Embed(Stream&, const EmbedParams& params) {
  CheckEmbed(params);
  const PackedMatrix& table = *params.table;
  for (size_t r = 0; r < params.ids.size(); ++r) {
    ConvertToFloat(table.dtype, Row(table, params.ids[r]), params.output.row(r), table.in_features);
  }
  return absl::OkStatus();
}

}  // namespace annulus::reference
