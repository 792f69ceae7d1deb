#ifndef ANNULUS_KERNELS_CUDA_COMMON_PAGE_LAYOUT_H_
#define ANNULUS_KERNELS_CUDA_COMMON_PAGE_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/common/device.h"
#include "kernels/ops/attention.h"

namespace annulus::cuda {

// The layout of one layer's part of a page: K [kv_heads][page_tokens][k_stride], then V the same
// way, then (kI8) the bf16 scales of K [kv_heads][page_tokens], then those of V. Strides are the
// dimensions rounded up to 16 elements, so that rows of every type start at multiples of 16 bytes.
// Padding is 0, written with each row. `element` is the size of one element in bytes.
struct PageLayout {
  int page_tokens;
  int kv_heads;
  int k_dim;
  int v_dim;
  int k_stride;
  int v_stride;
  int element;
  DType dtype;

  ANNULUS_DEVICE int64_t Key(int head, int64_t slot) const {
    return (int64_t{head} * page_tokens + slot) * k_stride * element;
  }
  ANNULUS_DEVICE int64_t Value(int head, int64_t slot) const {
    return Key(kv_heads, 0) + (int64_t{head} * page_tokens + slot) * v_stride * element;
  }
  ANNULUS_DEVICE int64_t KeyScale(int head, int64_t slot) const {
    return Value(kv_heads, 0) + (int64_t{head} * page_tokens + slot) * 2;
  }
  ANNULUS_DEVICE int64_t ValueScale(int head, int64_t slot) const {
    return KeyScale(kv_heads + head, slot);
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_COMMON_PAGE_LAYOUT_H_
