// Pages of the SIMD path: layout, writing and reading.
#include <cstring>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/simd_ops.h"

namespace annulus::cpu {
namespace {

// Keys of one head, contiguous <-> every 16th element of the page.
template <class Element>
void ScatterKey(const std::byte* from, int dim, std::byte* to) {
  for (int d = 0; d < dim; ++d) {
    reinterpret_cast<Element*>(to)[d * kPanel] = reinterpret_cast<const Element*>(from)[d];
  }
}
template <class Element>
void GatherKey(const std::byte* from, int dim, std::byte* to) {
  for (int d = 0; d < dim; ++d) {
    reinterpret_cast<Element*>(to)[d] = reinterpret_cast<const Element*>(from)[d * kPanel];
  }
}

bool IsWide(DType dtype) { return static_cast<int>(dtype) < kStorageTypes; }

// `dim` values in storage at `to`; int8 puts its scale at `scale_to`.
void NarrowRow(const SimdKernels& isa, DType dtype, const float* row, int dim, std::byte* to,
               std::byte* scale_to) {
  if (IsWide(dtype)) return isa.narrow[StorageIndex(dtype)](row, to, dim);
  if (dtype != DType::kI8) return ConvertFromFloat(dtype, row, to, dim);
  const BFloat16 scale = QuantizeInt8(row, reinterpret_cast<int8_t*>(to), dim);
  std::memcpy(scale_to, &scale, sizeof(scale));
}

void WidenRow(const SimdKernels& isa, DType dtype, const std::byte* from,
              const std::byte* scale_from, float* row, int dim) {
  if (IsWide(dtype)) return isa.widen[StorageIndex(dtype)](from, row, dim);
  if (dtype != DType::kI8) return ConvertToFloat(dtype, from, row, dim);
  BFloat16 scale;
  std::memcpy(&scale, scale_from, sizeof(scale));
  DequantizeInt8(reinterpret_cast<const int8_t*>(from), scale, row, dim);
}

void AppendRow(const SimdKernels& isa, const PageLayout& layout, const KvAppendParams& params,
               int64_t row) {
  const KvPageShape& shape = params.shape;
  const size_t element = DTypeSize(shape.dtype);
  const int slot = params.slots[row];
  alignas(64) std::byte key[kCpuMaxHeadDim * sizeof(float)];
  for (int h = 0; h < shape.kv_heads; ++h) {
    NarrowRow(isa, shape.dtype, params.k.row(row) + int64_t{h} * shape.k_dim, shape.k_dim, key,
              params.pages[row] + layout.key_scale(h, slot));
    std::byte* const key_to = params.pages[row] + layout.key(h, slot);
    if (element == sizeof(uint32_t)) {
      ScatterKey<uint32_t>(key, shape.k_dim, key_to);
    } else if (element == sizeof(uint16_t)) {
      ScatterKey<uint16_t>(key, shape.k_dim, key_to);
    } else {
      ScatterKey<uint8_t>(key, shape.k_dim, key_to);
    }
    std::byte* const value_to = params.pages[row] + layout.value(h, slot);
    NarrowRow(isa, shape.dtype, params.v.row(row) + int64_t{h} * shape.v_dim, shape.v_dim, value_to,
              params.pages[row] + layout.value_scale(h, slot));
    std::memset(value_to + shape.v_dim * element, 0, (layout.v_stride() - shape.v_dim) * element);
  }
}

}  // namespace

int StorageIndex(DType dtype) {
  static_assert(static_cast<int>(DType::kF32) == 0 && static_cast<int>(DType::kBF16) == 1 &&
                static_cast<int>(DType::kF16) == 2);
  return static_cast<int>(dtype);
}

PageLayout::PageLayout(const KvPageShape& shape)
    : element_bytes_(DTypeSize(shape.dtype)),
      kv_heads_(shape.kv_heads),
      k_dim_(shape.k_dim),
      v_stride_(RoundUp(shape.v_dim, kPanel)),
      k_head_bytes_(int64_t{shape.page_tokens} * shape.k_dim * element_bytes_),
      v_head_bytes_(shape.page_tokens * v_stride_ * element_bytes_),
      values_(kv_heads_ * k_head_bytes_),
      scales_(values_ + kv_heads_ * v_head_bytes_),
      scale_head_bytes_(shape.dtype == DType::kI8 ? shape.page_tokens * sizeof(Bf16) : 0) {}

size_t PageLayout::bytes() const {
  return RoundUp(scales_ + 2 * kv_heads_ * scale_head_bytes_, 64);
}

size_t KvPageBytes(const KvPageShape& shape) {
  CheckPageShape(shape);
  return PageLayout(shape).bytes();
}

absl::Status KvAppend(const SimdKernels& isa, CpuStream& stream, const KvAppendParams& params) {
  CheckKvAppend(params);
  const PageLayout layout(params.shape);
  const int64_t cost = 4 * (params.k.cols + params.v.cols);
  stream.ParallelRows(params.pages.size(), cost, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) AppendRow(isa, layout, params, r);
  });
  return absl::OkStatus();
}

absl::Status KvRead(const SimdKernels& isa, CpuStream&, const KvReadParams& params) {
  CheckKvRead(params);
  const KvPageShape& shape = params.shape;
  const PageLayout layout(shape);
  alignas(64) std::byte key[kCpuMaxHeadDim * sizeof(float)];
  for (int t = 0; t < params.tokens; ++t) {
    for (int h = 0; h < shape.kv_heads; ++h) {
      if (DTypeSize(shape.dtype) == sizeof(uint32_t)) {
        GatherKey<uint32_t>(params.page + layout.key(h, t), shape.k_dim, key);
      } else if (DTypeSize(shape.dtype) == sizeof(uint16_t)) {
        GatherKey<uint16_t>(params.page + layout.key(h, t), shape.k_dim, key);
      } else {
        GatherKey<uint8_t>(params.page + layout.key(h, t), shape.k_dim, key);
      }
      WidenRow(isa, shape.dtype, key, params.page + layout.key_scale(h, t),
               params.k.row(t) + int64_t{h} * shape.k_dim, shape.k_dim);
      WidenRow(isa, shape.dtype, params.page + layout.value(h, t),
               params.page + layout.value_scale(h, t), params.v.row(t) + int64_t{h} * shape.v_dim,
               shape.v_dim);
    }
  }
  return absl::OkStatus();
}

}  // namespace annulus::cpu
