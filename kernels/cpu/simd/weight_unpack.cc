// One row of packed weights, widened: the gather of embeddings.
#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/base/check.h"
#include "kernels/cpu/simd/ops.h"
#include "kernels/cpu/simd/weight_layout.h"

namespace annulus::cpu {
namespace {

// Elements [0, count) of a row, one per column of the panel.
template <class Element>
void UnpackElements(DType dtype, const std::byte* column, int64_t count, float* output) {
  for (int64_t i = 0; i < count; ++i) {
    Element element;
    std::memcpy(&element, column + i * kPanel * sizeof(Element), sizeof(Element));
    ConvertToFloat(dtype, &element, output + i, 1);
  }
}

// Elements of a row that lie together in words; `order[j]` is where in its word input j lies.
template <int kInputs, class Widen>
void UnpackWords(const std::byte* column, int64_t count, const Widen& widen, float* output) {
  for (int64_t i = 0; i < count; i += kInputs) {
    uint32_t word;
    std::memcpy(&word, column + i / kInputs * kPanel * sizeof(word), sizeof(word));
    const int64_t inside = std::min<int64_t>(kInputs, count - i);
    for (int64_t j = 0; j < inside; ++j) output[i + j] = widen(word, j, i);
  }
}

// The byte of input j of four: they lie in the order 0, 2, 1, 3.
uint8_t ByteOf(uint32_t word, int64_t j) {
  constexpr int kShift[4] = {0, 16, 8, 24};
  return static_cast<uint8_t>(word >> kShift[j]);
}

float ScaleOf(const std::byte* scales, int64_t column) {
  float scale;
  std::memcpy(&scale, scales + column * sizeof(scale), sizeof(scale));
  return scale;
}

void UnpackBytes(DType dtype, const std::byte* column, float scale, int64_t count, float* output) {
  switch (dtype) {
    case DType::kI8:
      return UnpackWords<4>(
          column, count,
          [&](uint32_t word, int64_t j, int64_t) {
            return static_cast<float>(static_cast<int8_t>(ByteOf(word, j))) * scale;
          },
          output);
    case DType::kF8E4M3:
      return UnpackWords<4>(
          column, count,
          [&](uint32_t word, int64_t j, int64_t) {
            return ToFloat(Float8E4M3{ByteOf(word, j)}) * scale;
          },
          output);
    default:
      return UnpackWords<4>(
          column, count,
          [&](uint32_t word, int64_t j, int64_t) {
            return ToFloat(Float8E5M2{ByteOf(word, j)}) * scale;
          },
          output);
  }
}

void UnpackHalfBytes(const std::byte* column, const std::byte* scales, int64_t lane, int64_t group,
                     int64_t count, float* output) {
  UnpackWords<8>(
      column, count,
      [&](uint32_t word, int64_t j, int64_t i) {
        const int code = static_cast<int>(word >> (j % 2 * 16 + j / 2 * 4) & 15) - 8;
        BFloat16 scale;
        std::memcpy(&scale, scales + ((i + j) / group * kPanel + lane) * sizeof(scale),
                    sizeof(scale));
        return static_cast<float>(code) * ToFloat(scale);
      },
      output);
}

// Number `index` of a group: its scale, or its minimum.
float GroupNumber(const std::byte* scales, int64_t index, int64_t lane) {
  Float16 number;
  std::memcpy(&number, scales + (index * kPanel + lane) * sizeof(number), sizeof(number));
  return ToFloat(number);
}

// The types of GGUF files.
void UnpackGroups(DType dtype, const std::byte* column, const std::byte* scales, int64_t lane,
                  int64_t count, float* output) {
  const int64_t group = QuantizedGroup(dtype);
  if (dtype == DType::kQ8_0) {
    return UnpackWords<4>(
        column, count,
        [&](uint32_t word, int64_t j, int64_t i) {
          return static_cast<float>(static_cast<int8_t>(ByteOf(word, j))) *
                 GroupNumber(scales, i / group, lane);
        },
        output);
  }
  const bool minimums = dtype == DType::kQ4_1;
  UnpackWords<8>(
      column, count,
      [&](uint32_t word, int64_t j, int64_t i) {
        const int code = static_cast<int>(word >> (j % 2 * 16 + j / 2 * 4) & 15);
        const int64_t g = i / group;
        if (!minimums) return static_cast<float>(code - 8) * GroupNumber(scales, g, lane);
        return static_cast<float>(code) * GroupNumber(scales, 2 * g, lane) +
               GroupNumber(scales, 2 * g + 1, lane);
      },
      output);
}

}  // namespace

void UnpackRow(const PackedMatrix& matrix, int64_t row, Bf16Order order, float* output) {
  const WeightLayout layout = LayoutOf(matrix.dtype, matrix.in_features, order);
  const std::byte* const panel = matrix.storage.data() + row / kPanel * layout.panel_bytes;
  const std::byte* const scales = panel + layout.scales;
  const int64_t lane = row % kPanel;
  const int64_t count = matrix.in_features;
  switch (matrix.dtype) {
    case DType::kF32:
      return UnpackElements<uint32_t>(matrix.dtype, panel + lane * 4, count, output);
    case DType::kBF16:
      if (order == Bf16Order::kPairs) {
        return UnpackWords<2>(
            panel + lane * 4, count,
            [](uint32_t word, int64_t j, int64_t) {
              return std::bit_cast<float>(j == 0 ? word << 16 : word & 0xffff0000u);
            },
            output);
      }
      return UnpackElements<uint16_t>(matrix.dtype, panel + lane * 2, count, output);
    case DType::kF16:
      return UnpackElements<uint16_t>(matrix.dtype, panel + lane * 2, count, output);
    case DType::kF8E4M3:
    case DType::kF8E5M2:
    case DType::kI8:
      return UnpackBytes(matrix.dtype, panel + lane * 4, ScaleOf(scales, lane), count, output);
    case DType::kI4G32:
    case DType::kI4G64:
      return UnpackHalfBytes(panel + lane * 4, scales, lane, QuantizedGroup(matrix.dtype), count,
                             output);
    case DType::kQ8_0:
    case DType::kQ4_0:
    case DType::kQ4_1:
      return UnpackGroups(matrix.dtype, panel + lane * 4, scales, lane, count, output);
  }
}

}  // namespace annulus::cpu
