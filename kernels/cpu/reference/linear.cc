// Reference weights, products and embeddings.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "kernels/base/row_converter.h"
#include "kernels/base/status_macros.h"
#include "kernels/cpu/host/cpu_stream.h"
#include "kernels/cpu/reference/reference.h"
#include "kernels/ops/checks.h"

namespace annulus::reference {
namespace {

int64_t RowBytes(const PackedMatrix& matrix) {
  return StoredRowBytes(matrix.dtype, matrix.in_features);
}

int64_t ScaleBytes(const PackedMatrix& matrix) {
  return IsQuantized(matrix.dtype) ? QuantizedScaleBytes(matrix.dtype, matrix.in_features) : 0;
}

// Scales follow all rows, from a multiple of their alignment.
int64_t ScalesBegin(const PackedMatrix& matrix) {
  return (matrix.out_features * RowBytes(matrix) + 63) / 64 * 64;
}

// Row `row` in float32.
void Widen(const PackedMatrix& matrix, int64_t row, std::span<float> output) {
  const std::byte* const values = matrix.storage.data() + row * RowBytes(matrix);
  if (IsQuantized(matrix.dtype)) {
    DequantizeRow(matrix.dtype, values,
                  matrix.storage.data() + ScalesBegin(matrix) + row * ScaleBytes(matrix), output);
  } else {
    ConvertToFloat(matrix.dtype, values, output.data(), output.size());
  }
}

// The one scale of a row that has one.
float RowScale(const PackedMatrix& matrix, int64_t row) {
  float scale;
  std::memcpy(&scale, matrix.storage.data() + ScalesBegin(matrix) + row * ScaleBytes(matrix),
              sizeof(scale));
  return scale;
}

// The output of row r and column o from its sum.
void StoreSum(const LinearParams& params, int64_t r, int64_t o, float value) {
  if (params.bias != nullptr) value += params.bias[o];
  float& output = params.output.row(r)[o];
  output = params.accumulate ? output + value : value;
}

// One row of inputs as kInt8 has it.
struct Int8Row {
  std::vector<int> codes;
  float scale = 0;
};

Int8Row QuantizeInputs(const float* x, int64_t count) {
  Int8Row row;
  row.codes.resize(count);
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(x[i])) row.scale = std::numeric_limits<float>::quiet_NaN();
    largest = std::max(largest, std::abs(x[i]));
  }
  if (std::isnan(row.scale) || largest < 0x1p-100f) return row;
  row.scale = largest / 127;
  const float factor = 127 / largest;
  for (int64_t i = 0; i < count; ++i) {
    row.codes[i] = static_cast<int>(std::nearbyint(x[i] * factor));
  }
  return row;
}

// Sum over inputs [begin, begin + count) of the products of a row's codes with those of inputs.
int32_t SumOfProducts(const PackedMatrix& matrix, const std::byte* codes, const int* inputs,
                      int64_t begin, int64_t count) {
  const int zero = matrix.dtype == DType::kQ4_1 ? 0 : 8;  // what is added to 4-bit codes
  int32_t sum = 0;
  for (int64_t i = begin; i < begin + count; ++i) {
    if (QuantizedBits(matrix.dtype) == 8) {
      sum += inputs[i] * static_cast<int8_t>(codes[i]);
    } else {
      sum += inputs[i] * ((static_cast<int>(codes[i / 2]) >> i % 2 * 4 & 15) - zero);
    }
  }
  return sum;
}

// A row's total over the groups of its weights: see Activations::kInt8.
float GroupedTotal(const PackedMatrix& matrix, int64_t o, const std::vector<int>& inputs) {
  const std::byte* const codes = matrix.storage.data() + o * RowBytes(matrix);
  const std::byte* numbers = matrix.storage.data() + ScalesBegin(matrix) + o * ScaleBytes(matrix);
  const bool is_int4 = matrix.dtype == DType::kI4G32 || matrix.dtype == DType::kI4G64;
  const auto next_number = [&] {
    float number;
    ConvertToFloat(is_int4 ? DType::kBF16 : DType::kF16, numbers, &number, 1);
    numbers += 2;
    return number;
  };
  const int64_t group = QuantizedGroup(matrix.dtype);
  float total = 0;
  for (int64_t begin = 0; begin < matrix.in_features; begin += group) {
    const int64_t count = std::min(group, matrix.in_features - begin);
    const int32_t sum = SumOfProducts(matrix, codes, inputs.data(), begin, count);
    total = std::fma(static_cast<float>(sum), next_number(), total);
    if (matrix.dtype != DType::kQ4_1) continue;
    const int of_inputs =
        std::accumulate(inputs.begin() + begin, inputs.begin() + begin + count, 0);
    total = std::fma(next_number(), static_cast<float>(of_inputs), total);
  }
  return total;
}

absl::Status LinearInt8(Stream& stream, const LinearParams& params) {
  const PackedMatrix& weight = *params.weight;
  const bool grouped = QuantizedGroup(weight.dtype) > 0;
  std::vector<Int8Row> rows;
  for (int64_t r = 0; r < params.input.rows; ++r) {
    rows.push_back(QuantizeInputs(params.input.row(r), weight.in_features));
  }
  AsCpuStream(stream).ParallelFor(weight.out_features, [&](int64_t o, int) {
    const std::byte* const codes = weight.storage.data() + o * RowBytes(weight);
    for (int64_t r = 0; r < params.input.rows; ++r) {
      if (grouped) {
        StoreSum(params, r, o, GroupedTotal(weight, o, rows[r].codes) * rows[r].scale);
        continue;
      }
      const int32_t sum = SumOfProducts(weight, codes, rows[r].codes.data(), 0, weight.in_features);
      StoreSum(params, r, o, static_cast<float>(sum) * rows[r].scale * RowScale(weight, o));
    }
  });
  return absl::OkStatus();
}

// Inputs become codes, kept as their values without the row's scale: kFp8.
absl::Status LinearFp8(Stream& stream, const LinearParams& params) {
  const PackedMatrix& weight = *params.weight;
  const auto in = static_cast<size_t>(weight.in_features);
  std::vector<std::vector<Float8E4M3>> rows(params.input.rows, std::vector<Float8E4M3>(in));
  std::vector<float> scales;
  for (int64_t r = 0; r < params.input.rows; ++r) {
    scales.push_back(RoundToFloat8({params.input.row(r), in}, rows[r]));
  }
  AsCpuStream(stream).ParallelFor(weight.out_features, [&](int64_t o, int) {
    const std::byte* const codes = weight.storage.data() + o * RowBytes(weight);
    const float scale = RowScale(weight, o);
    for (int64_t r = 0; r < params.input.rows; ++r) {
      float sum = 0;
      for (size_t i = 0; i < in; ++i) {
        sum += ToFloat(rows[r][i]) * ToFloat(Float8E4M3{static_cast<uint8_t>(codes[i])});
      }
      StoreSum(params, r, o, sum * scales[r] * scale);
    }
  });
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<size_t> MatrixBytes(int64_t out, int64_t in, DType dtype) {
  ANNULUS_RETURN_IF_ERROR(CheckMatrixShape(out, in));
  const PackedMatrix shape{out, in, dtype, {}};
  return static_cast<size_t>(ScalesBegin(shape) + out * ScaleBytes(shape));
}

absl::Status PackRows(PackedMatrix& matrix, int64_t first_row, const HostTensorView& source,
                      QuantizationError* error) {
  CheckPackRows(matrix, first_row, source);
  RowConverter converter(source, matrix.dtype);
  std::byte* const values = matrix.storage.data();
  std::byte* const scales = matrix.storage.data() + ScalesBegin(matrix);
  for (int64_t r = 0; r < source.rows; ++r) {
    const int64_t row = first_row + r;
    ANNULUS_RETURN_IF_ERROR(converter.Convert(r, values + row * RowBytes(matrix),
                                              scales + row * ScaleBytes(matrix), error));
  }
  return absl::OkStatus();
}

absl::Status Linear(Stream& stream, const LinearParams& params) {
  CheckLinear(params);
  if (params.activations == Activations::kInt8) return LinearInt8(stream, params);
  if (params.activations == Activations::kFp8) return LinearFp8(stream, params);
  const PackedMatrix& weight = *params.weight;
  AsCpuStream(stream).ParallelFor(weight.out_features, [&](int64_t o, int) {
    std::vector<float> w(weight.in_features);
    Widen(weight, o, w);
    for (int64_t r = 0; r < params.input.rows; ++r) {
      const float* x = params.input.row(r);
      float sum = 0;
      for (int64_t i = 0; i < weight.in_features; ++i) sum += x[i] * w[i];
      StoreSum(params, r, o, sum);
    }
  });
  return absl::OkStatus();
}

absl::Status Embed(Stream&, const EmbedParams& params) {
  CheckEmbed(params);
  const PackedMatrix& table = *params.table;
  for (size_t r = 0; r < params.ids.size(); ++r) {
    Widen(table, params.ids[r], {params.output.row(r), static_cast<size_t>(table.in_features)});
  }
  return absl::OkStatus();
}

}  // namespace annulus::reference
