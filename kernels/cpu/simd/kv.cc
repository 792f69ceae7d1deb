// Pages of the SIMD path: layout, writing and reading.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/simd/ops.h"
#include "kernels/cpu/simd/page_layout.h"
#include "kernels/ops/checks.h"

namespace annulus::cpu {
namespace {

// Elements of one head, contiguous <-> where the layout puts them.
template <class Element, class Place>
void Scatter(const std::byte* from, int64_t dim, std::byte* to, const Place& place) {
  for (int64_t d = 0; d < dim; ++d) {
    reinterpret_cast<Element*>(to)[place(d)] = reinterpret_cast<const Element*>(from)[d];
  }
}
template <class Element, class Place>
void Gather(const std::byte* from, int64_t dim, std::byte* to, const Place& place) {
  for (int64_t d = 0; d < dim; ++d) {
    reinterpret_cast<Element*>(to)[d] = reinterpret_cast<const Element*>(from)[place(d)];
  }
}

// Calls visit with an element of the width of `dtype`.
template <class Visit>
void WithElement(DType dtype, const Visit& visit) {
  switch (DTypeSize(dtype)) {
    case 1:
      return visit(uint8_t{});
    case 2:
      return visit(uint16_t{});
    default:
      return visit(uint32_t{});
  }
}

// `dim` values in storage at `to`; int8 puts its scale at `scale_to`.
void NarrowRow(const SimdKernels& isa, DType dtype, const float* row, int dim, std::byte* to,
               std::byte* scale_to) {
  if (!IsNarrow(dtype)) return isa.narrow[StorageIndex(dtype)](row, to, dim);
  if (dtype != DType::kI8) return ConvertFromFloat(dtype, row, to, dim);
  const BFloat16 scale = QuantizeInt8(row, reinterpret_cast<int8_t*>(to), dim);
  std::memcpy(scale_to, &scale, sizeof(scale));
}

void WidenRow(const SimdKernels& isa, DType dtype, const std::byte* from,
              const std::byte* scale_from, float* row, int dim) {
  if (!IsNarrow(dtype)) return isa.widen[StorageIndex(dtype)](from, row, dim);
  if (dtype != DType::kI8) return ConvertToFloat(dtype, from, row, dim);
  BFloat16 scale;
  std::memcpy(&scale, scale_from, sizeof(scale));
  DequantizeInt8(reinterpret_cast<const int8_t*>(from), scale, row, dim);
}

// Padding of keys and values included.
constexpr size_t kHeadBytes = RoundUp(kMaxHeadDim, 64) * sizeof(float);

void AppendRow(const SimdKernels& isa, const PageLayout& layout, const KvAppendParams& params,
               int64_t row) {
  const KvPageShape& shape = params.shape;
  const int slot = params.slots[row];
  std::byte* const page = params.pages[row];
  const int64_t scale = slot * int64_t{sizeof(BFloat16)};
  // Padding is 0 in every storage type.
  alignas(64) std::byte narrow[kHeadBytes];
  for (int h = 0; h < shape.kv_heads; ++h) {
    std::memset(narrow, 0, layout.k_dim() * DTypeSize(shape.dtype));
    NarrowRow(isa, shape.dtype, params.k.row(row) + int64_t{h} * shape.k_dim, shape.k_dim, narrow,
              page + layout.k_scales(h) + scale);
    WithElement(shape.dtype, [&](auto element) {
      Scatter<decltype(element)>(narrow, layout.k_dim(), page + layout.k_head(h),
                                 [&](int64_t d) { return layout.key_element(slot, d); });
    });
    std::memset(narrow, 0, layout.v_stride() * DTypeSize(shape.dtype));
    NarrowRow(isa, shape.dtype, params.v.row(row) + int64_t{h} * shape.v_dim, shape.v_dim, narrow,
              page + layout.v_scales(h) + scale);
    WithElement(shape.dtype, [&](auto element) {
      Scatter<decltype(element)>(narrow, layout.v_stride(), page + layout.v_head(h),
                                 [&](int64_t d) { return layout.value_element(slot, d); });
    });
  }
}

int Together(const SimdKernels& isa, DType dtype) {
  if (isa.paired == nullptr) return 1;
  if (IsNarrow(dtype)) return 4;
  return dtype == DType::kBF16 ? 2 : 1;
}

}  // namespace

int StorageIndex(DType dtype) {
  static_assert(static_cast<int>(DType::kF32) == 0 && static_cast<int>(DType::kBF16) == 1 &&
                static_cast<int>(DType::kF16) == 2);
  return static_cast<int>(dtype);
}

int NarrowIndex(DType dtype) {
  static_assert(static_cast<int>(DType::kF8E4M3) == kStorageTypes &&
                static_cast<int>(DType::kF8E5M2) == kStorageTypes + 1 &&
                static_cast<int>(DType::kI8) == kStorageTypes + 2);
  return static_cast<int>(dtype) - kStorageTypes;
}

PageLayout::PageLayout(const SimdKernels& isa, const KvPageShape& shape)
    : together_(Together(isa, shape.dtype)),
      kv_heads_(shape.kv_heads),
      k_dim_(paired() ? RoundUp(shape.k_dim, std::max(isa.paired->k_multiple, together_))
                      : shape.k_dim),
      v_stride_(RoundUp(shape.v_dim, kPanel)) {
  const int64_t element_bytes = DTypeSize(shape.dtype);
  k_head_bytes_ = shape.page_tokens * k_dim_ * element_bytes;
  v_head_bytes_ = shape.page_tokens * v_stride_ * element_bytes;
  scale_head_bytes_ = shape.dtype == DType::kI8 ? shape.page_tokens * sizeof(BFloat16) : 0;
  values_ = kv_heads_ * k_head_bytes_;
  scales_ = values_ + kv_heads_ * v_head_bytes_;
  bytes_ = RoundUp(scales_ + 2 * kv_heads_ * scale_head_bytes_, 64);
}

void CopySlot(DType dtype, const HeadSlot& from, const std::byte* from_page, const HeadSlot& to,
              std::byte* to_page) {
  WithElement(dtype, [&](auto element) {
    using Element = decltype(element);
    const std::byte* k = from_page + from.layout.k_head(from.kv_head);
    std::byte* to_k = to_page + to.layout.k_head(to.kv_head);
    for (int64_t d = 0; d < from.layout.k_dim(); ++d) {
      reinterpret_cast<Element*>(to_k)[to.layout.key_element(to.slot, d)] =
          reinterpret_cast<const Element*>(k)[from.layout.key_element(from.slot, d)];
    }
    const std::byte* v = from_page + from.layout.v_head(from.kv_head);
    std::byte* to_v = to_page + to.layout.v_head(to.kv_head);
    for (int64_t d = 0; d < from.layout.v_stride(); ++d) {
      reinterpret_cast<Element*>(to_v)[to.layout.value_element(to.slot, d)] =
          reinterpret_cast<const Element*>(v)[from.layout.value_element(from.slot, d)];
    }
  });
  if (dtype != DType::kI8) return;
  const auto copy_scale = [](const std::byte* scales, int slot, std::byte* to_scales, int to_slot) {
    std::memcpy(to_scales + to_slot * sizeof(BFloat16), scales + slot * sizeof(BFloat16),
                sizeof(BFloat16));
  };
  copy_scale(from_page + from.layout.k_scales(from.kv_head), from.slot,
             to_page + to.layout.k_scales(to.kv_head), to.slot);
  copy_scale(from_page + from.layout.v_scales(from.kv_head), from.slot,
             to_page + to.layout.v_scales(to.kv_head), to.slot);
}

size_t KvPageBytes(const SimdKernels& isa, const KvPageShape& shape) {
  CheckPageShape(shape);
  return PageLayout(isa, shape).bytes();
}

absl::Status KvAppend(const SimdKernels& isa, CpuStream& stream, const KvAppendParams& params) {
  CheckKvAppend(params);
  const PageLayout layout(isa, params.shape);
  const int64_t cost = 4 * (params.k.cols + params.v.cols);
  stream.ParallelRows(params.pages.size(), cost, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) AppendRow(isa, layout, params, r);
  });
  return absl::OkStatus();
}

absl::Status KvRead(const SimdKernels& isa, CpuStream&, const KvReadParams& params) {
  CheckKvRead(params);
  const KvPageShape& shape = params.shape;
  const PageLayout layout(isa, shape);
  alignas(64) std::byte narrow[kHeadBytes];
  for (int t = 0; t < params.tokens; ++t) {
    const int64_t scale = t * int64_t{sizeof(BFloat16)};
    for (int h = 0; h < shape.kv_heads; ++h) {
      WithElement(shape.dtype, [&](auto element) {
        Gather<decltype(element)>(params.page + layout.k_head(h), shape.k_dim, narrow,
                                  [&](int64_t d) { return layout.key_element(t, d); });
      });
      WidenRow(isa, shape.dtype, narrow, params.page + layout.k_scales(h) + scale,
               params.k.row(t) + int64_t{h} * shape.k_dim, shape.k_dim);
      WithElement(shape.dtype, [&](auto element) {
        Gather<decltype(element)>(params.page + layout.v_head(h), shape.v_dim, narrow,
                                  [&](int64_t d) { return layout.value_element(t, d); });
      });
      WidenRow(isa, shape.dtype, narrow, params.page + layout.v_scales(h) + scale,
               params.v.row(t) + int64_t{h} * shape.v_dim, shape.v_dim);
    }
  }
  return absl::OkStatus();
}

}  // namespace annulus::cpu
