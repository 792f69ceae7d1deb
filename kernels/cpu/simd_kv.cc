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

void AppendRow(const SimdKernels& isa, const PageLayout& layout, const KvAppendParams& params,
               int64_t row) {
  const KvPageShape& shape = params.shape;
  const auto narrow = isa.narrow[StorageIndex(shape.dtype)];
  const size_t element = DTypeSize(shape.dtype);
  const int slot = params.slots[row];
  alignas(64) std::byte key[kCpuMaxHeadDim * sizeof(float)];
  for (int h = 0; h < shape.kv_heads; ++h) {
    narrow(params.k.row(row) + int64_t{h} * shape.k_dim, key, shape.k_dim);
    std::byte* const key_to = params.pages[row] + layout.key(h, slot);
    if (element == sizeof(uint32_t)) {
      ScatterKey<uint32_t>(key, shape.k_dim, key_to);
    } else {
      ScatterKey<uint16_t>(key, shape.k_dim, key_to);
    }
    std::byte* const value_to = params.pages[row] + layout.value(h, slot);
    narrow(params.v.row(row) + int64_t{h} * shape.v_dim, value_to, shape.v_dim);
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
      values_(kv_heads_ * k_head_bytes_) {}

size_t PageLayout::bytes() const { return RoundUp(values_ + kv_heads_ * v_head_bytes_, 64); }

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
  const auto widen = isa.widen[StorageIndex(shape.dtype)];
  alignas(64) std::byte key[kCpuMaxHeadDim * sizeof(float)];
  for (int t = 0; t < params.tokens; ++t) {
    for (int h = 0; h < shape.kv_heads; ++h) {
      if (DTypeSize(shape.dtype) == sizeof(uint32_t)) {
        GatherKey<uint32_t>(params.page + layout.key(h, t), shape.k_dim, key);
      } else {
        GatherKey<uint16_t>(params.page + layout.key(h, t), shape.k_dim, key);
      }
      widen(key, params.k.row(t) + int64_t{h} * shape.k_dim, shape.k_dim);
      widen(params.page + layout.value(h, t), params.v.row(t) + int64_t{h} * shape.v_dim,
            shape.v_dim);
    }
  }
  return absl::OkStatus();
}

}  // namespace annulus::cpu
