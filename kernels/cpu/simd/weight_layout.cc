#include "kernels/cpu/simd/weight_layout.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/base/row_converter.h"
#include "kernels/base/status_macros.h"
#include "kernels/cpu/simd/ops.h"
#include "kernels/ops/checks.h"

namespace annulus::cpu {
namespace {

constexpr int64_t kAlignment = 64;

int64_t WordInputs(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 1;
    case DType::kBF16:
    case DType::kF16:
      return 2;
    case DType::kF8E4M3:
    case DType::kF8E5M2:
    case DType::kI8:
    case DType::kQ8_0:
      return 4;
    case DType::kI4G32:
    case DType::kI4G64:
    case DType::kQ4_0:
    case DType::kQ4_1:
      return 8;
  }
  ANNULUS_CHECK(false) << static_cast<int>(dtype);
  return 0;
}

bool IsPairs(DType dtype, Bf16Order order) {
  return dtype == DType::kBF16 && order == Bf16Order::kPairs;
}

// Four words, in the compiler's own vectors: this is compiled for any processor's baseline.
using Words = uint32_t __attribute__((vector_size(16)));

// Order of the inputs inside of four words, from that of a row.
struct Same {
  static Words Apply(Words words) { return words; }
};
struct Bytes {  // 0 1 2 3 -> 0 2 1 3
  static Words Apply(Words words) {
    return (words & 0xff0000ffu) | ((words & 0xff00u) << 8) | ((words >> 8) & 0xff00u);
  }
};
struct HalfBytes {  // the even ones to the low half, the odd ones to the high half
  static Words Gather(Words words) {
    words &= 0x0f0f0f0fu;
    words = (words | words >> 4) & 0xff00ffu;
    return (words | words >> 8) & 0xffffu;
  }
  static Words Apply(Words words) { return Gather(words) | Gather(words >> 4) << 16; }
};

// Words [0, words) of 16 rows, words a multiple of 4, into panel order: to[word][row].
template <class Order>
void InterleaveWords(const std::byte* const (&rows)[kPanel], int64_t words, std::byte* to) {
  for (int64_t word = 0; word < words; word += 4) {
    for (int r = 0; r < kPanel; r += 4) {
      const auto load = [&](int i) {
        Words x;
        std::memcpy(&x, rows[r + i] + word * 4, sizeof(x));
        return Order::Apply(x);
      };
      const auto store = [&](int64_t i, Words x) {
        std::memcpy(to + ((word + i) * kPanel + r) * 4, &x, sizeof(x));
      };
      const Words a = load(0), b = load(1), c = load(2), d = load(3);
      const Words ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
      const Words cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
      const Words ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
      const Words cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
      store(0, __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5));
      store(1, __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7));
      store(2, __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5));
      store(3, __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7));
    }
  }
}

// to[i][row] for elements of 16 or 32 bits.
template <class Element>
void InterleaveElements(const std::byte* const (&rows)[kPanel], int64_t count, std::byte* to) {
  Element* const destination = reinterpret_cast<Element*>(to);
  for (int64_t i = 0; i < count; ++i) {
    for (int r = 0; r < kPanel; ++r) {
      std::memcpy(destination + i * kPanel + r, rows[r] + i * sizeof(Element), sizeof(Element));
    }
  }
}

// One panel's rows as they are stored, padded with zero weights to the layout's depth and to 16.
class StagedPanel {
 public:
  StagedPanel(const HostTensorView& source, DType dtype, int64_t depth)
      : source_(source),
        dtype_(dtype),
        converter_(source, dtype),
        row_bytes_(RoundUp(depth * 4 / WordInputs(dtype), 16)),
        scale_bytes_(IsQuantized(dtype) ? QuantizedScaleBytes(dtype, source.cols) : 0),
        values_(kPanel * row_bytes_),
        scales_(kPanel * scale_bytes_) {}

  // Rows [first, first + count) of the source; the others of the panel are zero.
  absl::Status Stage(int64_t first, int64_t count, QuantizationError* error) {
    const bool four_bits = QuantizedBits(dtype_) == 4;
    const bool offset = four_bits && dtype_ != DType::kQ4_1;  // codes are stored as code + 8
    std::fill(values_.begin(), values_.end(), offset ? std::byte{0x88} : std::byte{0});
    std::fill(scales_.begin(), scales_.end(), std::byte{0});
    for (int64_t r = 0; r < count; ++r) {
      std::byte* const values = values_.data() + r * row_bytes_;
      ANNULUS_RETURN_IF_ERROR(converter_.Convert(first + r, values, scales(r), error));
      if (four_bits && source_.cols % 2 != 0) {  // the unused half byte may be anything
        std::byte& last = values[source_.cols / 2];
        last = (last & std::byte{0x0f}) | (offset ? std::byte{0x80} : std::byte{0});
      }
    }
    for (int r = 0; r < kPanel; ++r) rows_[r] = values_.data() + r * row_bytes_;
    return absl::OkStatus();
  }

  const std::byte* const (&rows() const)[kPanel] { return rows_; }
  std::byte* scales(int64_t row) { return scales_.data() + row * scale_bytes_; }

 private:
  const HostTensorView& source_;
  const DType dtype_;
  RowConverter converter_;
  const int64_t row_bytes_;
  const int64_t scale_bytes_;
  std::vector<std::byte> values_;
  std::vector<std::byte> scales_;
  const std::byte* rows_[kPanel];
};

void StoreRowScales(StagedPanel& staged, const WeightLayout& layout, DType dtype,
                    std::byte* scales) {
  for (int r = 0; r < kPanel; ++r) std::memcpy(scales + r * 4, staged.scales(r), 4);
  if (dtype != DType::kI8) return;
  for (int r = 0; r < kPanel; ++r) {
    int32_t sum = 0;
    for (int64_t i = 0; i < layout.depth; ++i) sum += static_cast<int8_t>(staged.rows()[r][i]);
    std::memcpy(scales + (kPanel + r) * 4, &sum, 4);
  }
}

void StoreGroupScales(StagedPanel& staged, DType dtype, int64_t cols, std::byte* scales) {
  const int64_t groups = CeilDiv(cols, QuantizedGroup(dtype));
  const int numbers = GroupNumbers(dtype);
  for (int64_t g = 0; g < groups; ++g) {
    for (int n = 0; n < numbers; ++n) {
      const int64_t number = g * numbers + n;
      for (int r = 0; r < kPanel; ++r) {
        std::memcpy(scales + (number * kPanel + r) * 2, staged.scales(r) + number * 2, 2);
      }
    }
  }
}

void StorePanel(StagedPanel& staged, const WeightLayout& layout, DType dtype, int64_t cols,
                Bf16Order order, std::byte* to) {
  const int64_t words = layout.depth / WordInputs(dtype);
  // Equal weights have equal bytes, those between panels too.
  std::memset(to + layout.scales, 0, layout.panel_bytes - layout.scales);
  switch (dtype) {
    case DType::kF32:
      return InterleaveElements<uint32_t>(staged.rows(), cols, to);
    case DType::kF16:
      return InterleaveElements<uint16_t>(staged.rows(), cols, to);
    case DType::kBF16:
      if (IsPairs(dtype, order)) return InterleaveWords<Same>(staged.rows(), words, to);
      return InterleaveElements<uint16_t>(staged.rows(), cols, to);
    case DType::kF8E4M3:
    case DType::kF8E5M2:
    case DType::kI8:
      InterleaveWords<Bytes>(staged.rows(), words, to);
      return StoreRowScales(staged, layout, dtype, to + layout.scales);
    case DType::kQ8_0:
      InterleaveWords<Bytes>(staged.rows(), words, to);
      return StoreGroupScales(staged, dtype, cols, to + layout.scales);
    case DType::kI4G32:
    case DType::kI4G64:
    case DType::kQ4_0:
    case DType::kQ4_1:
      InterleaveWords<HalfBytes>(staged.rows(), words, to);
      return StoreGroupScales(staged, dtype, cols, to + layout.scales);
  }
}

// Whether a panel's rows can be interleaved where the source has them.
bool CanInterleaveInPlace(const HostTensorView& source, DType dtype, Bf16Order order) {
  return source.dtype == dtype && IsPairs(dtype, order) && source.cols % kDepthStep == 0;
}

}  // namespace

WeightLayout LayoutOf(DType dtype, int64_t in_features, Bf16Order order) {
  WeightLayout layout;
  const int64_t group = QuantizedGroup(dtype);
  if (!IsQuantized(dtype) && !IsPairs(dtype, order)) {
    layout.depth = in_features;
    layout.scales = layout.panel_bytes =
        in_features * kPanel * static_cast<int64_t>(DTypeSize(dtype));
    return layout;
  }
  const int64_t step = dtype == DType::kI8 ? kInt8DepthStep : kDepthStep;
  layout.depth = RoundUp(in_features, std::max(group, step));
  layout.scales = layout.depth / WordInputs(dtype) * kPanel * 4;
  int64_t scale_bytes = 0;
  if (group > 0) {
    scale_bytes = layout.depth / group * GroupNumbers(dtype) * kPanel * 2;
  } else if (IsQuantized(dtype)) {
    scale_bytes = kPanel * (dtype == DType::kI8 ? 8 : 4);
  }
  layout.panel_bytes = RoundUp(layout.scales + scale_bytes, kAlignment);
  return layout;
}

absl::StatusOr<size_t> MatrixBytes(int64_t out, int64_t in, DType dtype, Bf16Order order) {
  ANNULUS_RETURN_IF_ERROR(CheckMatrixShape(out, in));
  return static_cast<size_t>(CeilDiv(out, kPanel) * LayoutOf(dtype, in, order).panel_bytes);
}

absl::Status PackRows(PackedMatrix& matrix, int64_t first_row, const HostTensorView& source,
                      QuantizationError* error, Bf16Order order) {
  CheckPackRows(matrix, first_row, source);
  static_assert(kPackRows == kPanel);
  const WeightLayout layout = LayoutOf(matrix.dtype, matrix.in_features, order);
  std::byte* to = matrix.storage.data() + first_row / kPanel * layout.panel_bytes;
  int64_t row = 0;
  if (CanInterleaveInPlace(source, matrix.dtype, order)) {
    const int64_t row_bytes = source.cols * 2;
    for (; row + kPanel <= source.rows; row += kPanel, to += layout.panel_bytes) {
      const std::byte* rows[kPanel];
      for (int r = 0; r < kPanel; ++r) {
        rows[r] = static_cast<const std::byte*>(source.data) + (row + r) * row_bytes;
      }
      InterleaveWords<Same>(rows, layout.depth / 2, to);
    }
  }
  if (row == source.rows) return absl::OkStatus();
  StagedPanel staged(source, matrix.dtype, layout.depth);
  for (; row < source.rows; row += kPanel, to += layout.panel_bytes) {
    const int64_t count = std::min<int64_t>(kPanel, source.rows - row);
    ANNULUS_RETURN_IF_ERROR(staged.Stage(row, count, error));
    StorePanel(staged, layout, matrix.dtype, source.cols, order, to);
  }
  return absl::OkStatus();
}

}  // namespace annulus::cpu
